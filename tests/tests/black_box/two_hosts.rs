//! Two hosts on one SQLite file or PostgreSQL database: turns of a session do not interleave, and a host that was
//! frozen or killed loses its turn to the other one.

use anyhow::{Context, Result};
use hatchery_test_services::PostgresServer;
use hatchery_tests::event;
use hatchery_tests::host::events_in;
use hatchery_tests::{Folder, Host};
use serde_json::Value;

/// An agent that emits `tick` for longer than any test takes, or until it is cancelled.
const TICKER: [(&str, &str); 3] = [
    (
        "ticker/root_agent.yaml",
        "agent_class: LoopAgent\nname: ticker\nmax_iterations: 100000\nsub_agents:\n  - config_path: tick.yaml\n",
    ),
    (
        "ticker/tick.yaml",
        "name: tick\nmodel: scripted:ticker/answers.yaml\ninstruction: Tick.\ntools:\n  - name: exit_loop\n",
    ),
    (
        "ticker/answers.yaml",
        "turns:\n  - when: {user: enough}\n    reply: [{call: {name: exit_loop}}]\n  - delay_ms: 20\n    reply: tick\n",
    ),
];

/// Runs each test, a function of the URI of the session service, on a SQLite file and on a PostgreSQL database.
macro_rules! on_shared_sessions {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    super::$test(None).await
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $test() -> anyhow::Result<()> {
                    let Some(server) = hatchery_test_services::postgres() else { return Ok(()) };
                    // A separate schema.
                    super::$test(Some(&format!("{server}?schema={}", stringify!($test)))).await
                }
            )+
        }
    };
}

on_shared_sessions!(
    messages_to_two_hosts_are_answered_one_after_the_other,
    another_host_continues_the_session_of_a_killed_one,
    a_frozen_host_loses_its_turn_and_reports_it_to_its_client,
);

async fn serve(folder: &Folder, service: Option<&str>) -> Result<Host> {
    match service {
        None => Host::serve(folder).await,
        Some(uri) => Host::serve_with_args(folder, &[], &["--session-service", uri]).await,
    }
}

async fn two_hosts(service: Option<&str>) -> Result<(Host, Host)> {
    let folder = folder()?;
    Ok((serve(&folder, service).await?, serve(&folder, service).await?))
}

fn folder() -> Result<Folder> {
    let folder = Folder::empty()?;
    for (name, text) in TICKER {
        folder.write(name, text)?;
    }
    folder.write("slow/root_agent.yaml", "name: slow\nmodel: scripted:slow/answers.yaml\ninstruction: Echo.\n")?;
    folder.write("slow/answers.yaml", "turns:\n  - delay_ms: 700\n    reply: 'You said {user}.'\n")?;
    Ok(folder)
}

async fn transcript(host: &Host, app: &str) -> Result<Vec<String>> {
    let events = events_in(&host.session(app, "s").await?)?;
    Ok(events.iter().map(event::text).collect())
}

async fn messages_to_two_hosts_are_answered_one_after_the_other(service: Option<&str>) -> Result<()> {
    let (one, two) = two_hosts(service).await?;
    one.create_session("slow", "s").await?;
    let answer = |text: &str| format!("You said {text}.");
    let reply = |text: &str| vec![text.to_owned(), answer(text)];
    let (first, second) = tokio::join!(one.run("slow", "s", "ONE"), two.run("slow", "s", "TWO"));
    let (first, second) = (first?, second?);
    assert_eq!((event::texts(&first), event::texts(&second)), (vec![answer("ONE")], vec![answer("TWO")]));
    let stored = transcript(&one, "slow").await?;
    let orders = [[reply("ONE"), reply("TWO")].concat(), [reply("TWO"), reply("ONE")].concat()];
    assert!(orders.contains(&stored), "{stored:?}");
    Ok(())
}

async fn another_host_continues_the_session_of_a_killed_one(service: Option<&str>) -> Result<()> {
    let (one, two) = two_hosts(service).await?;
    one.create_session("ticker", "s").await?;
    let mut ticks = one.stream("ticker", "s", "go", false).await?;
    ticks.next().await?.context("the ticks do not end")?;
    one.kill().await?;
    let answer = two.run("ticker", "s", "enough").await?;
    assert!(event::tool_response(&answer, "exit_loop").is_ok(), "{answer:?}");
    Ok(())
}

async fn a_frozen_host_loses_its_turn_and_reports_it_to_its_client(service: Option<&str>) -> Result<()> {
    let (one, two) = two_hosts(service).await?;
    one.create_session("ticker", "s").await?;
    let mut stream = one.stream("ticker", "s", "go", false).await?;
    stream.next().await?.context("the ticks do not end")?;
    one.signal("-STOP").await?;
    let answer = two.run("ticker", "s", "enough").await?;
    assert!(event::tool_response(&answer, "exit_loop").is_ok(), "{answer:?}");
    let before = events_in(&two.session("ticker", "s").await?)?;
    one.signal("-CONT").await?;
    let mut last: Option<Value> = None;
    while let Some(message) = stream.next().await? {
        last = Some(message);
    }
    let last = last.context("the stream says why it ends")?;
    assert_eq!(last.get("code"), Some(&"TURN_TAKEN_OVER".into()), "{last}");
    assert_eq!(events_in(&two.session("ticker", "s").await?)?, before, "nothing was stored late");
    // The session can be used on both hosts.
    for host in [&one, &two] {
        host.run("ticker", "s", "enough").await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_run_continues_when_its_database_was_killed_and_started_again() -> Result<()> {
    let Some(mut server) = PostgresServer::start(&[]) else { return Ok(()) };
    let uri = server.uri();
    let folder = folder()?;
    let host = serve(&folder, Some(&uri)).await?;
    host.create_session("ticker", "s").await?;
    let mut ticks = host.stream("ticker", "s", "go", false).await?;
    let mut received = Vec::new();
    for killed in [true, false] {
        for _ in 0..5 {
            let tick = ticks.next().await?.context("the ticks do not end")?;
            received.push(tick["id"].clone());
        }
        if killed {
            server.kill();
            server.restart();
        }
    }
    host.kill().await?;
    let next = serve(&folder, Some(&uri)).await?;
    let stored: Vec<Value> =
        events_in(&next.session("ticker", "s").await?)?.iter().map(|event| event["id"].clone()).collect();
    let kept: Vec<_> = stored.iter().filter(|id| received.contains(id)).cloned().collect();
    assert_eq!(kept, received, "every event that a client has received is stored, once and in order");
    Ok(())
}
