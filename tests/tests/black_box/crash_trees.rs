//! Generated trees of agents on real hosts that are killed (SIGKILL) before and after their effects, and between
//! requests: the run continues on a restarted host, or on another host with the same data folder. The session ends as
//! the session of an undisturbed run, and no completed call is made again. The effects are counted by a server of the
//! test.
//!
//! `HATCHERY_CRASH_SEEDS` is the least number of trees; by default there are as many as show all kinds of agents and
//! calls.

#![allow(clippy::indexing_slicing, reason = "of JSON values, which are null where nothing is")]

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use hatchery_tests::event;
use hatchery_tests::generated_tree::Tree;
use hatchery_tests::held_effects::{Arrival, HeldEffects};
use hatchery_tests::host::{USER, events_in, message, session_path};
use hatchery_tests::{Folder, Host};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The function with which a client asks a person.
const REQUEST_CONFIRMATION: &str = "adk_request_confirmation";
/// The run of every session.
const RUN: &str = "r1";

/// When hosts are killed.
#[derive(Default)]
struct Kills {
    /// At every `n`th effect, when it happens for the first time; never if 0. Before and after its answer in turn.
    every: usize,
    /// After every `n`th response; never if 0.
    every_response: usize,
    effects: BTreeSet<String>,
    responses: usize,
    kills: usize,
}

/// The action of the test on a tool's request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Action {
    Answer,
    KillBefore,
    KillAfter,
}

impl Kills {
    fn next_action(&mut self, arrival: &Arrival) -> Action {
        let is_new = self.effects.insert(arrival.name.clone());
        if !is_new || self.every == 0 || !self.effects.len().is_multiple_of(self.every) {
            return Action::Answer;
        }
        self.kills += 1;
        if self.kills.is_multiple_of(2) { Action::KillAfter } else { Action::KillBefore }
    }

    fn kills_after_response(&mut self) -> bool {
        self.responses += 1;
        let kills = self.every_response > 0 && self.responses.is_multiple_of(self.every_response);
        self.kills += usize::from(kills);
        kills
    }
}

/// A host, or one that is being started.
#[allow(clippy::large_enum_variant, reason = "there are one or two")]
enum Slot {
    Running(Host),
    Starting(JoinHandle<Result<Host>>),
}

/// The hosts of one data folder. Requests go to one of them until it is killed, then to the next one.
struct Hosts {
    folder: Folder,
    slots: Vec<Slot>,
    current: usize,
}

impl Hosts {
    async fn serve(folder: &Folder, count: usize) -> Result<Self> {
        let mut slots = Vec::new();
        for _ in 0..count {
            slots.push(Slot::Running(Host::serve(folder).await?));
        }
        Ok(Self { folder: folder.clone(), slots, current: 0 })
    }

    /// Returns the current host.
    async fn host(&mut self) -> Result<&Host> {
        let slot = self.slots.get_mut(self.current).context("a slot")?;
        if let Slot::Starting(starting) = slot {
            *slot = Slot::Running(starting.await??);
        }
        match slot {
            Slot::Running(host) => Ok(host),
            Slot::Starting(_) => bail!("the host is running now"),
        }
    }

    /// Kills the current host, and replaces it while requests go to the next one.
    async fn kill(&mut self) -> Result<()> {
        self.host().await?;
        let folder = self.folder.clone();
        let slot = self.slots.get_mut(self.current).context("a slot")?;
        let (start, started) = tokio::sync::oneshot::channel::<()>();
        let starting = tokio::spawn(async move {
            started.await?;
            Host::serve(&folder).await
        });
        if let Slot::Running(host) = std::mem::replace(slot, Slot::Starting(starting)) {
            host.kill().await?;
        }
        start.send(()).ok().context("the task waits")?;
        self.current = (self.current + 1) % self.slots.len();
        Ok(())
    }
}

/// A client that drives one run to the end, on hosts that may be killed.
struct Client<'a> {
    hosts: &'a mut Hosts,
    effects: &'a mut HeldEffects,
    session: &'a str,
    order: &'a [(String, String)],
    /// How often the effects had happened that were completed for certain when a host was killed.
    completed: BTreeMap<String, usize>,
}

