//! Many runs over one WebSocket: `/ws`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::{TIMEOUT, USER};
use hatchery_tests::{Folder, Frame, Host, Socket, event, paths};
use reqwest::Method;
use serde_json::{Value, json};

/// An app `parrot` that repeats what the user says and is slow at the word `slow`, one that ticks, and one that asks.
const AGENTS: [(&str, &str); 7] = [
    ("parrot/root_agent.yaml", "name: parrot\nmodel: scripted:parrot/answers.yaml\ninstruction: Repeat.\n"),
    (
        "parrot/answers.yaml",
        "turns:\n  - when: {user: slow}\n    delay_ms: 600000\n    reply: late\n  - when: {user: pause}\n    delay_ms: 1500\n    \
         reply: after a pause\n  - reply: 'You said: {user}'\n",
    ),
    (
        "ticker/root_agent.yaml",
        "agent_class: LoopAgent\nname: ticker\nmax_iterations: 12\nsub_agents:\n  - config_path: tick.yaml\n",
    ),
    ("ticker/tick.yaml", "name: tick\nmodel: scripted:ticker/answers.yaml\ninstruction: Tick.\n"),
    ("ticker/answers.yaml", "turns:\n  - delay_ms: 20\n    reply: tick\n"),
    (
        "gambler/root_agent.yaml",
        "name: gambler\nmodel: scripted:gambler/answers.yaml\ninstruction: Roll.\ntools:\n  - name: roll_die\n    \
         require_confirmation: true\n",
    ),
    (
        "gambler/answers.yaml",
        "turns:\n  - when: {tool: roll_die, result: requires confirmation}\n    reply: May I?\n  - when: {tool: roll_die}\n    \
         reply: Rolled.\n  - reply: [{call: {name: roll_die, args: {sides: 6}}}]\n",
    ),
];

fn folder(config: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    for (name, text) in AGENTS {
        folder.write(name, text)?;
    }
    folder.put("dice.wasm", paths::component("dice")?)?;
    if !config.is_empty() {
        folder.write("hatchery.yaml", config)?;
    }
    Ok(folder)
}

async fn serve(config: &str) -> Result<Host> {
    Host::serve(&folder(config)?).await
}

async fn open(host: &Host) -> Result<Socket> {
    Socket::open(host, "/ws", None).await
}

fn start(id: &str, app: &str, session: &str, text: &str) -> Value {
    json!({"type": "start", "id": id, "run": run(app, session, text)})
}

fn run(app: &str, session: &str, text: &str) -> Value {
    let message = json!({"role": "user", "parts": [{"text": text}]});
    json!({"appName": app, "userId": USER, "sessionId": session, "newMessage": message})
}

fn session_of(app: &str, session: &str) -> Value {
    json!({"appName": app, "userId": USER, "sessionId": session})
}

/// Returns the next message, after a check of its type and id.
async fn expect(socket: &mut Socket, kind: &str, id: &str) -> Result<Value> {
    let message = socket.json().await?;
    let (actual_kind, actual_id) = (event::text_at(&message, "/type"), event::text_at(&message, "/id"));
    ensure!((actual_kind, actual_id) == (kind, id), "not {kind} {id}: {message}");
    Ok(message)
}

/// Returns the messages until all of these ids have ended, by id.
async fn until_ended(socket: &mut Socket, ids: &[&str]) -> Result<BTreeMap<String, Vec<Value>>> {
    let mut messages: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    let mut open: BTreeSet<&str> = ids.iter().copied().collect();
    while !open.is_empty() {
        let message = socket.json().await?;
        let id = event::text_at(&message, "/id").to_owned();
        if event::text_at(&message, "/type") == "end" {
            open.remove(id.as_str());
        }
        messages.entry(id).or_default().push(message);
    }
    Ok(messages)
}

