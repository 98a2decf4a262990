//! Recovery after `kill -9` during runs.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use hatchery_tests::effects::Effects;
use hatchery_tests::event;
use hatchery_tests::host::{USER, events_in};
use hatchery_tests::{Folder, Host};
use serde_json::{Value, json};

/// An agent that answers `tick` for at least ten seconds, unless the message says that this is enough.
const TICKER: [(&str, &str); 3] = [
    (
        "ticker/root_agent.yaml",
        "agent_class: LoopAgent\nname: ticker\nmax_iterations: 2000\nsub_agents:\n  - config_path: tick.yaml\n",
    ),
    (
        "ticker/tick.yaml",
        "name: tick\nmodel: scripted:ticker/answers.yaml\ninstruction: Tick.\noutput_key: last_tick\n\
         tools:\n  - name: exit_loop\n",
    ),
    (
        "ticker/answers.yaml",
        "turns:\n  - when: {user: enough}\n    reply: [{call: {name: exit_loop}}]\n  - delay_ms: 5\n    reply: tick\n",
    ),
];

#[tokio::test]
async fn every_event_sent_before_a_kill_is_stored() -> Result<()> {
    const RUNS: usize = 3;
    const EVENTS: usize = 10;
    let folder = Folder::with_samples()?;
    for (name, text) in TICKER {
        folder.write(name, text)?;
    }
    let host = Host::serve(&folder).await?;
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let session = format!("s{run}");
        host.create_session("ticker", &session).await?;
        runs.push((host.stream("ticker", &session, "go", true).await?, session, Vec::new()));
    }
    // The events that a client has received before the kill.
    for (stream, _, yielded) in &mut runs {
        while yielded.len() < EVENTS {
            let event = stream.next().await?.context("the ticks end long after this")?;
            if !event::is_partial(&event) {
                yielded.push(event);
            }
        }
    }
    host.kill().await?;

    let host = Host::serve(&folder).await?;
    for (mut stream, session, mut yielded) in runs {
        // Events that were received but not read yet; then the connection breaks.
        while let Ok(Some(event)) = stream.next().await {
            yielded.push(event);
        }
        yielded.retain(|event| !event::is_partial(event));
        let stored = host.session("ticker", &session).await?;
        let events: Vec<Value> = events_in(&stored)?;
        assert_eq!(events.first().map(event::text).as_deref(), Some("go"), "the user's message");
        assert_eq!(events.get(1..=yielded.len()), Some(yielded.as_slice()), "{session}");
        assert!(events.len() < 2000, "it was killed in the middle");
        assert_eq!(stored["state"]["last_tick"], "tick");
        // The session is usable, and what comes now follows what was there.
        let answered = host.run("ticker", &session, "enough").await?;
        assert!(event::tool_response(&answered, "exit_loop").is_ok(), "{answered:?}");
        let events_now = events_in(&host.session("ticker", &session).await?)?;
        let (old, new) = events_now.split_at(events.len());
        assert_eq!(old, events.as_slice(), "nothing that was there has changed");
        assert_eq!(new.first().map(event::text).as_deref(), Some("enough"));
        assert_eq!(new.get(1..), Some(answered.as_slice()));
    }
    host.ask("greeter", "s", "Hello").await?;
    Ok(())
}

#[tokio::test]
async fn sessions_and_artifacts_survive_a_graceful_stop() -> Result<()> {
    let folder = Folder::with_samples()?;
    let host = Host::serve(&folder).await?;
    host.ask("greeter", "s", "My name is Ada.").await?;
    let artifacts = format!("{}/artifacts", hatchery_tests::host::session_path("greeter", "s"));
    let body = serde_json::json!({"filename": "a.txt", "artifact": {"text": "kept"}});
    host.post(&artifacts, &body).await?.json(200)?;
    let before = host.session("greeter", "s").await?;
    assert!(host.stop().await?);

    let host = Host::serve(&folder).await?;
    assert_eq!(host.session("greeter", "s").await?, before);
    assert_eq!(host.get(&format!("{artifacts}/a.txt")).await?.json(200)?["text"], "kept");
    let events = host.ask("greeter", "t", "Hello").await?;
    assert_eq!(event::texts(&events)[0], "Hello again, Ada!");
    Ok(())
}

/// An app whose model calls the tool of `web-fetch` with these paths at once, in sequence, then says what the
/// last one answered.
fn errands(server: &Effects, paths: &[&str], settings: &str) -> Result<Folder> {
    let folder = Folder::with_samples()?;
    let port = server.port;
    let origin = format!("http://localhost:{port}");
    folder.write(
        "hatchery.yaml",
        format!(
            "components:\n  web-fetch:\n    grants:\n      network: [\"{origin}\"]\n      private_network: [\"localhost:{port}\"]\n\
             apps:\n  errands:\n    tool_execution: sequential\n"
        ),
    )?;
    folder.write(
        "errands/root_agent.yaml",
        format!(
            "name: errands\nmodel: scripted:errands/answers.yaml\ninstruction: Run errands.\n\
             tools:\n  - name: web-fetch/read_page\n{settings}"
        ),
    )?;
    let calls =
        paths.iter().map(|path| json!({"call": {"name": "read_page", "args": {"url": format!("{origin}{path}")}}}));
    let turns = json!({"turns": [
        {"when": {"tool": "read_page", "result": "error"}, "reply": "{tool.error}"},
        {"when": {"tool": "read_page"}, "reply": "done"},
        {"reply": calls.collect::<Vec<_>>()},
    ]});
    folder.write("errands/answers.yaml", turns.to_string())?;
    Ok(folder)
}