impl Client<'_> {
    /// Runs the tree in a new session. Returns the session.
    async fn drive(&mut self, kills: &mut Kills) -> Result<Value> {
        self.hosts.host().await?.create_session("tree", self.session).await?;
        let path = session_path("tree", self.session);
        let mut first = message("tree", self.session, "go");
        first["runId"] = json!(RUN);
        loop {
            let host = self.hosts.host().await?;
            let run = host.get(&format!("{path}/runs/{RUN}")).await?;
            let state = if run.status == 404 { json!("accepted") } else { run.json(200)?["state"].clone() };
            let session = host.session("tree", self.session).await?;
            self.record_stored(&session);
            let body = match state.as_str().unwrap_or_default() {
                "accepted" | "running" | "interrupted" => first.clone(),
                "waiting" => approval(self.session, &open_request(&session)?),
                "done" => return Ok(session),
                state => bail!("the run is {state}: {session}"),
            };
            let is_killed = self.send(&body, kills).await?;
            if !is_killed && kills.kills_after_response() {
                self.record_order();
                self.hosts.kill().await?;
            }
        }
    }

    /// Sends a request, and decides about each effect until there is a response. Returns true if the host was killed.
    async fn send(&mut self, body: &Value, kills: &mut Kills) -> Result<bool> {
        let request = self.hosts.host().await?.request(Method::POST, "/run").json(body).send();
        let mut sent = tokio::spawn(request);
        loop {
            let arrival = tokio::select! {
                response = &mut sent => {
                    let response = response?.context("the host has not been killed")?;
                    let (status, text) = (response.status(), response.text().await?);
                    ensure!(status == 200, "{status}: {text}");
                    return Ok(false);
                }
                arrival = self.effects.next() => arrival?,
            };
            let action = kills.next_action(&arrival);
            match action {
                Action::Answer => arrival.answer().await,
                Action::KillBefore | Action::KillAfter => {
                    self.record_order();
                    if action == Action::KillAfter {
                        arrival.answer().await;
                    }
                    self.hosts.kill().await?;
                    sent.abort();
                    return Ok(true);
                }
            }
        }
    }

    /// Records the effects that are completed because others have begun after them.
    fn record_order(&mut self) {
        let counts = self.effects.keys();
        for (earlier, later) in self.order {
            if counts.contains_key(later) {
                self.record(earlier);
            }
        }
    }

    /// Records the effects whose results are stored.
    fn record_stored(&mut self, session: &Value) {
        for event in events_in(session).unwrap_or_default() {
            for part in event::parts(&event) {
                let result = event::text_at(part, "/functionResponse/response/result");
                if let Some(name) = result.strip_prefix("effect ").and_then(|rest| rest.strip_suffix(';')) {
                    self.record(name);
                }
            }
        }
    }

    fn record(&mut self, effect: &str) {
        let count = self.effects.count(effect);
        self.completed.entry(effect.to_owned()).or_insert(count);
    }
}

/// Returns the id of the first request for confirmation without an answer; if all are answered, of the last one, whose
/// answer is sent again.
fn open_request(session: &Value) -> Result<String> {
    let events = events_in(session)?;
    let id = |part: &Value, kind: &str| {
        let call = part.get(kind)?;
        (event::text_at(call, "/name") == REQUEST_CONFIRMATION).then(|| event::text_at(call, "/id").to_owned())
    };
    let parts = || events.iter().flat_map(event::parts);
    let answered: BTreeSet<_> = parts().filter_map(|part| id(part, "functionResponse")).collect();
    let requests: Vec<_> = parts().filter_map(|part| id(part, "functionCall")).collect();
    let open = requests.iter().find(|request| !answered.contains(*request)).or(requests.last());
    open.cloned().with_context(|| format!("the run waits for nobody: {session}"))
}

fn approval(session: &str, request: &str) -> Value {
    let response = json!({"id": request, "name": REQUEST_CONFIRMATION, "response": {"confirmed": true}});
    json!({
        "appName": "tree", "userId": USER, "sessionId": session,
        "newMessage": {"role": "user", "parts": [{"functionResponse": response}]},
    })
}

/// Returns the events of agents in short form by branch, without what differs between two runs: ids, times, and whether
/// a call that is made at most once has returned or was interrupted. Also returns the state.
fn outcome(session: &Value, once: &BTreeSet<String>) -> Result<(BTreeMap<String, Vec<String>>, Value)> {
    let events = events_in(session)?;
    let calls: BTreeMap<_, _> = events
        .iter()
        .flat_map(event::parts)
        .filter_map(|part| part.get("functionCall"))
        .map(|call| (event::text_at(call, "/id").to_owned(), event::text_at(call, "/args/name").to_owned()))
        .collect();
    let mut branches = BTreeMap::<String, Vec<String>>::new();
    for event in events.iter().filter(|event| event["author"] != "user") {
        let lines = event::parts(event).filter_map(|part| {
            let (call, response) = (&part["functionCall"], &part["functionResponse"]);
            if call["name"] == REQUEST_CONFIRMATION {
                return None;
            }
            let effect = calls.get(event::text_at(response, "/id"));
            let is_once = effect.is_some_and(|effect| once.contains(effect));
            let answer = if is_once { &Value::Null } else { &response["response"] };
            Some(format!("{} {} {} {answer}", event::text_at(part, "/text"), call["args"], response["name"]))
        });
        let text: Vec<_> = lines.collect();
        if !text.is_empty() {
            let line = format!("{}: {}", event::text_at(event, "/author"), text.join("; "));
            branches.entry(event::text_at(event, "/branch").to_owned()).or_default().push(line);
        }
    }
    Ok((branches, session["state"].clone()))
}