/// Returns the events among messages, after a check of their format.
fn events(messages: &[Value]) -> Result<Vec<Value>> {
    let events: Vec<_> =
        messages.iter().filter(|message| message["type"] == "event").map(|message| message["event"].clone()).collect();
    events.iter().try_for_each(event::check)?;
    Ok(events)
}

async fn expect_close(socket: &mut Socket, code: u16, reason: &str) -> Result<()> {
    let (actual, words) = socket.closed().await?;
    ensure!(actual == code && words.contains(reason), "closed with {actual} {words:?}, not with {code} {reason:?}");
    Ok(())
}

#[tokio::test]
async fn several_runs_share_a_connection_and_each_has_its_own_events() -> Result<()> {
    let host = serve("").await?;
    let mut socket = open(&host).await?;
    let ids = ["a", "b", "c", "d"];
    for id in ids {
        host.create_session("parrot", id).await?;
        let text = if id == "a" { "pause".to_owned() } else { format!("I am {id}") };
        socket.send(&start(id, "parrot", id, &text)).await?;
    }
    let messages = until_ended(&mut socket, &ids).await?;
    for id in ids {
        let [started, event, end] = messages[id].as_slice() else { anyhow::bail!("{:?}", messages[id]) };
        let expected = if id == "a" { "after a pause".to_owned() } else { format!("You said: I am {id}") };
        ensure!(event::texts(&events(&messages[id])?) == [expected], "{event}");
        ensure!(started["type"] == "started" && started["runId"] == event["event"]["invocationId"], "{started}");
        ensure!(event["revision"] == 2, "{event}");
        ensure!(end["run"]["state"] == "done" && end["run"]["id"] == started["runId"], "{end}");
        ensure!(host.session("parrot", id).await?["events"][1] == event["event"], "it is stored as it was sent");
    }
    // An id can be used again, and the connection is as it was.
    socket.send(&start("a", "parrot", "a", "again")).await?;
    let again = until_ended(&mut socket, &["a"]).await?;
    ensure!(event::texts(&events(&again["a"])?) == ["You said: again"], "{again:?}");
    socket.send(&json!({"type": "ping", "id": "p"})).await?;
    ensure!(socket.json().await? == json!({"type": "pong", "id": "p"}));
    Ok(())
}

#[tokio::test]
async fn a_streamed_run_has_partial_events_without_a_revision() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut socket = open(&host).await?;
    let mut request = start("a", "parrot", "s", "hello");
    request["run"]["streaming"] = json!(true);
    socket.send(&request).await?;
    let messages = until_ended(&mut socket, &["a"]).await?;
    let is_partial = |message: &&Value| message["event"]["partial"] == true;
    let (partial, whole): (Vec<_>, Vec<_>) =
        messages["a"].iter().filter(|message| message["type"] == "event").partition(is_partial);
    ensure!(!partial.is_empty() && partial.iter().all(|message| message.get("revision").is_none()), "{partial:?}");
    ensure!(whole.len() == 1 && whole[0]["revision"] == 2, "{whole:?}");
    event::check_partial_events(&events(&messages["a"])?)?;
    Ok(())
}

