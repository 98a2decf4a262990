//! Recovery after `kill -9` during runs.

use anyhow::{Context, Result};
use hatchery_tests::event;
use hatchery_tests::host::events_in;
use hatchery_tests::{Folder, Host};
use serde_json::Value;

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
async fn every_event_that_was_yielded_before_a_kill_is_found_after_it() -> Result<()> {
    const RUNS: usize = 3;
    const EVENTS: usize = 10;
    let folder = Folder::of_samples()?;
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
    // What a client has seen when the power goes.
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
        // What had come but was not read yet; then the connection breaks.
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
async fn sessions_and_artifacts_are_there_after_an_orderly_end() -> Result<()> {
    let folder = Folder::of_samples()?;
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