/// Runs the tree of a seed undisturbed, then on hosts that are killed. Returns how often hosts were killed.
async fn assert_survives(seed: u64, host_count: usize) -> Result<usize> {
    let (folder, mut effects, tree) = (Folder::empty()?, HeldEffects::start().await?, Tree::generate(seed));
    tree.write(&folder, &effects.url)?;
    let mut hosts = Hosts::serve(&folder, host_count).await?;
    let (order, once) = (tree.order(), tree.effects_once());
    let mut client = Client {
        hosts: &mut hosts,
        effects: &mut effects,
        session: "undisturbed",
        order: &order,
        completed: BTreeMap::new(),
    };
    let undisturbed = client.drive(&mut Kills::default()).await?;
    let expected = outcome(&undisturbed, &once)?;
    let counts = effects.keys();
    ensure!(counts.values().all(|keys| keys.len() == 1), "{tree:?}: {counts:?}");
    ensure!(counts.keys().cloned().collect::<BTreeSet<_>>() == tree.effects().into_iter().collect(), "{counts:?}");
    effects.reset();

    let mut kills = Kills { every: 1, every_response: 2, ..Kills::default() };
    let mut client = Client {
        hosts: &mut hosts,
        effects: &mut effects,
        session: "killed",
        order: &order,
        completed: BTreeMap::new(),
    };
    let session = client.drive(&mut kills).await.with_context(|| format!("seed {seed}: {tree:?}"))?;
    let completed = client.completed;
    let killed = outcome(&session, &once)?;
    ensure!(killed == expected, "seed {seed}: {tree:?}\n{killed:#?}\nis not\n{expected:#?}");
    let requests = effects.keys();
    for (effect, count) in &completed {
        ensure!(effects.count(effect) == *count, "seed {seed}: the completed {effect} has happened again: {tree:?}");
    }
    for effect in tree.effects() {
        let count = effects.count(&effect);
        let (least, most) = if once.contains(&effect) { (0, 1) } else { (1, 1 + kills.kills) };
        ensure!((least..=most).contains(&count), "seed {seed}: {effect} has happened {count} times: {tree:?}");
    }
    let distinct: BTreeSet<_> = requests.values().flatten().collect();
    ensure!(
        requests.values().all(|keys| keys.iter().all(|key| !key.is_empty() && Some(key) == keys.first())),
        "{requests:?}"
    );
    ensure!(distinct.len() == requests.len(), "every effect has a key of its own: {requests:?}");
    Ok(kills.kills)
}

/// Returns seeds whose trees have all kinds of agents and calls together, at least as many as `HATCHERY_CRASH_SEEDS`.
fn seeds(first: u64) -> Result<Vec<u64>> {
    const KINDS: usize = 8;
    let least = match std::env::var("HATCHERY_CRASH_SEEDS") {
        Ok(count) => count.parse().context("HATCHERY_CRASH_SEEDS")?,
        Err(_) => 0,
    };
    let (mut seeds, mut kinds) = (Vec::new(), BTreeSet::new());
    for seed in first..first + 10_000 {
        let before = kinds.len();
        kinds.extend(Tree::generate(seed).kinds());
        if kinds.len() > before || (kinds.len() == KINDS && seeds.len() < least) {
            seeds.push(seed);
        }
        if kinds.len() == KINDS && seeds.len() >= least {
            return Ok(seeds);
        }
    }
    bail!("no tree has some kind of agents or calls: {kinds:?}")
}

#[tokio::test]
async fn a_run_of_a_generated_tree_ends_the_same_although_its_host_is_killed_at_every_effect() -> Result<()> {
    let mut kills = 0;
    for seed in seeds(1)? {
        kills += assert_survives(seed, 1).await?;
    }
    println!("{kills} kills");
    ensure!(kills > 0, "no host was killed");
    Ok(())
}

#[tokio::test]
async fn another_host_on_the_data_folder_goes_on_with_a_generated_tree_whose_host_is_killed() -> Result<()> {
    let kills = assert_survives(4, 2).await?;
    println!("{kills} kills");
    Ok(())
}