#[tokio::test]
async fn one_run_is_cancelled_and_the_others_go_on() -> Result<()> {
    let host = serve("").await?;
    let mut socket = open(&host).await?;
    for (id, text) in [("slow", "slow"), ("other", "pause")] {
        host.create_session("parrot", id).await?;
        socket.send(&start(id, "parrot", id, text)).await?;
        expect(&mut socket, "started", id).await?;
    }
    socket.send(&json!({"type": "cancel", "id": "slow"})).await?;
    let messages = until_ended(&mut socket, &["slow", "other"]).await?;
    let end = messages["slow"].last().context("an end")?;
    ensure!(end["run"]["state"] == "cancelled" && end["error"]["code"] == "CANCELLED", "{end}");
    ensure!(event::texts(&events(&messages["other"])?) == ["after a pause"], "{messages:?}");
    socket.send(&json!({"type": "cancel", "id": "slow"})).await?;
    let error = expect(&mut socket, "error", "slow").await?;
    ensure!(error["status"] == 404 && error["code"] == "ID_NOT_FOUND", "{error}");
    Ok(())
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing_and_gets_nothing_twice() -> Result<()> {
    let host = serve("").await?;
    host.create_session("ticker", "s").await?;
    let mut socket = open(&host).await?;
    let mut request = start("a", "ticker", "s", "go");
    request["run"]["runId"] = json!("r");
    socket.send(&request).await?;
    expect(&mut socket, "started", "a").await?;
    let (mut seen, mut after) = (Vec::new(), 0);
    let end = loop {
        // Each connection is dropped after two events.
        for _ in 0..2 {
            let message = socket.json().await?;
            if message["type"] == "event" {
                after = message["revision"].as_u64().with_context(|| message.to_string())?;
                seen.push(message["event"].clone());
            }
            if event::text_at(&message, "/type") == "end" {
                seen.push(message);
                break;
            }
        }
        if seen.last().is_some_and(|last| last["type"] == "end") {
            break seen.pop().context("an end")?;
        }
        socket = open(&host).await?;
        let follow =
            json!({"type": "follow", "id": "f", "session": session_of("ticker", "s"), "runId": "r", "after": after});
        socket.send(&follow).await?;
        expect(&mut socket, "started", "f").await?;
    };
    ensure!(end["run"]["state"] == "done", "{end}");
    let session = host.session("ticker", "s").await?;
    let stored = session["events"].as_array().context("events")?;
    let stored: Vec<_> = stored.iter().filter(|event| event["author"] != "user").cloned().collect();
    ensure!(stored.len() >= 12 && seen == stored, "{} were seen, {} are stored", seen.len(), stored.len());
    // A follower from the beginning gets all of them.
    socket.send(&json!({"type": "follow", "id": "all", "session": session_of("ticker", "s"), "runId": "r"})).await?;
    let messages = until_ended(&mut socket, &["all"]).await?;
    ensure!(events(&messages["all"])? == stored);
    Ok(())
}

#[tokio::test]
async fn a_repeated_start_attaches_to_its_run_with_the_same_revisions() -> Result<()> {
    let host = serve("").await?;
    host.create_session("ticker", "s").await?;
    let mut request = start("a", "ticker", "s", "go");
    request["run"]["runId"] = json!("r");
    let mut all = Vec::new();
    for _ in 0..2 {
        let mut socket = open(&host).await?;
        socket.send(&request).await?;
        let messages = until_ended(&mut socket, &["a"]).await?;
        all.push(messages["a"].iter().filter(|it| it["type"] == "event").cloned().collect::<Vec<_>>());
    }
    ensure!(all[0].len() >= 12 && all[0] == all[1], "{all:?}");
    Ok(())
}

#[tokio::test]
async fn a_confirmation_and_an_answer_continue_a_conversation() -> Result<()> {
    let host = serve("").await?;
    host.create_session("gambler", "s").await?;
    let mut socket = open(&host).await?;
    socket.send(&start("a", "gambler", "s", "roll")).await?;
    let messages = until_ended(&mut socket, &["a"]).await?;
    let asked = events(&messages["a"])?;
    let mut calls = asked.iter().flat_map(|event| event["content"]["parts"].as_array().cloned().unwrap_or_default());
    let request = calls.find(|part| part["functionCall"]["name"] == "adk_request_confirmation").context("a request")?;
    let call = &request["functionCall"]["id"];
    let end = messages["a"].last().context("an end")?;
    ensure!(end["run"]["state"] == "waiting", "{end}");
    let confirm = json!({
        "type": "confirm", "id": "b", "session": session_of("gambler", "s"), "callId": call, "confirmed": true,
    });
    socket.send(&confirm).await?;
    let messages = until_ended(&mut socket, &["b"]).await?;
    let confirmed = events(&messages["b"])?;
    ensure!(event::tool_response(&confirmed, "roll_die")?.get("result").is_some_and(Value::is_u64), "{confirmed:?}");
    ensure!(event::texts(&confirmed).last().map(String::as_str) == Some("Rolled."), "{confirmed:?}");
    // The call has its response: another answer is refused, and the connection stays open.
    let answer = json!({
        "type": "answer", "id": "c", "session": session_of("gambler", "s"), "callId": "no-such-call", "name": "roll_die",
        "response": {"result": 6},
    });
    socket.send(&answer).await?;
    let error = expect(&mut socket, "error", "c").await?;
    ensure!(error["status"] == 422 && error["code"] == "INVALID_MESSAGE", "{error}");
    ensure!(event::text_at(&error, "/detail").contains("the session has no such call"), "{error}");
    Ok(())
}

#[tokio::test]
async fn what_is_no_message_closes_the_connection_with_the_reason() -> Result<()> {
    let host = serve("server: {body_limit: 2 KiB, small_body_limit: 2 KiB}\n").await?;
    for (text, code, reason) in [
        ("{".to_owned(), 1008, "not a message: EOF while parsing"),
        ("[]".to_owned(), 1008, "not a message: "),
        (r#"{"type": "fly", "id": "a"}"#.to_owned(), 1008, "not a message: unknown variant `fly`"),
        (r#"{"type": "cancel"}"#.to_owned(), 1008, "not a message: missing field `id`"),
        (r#"{"type": "start", "id": "a", "run": {"appName": 1}}"#.to_owned(), 1008, "not a message: invalid type"),
        (format!(r#"{{"type": "ping", "id": "{}"}}"#, "x".repeat(3 << 10)), 1009, "a message has at most 2048 bytes"),
        (format!(r#"{{"type": "ping", "id": "{}"}}"#, "x".repeat(9 << 10)), 1009, "a message has at most 2048 bytes"),
    ] {
        let mut socket = open(&host).await?;
        socket.send_text(&text).await?;
        expect_close(&mut socket, code, reason).await.with_context(|| text.chars().take(60).collect::<String>())?;
    }
    let mut socket = open(&host).await?;
    socket.send_bytes(vec![1, 2]).await?;
    expect_close(&mut socket, 1003, "send text frames with JSON").await
}

#[tokio::test]
async fn what_is_wrong_with_a_run_is_told_and_the_connection_goes_on() -> Result<()> {
    let host = serve("").await?;
    host.create_session("parrot", "s").await?;
    let mut socket = open(&host).await?;
    let follow = |run: &str| json!({"type": "follow", "id": "x", "session": session_of("parrot", "s"), "runId": run});
    for (message, status, code) in [
        (start("x", "crow", "s", "hello"), 404, "APP_NOT_FOUND"),
        (start("x", "parrot", "missing", "hello"), 404, "SESSION_NOT_FOUND"),
        (json!({"type": "start", "id": "x", "run": {"userId": USER}}), 400, "BAD_INPUT"),
        (follow("missing"), 404, "RUN_NOT_FOUND"),
        (start("", "parrot", "s", "hello"), 400, "BAD_INPUT"),
    ] {
        socket.send(&message).await?;
        let id = event::text_at(&message, "/id").to_owned();
        let error = expect(&mut socket, "error", &id).await?;
        ensure!(error["status"] == status && error["code"] == code, "{message}: {error}");
    }
    socket.send(&start("x", "parrot", "s", "slow")).await?;
    expect(&mut socket, "started", "x").await?;
    socket.send(&start("x", "parrot", "s", "hello")).await?;
    let error = expect(&mut socket, "error", "x").await?;
    ensure!(error["status"] == 409 && error["code"] == "ID_IN_USE", "{error}");
    Ok(())
}

#[tokio::test]
async fn too_many_runs_are_refused() -> Result<()> {
    let host = serve("server: {max_concurrent_runs: 1}\n").await?;
    for session in ["s", "t"] {
        host.create_session("parrot", session).await?;
    }
    let mut socket = open(&host).await?;
    let mut first = start("0", "parrot", "s", "slow");
    first["run"]["runId"] = json!("r");
    socket.send(&first).await?;
    expect(&mut socket, "started", "0").await?;
    wait_until_running(&host, "s").await?;
    socket.send(&start("other", "parrot", "t", "hello")).await?;
    let error = expect(&mut socket, "error", "other").await?;
    ensure!(error["status"] == 503 && error["code"] == "BUSY" && error["retryAfter"] == 1, "{error}");
    // A run that is only followed is none of the host's, but one of the connection's.
    for id in 1..64 {
        let follow = json!({
            "type": "follow", "id": id.to_string(), "session": session_of("parrot", "s"), "runId": "r",
        });
        socket.send(&follow).await?;
        expect(&mut socket, "started", &id.to_string()).await?;
    }
    socket.send(&start("65", "parrot", "t", "hello")).await?;
    let error = expect(&mut socket, "error", "65").await?;
    ensure!(error["status"] == 429 && error["code"] == "TOO_MANY_RUNS", "{error}");
    socket.send(&json!({"type": "cancel", "id": "1"})).await?;
    let ids: Vec<_> = (0..64).map(|id| id.to_string()).collect();
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    let messages = until_ended(&mut socket, &ids).await?;
    let mut ends = messages.values().flatten().filter(|message| message["type"] == "end");
    ensure!(ends.all(|message| message["run"]["state"] == "cancelled"), "{messages:?}");
    socket.send(&start("other", "parrot", "t", "hello")).await?;
    let messages = until_ended(&mut socket, &["other"]).await?;
    ensure!(event::texts(&events(&messages["other"])?) == ["You said: hello"]);
    Ok(())
}

/// Waits until the run `r` of a session of `parrot` has begun.
async fn wait_until_running(host: &Host, session: &str) -> Result<()> {
    let path = format!("{}/runs/r", hatchery_tests::host::session_path("parrot", session));
    let running = async {
        while host.get(&path).await?.json(200).ok().is_none_or(|run| event::text_at(&run, "/state") != "running") {}
        anyhow::Ok(())
    };
    tokio::time::timeout(TIMEOUT, running).await.context("it does not begin")?
}

#[tokio::test]
async fn a_run_goes_on_without_its_connection_unless_that_is_asked_for() -> Result<()> {
    let host = serve("").await?;
    for (session, cancels) in [("goes-on", false), ("ends", true)] {
        host.create_session("parrot", session).await?;
        let mut socket = open(&host).await?;
        let mut request = start("a", "parrot", session, "pause");
        request["run"]["runId"] = json!("r");
        request["run"]["cancelOnDisconnect"] = json!(cancels);
        socket.send(&request).await?;
        expect(&mut socket, "started", "a").await?;
        wait_until_running(&host, session).await?;
        drop(socket);
        let mut socket = open(&host).await?;
        let follow = json!({"type": "follow", "id": "f", "session": session_of("parrot", session), "runId": "r"});
        socket.send(&follow).await?;
        let messages = until_ended(&mut socket, &["f"]).await?;
        let end = messages["f"].last().context("an end")?;
        let expected = if cancels { "cancelled" } else { "done" };
        ensure!(end["run"]["state"] == expected, "{end}");
    }
    Ok(())
}

const CONFIG: &str = "\
server:
  auth:
    keys:
      - { name: alice, from: ALICE_KEY, user: tester }
      - { name: bob, from: BOB_KEY, user: bob, apps: [ticker] }
";
const ALICE: &str = "alice-key-0123456789";
const BOB: &str = "bob-key-0123456789";

#[tokio::test]
async fn a_connection_may_do_what_its_credentials_allow_now() -> Result<()> {
    let folder = folder(CONFIG)?;
    let host = Host::serve_with_environment(&folder, &[("ALICE_KEY", ALICE), ("BOB_KEY", BOB)]).await?;
    let refused = Socket::open(&host, "/ws", None).await;
    ensure!(refused.err().is_some_and(|error| format!("{error:#}").contains("401")), "no key is needed");
    let create = host.request(Method::POST, &hatchery_tests::host::session_path("parrot", "s")).bearer_auth(ALICE);
    host.send(create.json(&json!({}))).await?.json(200)?;
    let mut bob = Socket::open(&host, "/ws", Some(BOB)).await?;
    for (app, code) in [("ticker", "USER_NOT_ALLOWED"), ("parrot", "APP_NOT_FOUND")] {
        bob.send(&start("a", app, "s", "hello")).await?;
        let error = expect(&mut bob, "error", "a").await?;
        ensure!(error["code"] == code, "{error}");
        bob.send(&json!({"type": "follow", "id": "a", "session": session_of(app, "s"), "runId": "r"})).await?;
        let error = expect(&mut bob, "error", "a").await?;
        ensure!(error["code"] == code, "{error}");
    }
    let mut alice = Socket::open(&host, "/ws", Some(ALICE)).await?;
    alice.send(&start("a", "parrot", "s", "hello")).await?;
    let messages = until_ended(&mut alice, &["a"]).await?;
    ensure!(event::texts(&events(&messages["a"])?) == ["You said: hello"]);
    // Bob's key is withdrawn while he is connected.
    let without_bob: String =
        CONFIG.lines().filter(|line| !line.contains("bob")).map(|line| format!("{line}\n")).collect();
    folder.write("hatchery.yaml", without_bob)?;
    host.signal("-HUP").await?;
    host.wait_for_log("decision=\"applied\"").await?;
    bob.send(&start("a", "ticker", "s", "hello")).await?;
    let error = expect(&mut bob, "error", "a").await?;
    ensure!(error["status"] == 401 && error["code"] == "INVALID_CREDENTIALS", "{error}");
    Ok(())
}

#[tokio::test]
async fn pages_of_other_sites_cannot_connect() -> Result<()> {
    let host = serve("").await?;
    for (name, value) in [("origin", "https://example.com"), ("sec-fetch-site", "cross-site")] {
        let handshake = host
            .request(Method::GET, "/ws")
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header(name, value);
        host.send(handshake).await?.json(403)?;
    }
    Ok(())
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_with_a_run_is_not() -> Result<()> {
    let host = serve("server: {live_idle_timeout: 300ms}\n").await?;
    host.create_session("parrot", "s").await?;
    let mut socket = open(&host).await?;
    socket.send(&start("a", "parrot", "s", "pause")).await?;
    let messages = until_ended(&mut socket, &["a"]).await?;
    ensure!(event::texts(&events(&messages["a"])?) == ["after a pause"], "{messages:?}");
    expect_close(&mut socket, 1001, "nothing was sent for 0.3 s").await
}

#[tokio::test]
async fn a_host_that_stops_ends_the_runs_of_a_connection_and_begins_no_others() -> Result<()> {
    let host = serve("").await?;
    for session in ["s", "t"] {
        host.create_session("parrot", session).await?;
    }
    let mut socket = open(&host).await?;
    socket.send(&start("a", "parrot", "s", "pause")).await?;
    expect(&mut socket, "started", "a").await?;
    let stopping = tokio::spawn(host.stop());
    let mut texts = Vec::new();
    let (code, reason) = loop {
        match socket.next().await? {
            Frame::Json(message) => texts.push(message),
            Frame::Close(code, reason) => break (code, reason),
        }
    };
    ensure!(event::texts(&events(&texts)?) == ["after a pause"], "{texts:?}");
    ensure!((code, reason.as_str()) == (1001, "the server stops; connect again"), "{code} {reason}");
    ensure!(stopping.await??, "its exit code is not 0");
    Ok(())
}