/// The request that continues the first run of a session.
async fn resume(host: &Host) -> Result<Value> {
    let events = events_in(&host.session("errands", "s").await?)?;
    let invocation = events.first().context("the user's message")?["invocationId"].clone();
    Ok(json!({"appName": "errands", "userId": USER, "sessionId": "s", "invocationId": invocation}))
}

/// Kills a host in the middle of the last of some calls, and continues the run on another one. Returns the events of
/// the other host, and the events of the session.
async fn kill_in_the_last_call(
    server: &mut Effects,
    folder: &Folder,
    calls: usize,
) -> Result<(Vec<Value>, Vec<Value>)> {
    let host = Host::serve(folder).await?;
    host.create_session("errands", "s").await?;
    let stream = host.stream("errands", "s", "go", false).await?;
    server.wait_for_requests(calls).await?;
    host.kill().await?;
    drop(stream);

    let host = Host::serve(folder).await?;
    let resume = resume(&host).await?;
    let resumed: Vec<Value> = serde_json::from_value(host.post("/run", &resume).await?.json(200)?)?;
    let again: Vec<Value> = serde_json::from_value(host.post("/run", &resume).await?.json(200)?)?;
    assert!(again.is_empty(), "the run has ended: {again:?}");
    Ok((resumed, events_in(&host.session("errands", "s").await?)?))
}

#[tokio::test]
async fn a_call_that_was_completed_before_a_kill_is_not_made_again() -> Result<()> {
    let mut server = Effects::start().await?;
    let folder = errands(&server, &["/a", "/b", "/hang"], "")?;
    let (resumed, stored) = kill_in_the_last_call(&mut server, &folder, 3).await?;
    let counts = BTreeMap::from([("/a".to_owned(), 1), ("/b".to_owned(), 1), ("/hang".to_owned(), 2)]);
    assert_eq!(server.counts(), counts);
    assert_eq!(event::texts(&resumed).last().map(String::as_str), Some("done"));
    let texts: Vec<&str> =
        event::parts(&resumed[0]).map(|part| event::text_at(part, "/functionResponse/response/text")).collect();
    assert_eq!(texts, ["/a 1", "/b 1", "/hang 2"], "the answers come from the first calls");
    // The message, the calls, the responses, the answer.
    assert_eq!(stored.len(), 4, "{stored:?}");
    Ok(())
}

#[tokio::test]
async fn a_call_that_must_not_be_repeated_is_not_made_again_after_a_kill() -> Result<()> {
    let mut server = Effects::start().await?;
    let folder = errands(&server, &["/a", "/hang"], "    idempotent: false\n")?;
    let (resumed, _) = kill_in_the_last_call(&mut server, &folder, 2).await?;
    assert_eq!(server.counts(), BTreeMap::from([("/a".to_owned(), 1), ("/hang".to_owned(), 1)]));
    let answer = event::parts(&resumed[0]).nth(1).context("the second answer")?;
    let error = event::text_at(answer, "/functionResponse/response/error");
    assert!(error.starts_with("interrupted: the host died during this call, and it is unknown"), "{answer}");
    assert_eq!(event::texts(&resumed).last().map(String::as_str), Some(error), "the model gets the error");
    Ok(())
}

#[cfg(unix)]
#[tokio::test]
async fn a_frozen_host_makes_no_calls_after_another_one_has_continued_its_run() -> Result<()> {
    let mut server = Effects::start().await?;
    let folder = errands(&server, &["/a", "/hang", "/b"], "")?;
    let (frozen, other) = (Host::serve(&folder).await?, Host::serve(&folder).await?);
    frozen.create_session("errands", "s").await?;
    let stream = frozen.stream("errands", "s", "go", false).await?;
    server.wait_for_requests(2).await?;
    frozen.signal("-STOP").await?;
    other.post("/run", &resume(&other).await?).await?.json(200)?;
    let counts = BTreeMap::from([("/a".to_owned(), 1), ("/hang".to_owned(), 2), ("/b".to_owned(), 1)]);
    assert_eq!(server.counts(), counts);
    let stored = events_in(&other.session("errands", "s").await?)?;
    frozen.signal("-CONT").await?;
    let last = stream.collect().await?.pop().context("the stream says why it ends")?;
    assert_eq!(last["code"], "TURN_TAKEN_OVER", "{last}");
    assert_eq!(server.counts(), counts);
    assert_eq!(events_in(&other.session("errands", "s").await?)?, stored);
    Ok(())
}

#[tokio::test]
async fn a_background_run_is_continued_by_the_next_host_after_a_kill() -> Result<()> {
    let mut server = Effects::start().await?;
    let folder = errands(&server, &["/a", "/hang"], "")?;
    let host = Host::serve(&folder).await?;
    host.create_session("errands", "s").await?;
    let mut body = hatchery_tests::host::message("errands", "s", "go");
    body["runId"] = json!("r1");
    body["background"] = json!(true);
    let accepted = host.post("/run", &body).await?.json(202)?;
    assert_eq!(accepted["background"], true, "{accepted}");
    server.wait_for_requests(2).await?;
    host.kill().await?;

    let host = Host::serve(&folder).await?;
    let run = format!("{}/runs/r1", hatchery_tests::host::session_path("errands", "s"));
    let followed = host.get(&format!("{run}/events")).await?;
    assert!(followed.text.contains("event: end\n"), "{}", followed.text);
    let stored = host.get(&run).await?.json(200)?;
    assert_eq!((&stored["state"], &stored["attempts"]), (&json!("done"), &json!(2)), "{stored}");
    assert_eq!(server.counts(), BTreeMap::from([("/a".to_owned(), 1), ("/hang".to_owned(), 2)]));
    Ok(())
}