/// Two agents in a row. Each makes two calls at once.
fn pair(folder: &Folder, server: &str) -> Result<()> {
    let call = |name: &str| json!({"call": {"name": "effect", "args": {"name": name}}});
    for (agent, calls) in [("one", ["a", "b"]), ("two", ["c", "d"])] {
        let turns = json!([{"when": {"tool": "effect"}, "reply": "done"}, {"reply": calls.map(call)}]);
        folder.write(&format!("tree/{agent}-script.yaml"), json!({"turns": turns}).to_string())?;
        let agent_file = json!({
            "name": agent, "model": format!("scripted:tree/{agent}-script.yaml"), "instruction": "Make calls.",
            "tools": [{"name": "errands/effect"}],
        });
        folder.write(&format!("tree/{agent}.yaml"), agent_file.to_string())?;
    }
    let root = json!({
        "agent_class": "SequentialAgent", "name": "tree",
        "sub_agents": [{"config_path": "one.yaml"}, {"config_path": "two.yaml"}],
    });
    folder.write("tree/root_agent.yaml", root.to_string())?;
    folder.write("errands.wasm", hatchery_tests::paths::component("errands")?)?;
    let grants = json!({"network": [server], "private_network": [server.trim_start_matches("http://")]});
    let errands = json!({"config": {"server": server}, "grants": grants});
    let config = json!({"server": {"turn_lease": "500ms"}, "components": {"errands": errands}});
    folder.write("hatchery.yaml", config.to_string())
}

/// Sends three messages, and repeats each on the other host if its host has died.
async fn converse(client: reqwest::Client, urls: [String; 2], name: &'static str) -> Result<()> {
    for number in 0..3 {
        let mut body = message("tree", "shared", &format!("{name}{number}"));
        body["runId"] = json!(format!("{name}{number}"));
        let [first, second] = urls.each_ref().map(|url| client.post(format!("{url}/run")).json(&body));
        let response = match first.send().await {
            Ok(response) => response,
            Err(_) => second.send().await?,
        };
        let (status, text) = (response.status(), response.text().await?);
        ensure!(status == 200, "{status}: {text}");
    }
    Ok(())
}

#[tokio::test]
async fn concurrent_turns_on_two_hosts_do_not_interleave_although_one_host_is_killed() -> Result<()> {
    let (folder, mut effects) = (Folder::empty()?, HeldEffects::start().await?);
    pair(&folder, &effects.url)?;
    let (one, two) = (Host::serve(&folder).await?, Host::serve(&folder).await?);
    two.create_session("tree", "shared").await?;
    let (urls, client) = ([one.url.clone(), two.url.clone()], reqwest::Client::builder().no_proxy().build()?);
    let [first, second] = urls.clone();
    let mut talks = tokio::task::JoinSet::new();
    talks.spawn(converse(client.clone(), urls, "x"));
    talks.spawn(converse(client, [second, first], "y"));
    // In the middle of the second turn, whichever host has it.
    let mut one = Some(one);
    let mut arrived = 0;
    while !talks.is_empty() {
        tokio::select! {
            talk = talks.join_next() => talk.context("a talk")???,
            arrival = effects.next() => {
                let arrival = arrival?;
                arrived += 1;
                if arrived == 6 && let Some(one) = one.take() {
                    one.kill().await?;
                }
                arrival.answer().await;
            }
        }
    }
    let session = two.session("tree", "shared").await?;
    let events = events_in(&session)?;
    let mut turns: Vec<&str> = events.iter().map(|event| event::text_at(event, "/invocationId")).collect();
    turns.dedup();
    // The run of the host that was killed may have gone on after a turn of the other one.
    ensure!((6..=7).contains(&turns.len()), "{turns:?}");
    let runs = two.get(&format!("{}/runs", session_path("tree", "shared"))).await?.json(200)?["runs"].clone();
    let runs = runs.as_array().context("a list")?;
    ensure!(runs.len() == 6 && runs.iter().all(|run| run["state"] == "done"), "{runs:?}");
    for run in runs {
        let own: Vec<_> = events.iter().filter(|event| event["invocationId"] == run["id"]).collect();
        let authors: Vec<_> = own.iter().map(|event| event::text_at(event, "/author")).collect();
        ensure!(authors == ["user", "one", "one", "one", "two", "two", "two"], "{authors:?}");
    }
    for effect in ["a", "b", "c", "d"] {
        let count = effects.count(effect);
        ensure!((6..=7).contains(&count), "{effect} has happened {count} times");
    }
    Ok(())
}
