//! Components that trap, spin, allocate memory without end or return too much: the run reports it, and nothing else is
//! affected.

use anyhow::{Context, Result};
use hatchery_tests::event::{self, text_at, tool_response};
use hatchery_tests::host::{events_in, message};
use hatchery_tests::{Folder, Host, paths};
use serde_json::{Value, json};

const LIMITS: &str = "limits: {cpu: 300ms, wall: 2s, memory: 16MiB, result: 1MiB}\n";

/// An agent whose model calls the tool that is named in the user's message, and answers with the tool's response.
const CALLER: [(&str, &str); 2] = [
    (
        "caller/root_agent.yaml",
        "name: caller\nmodel: scripted:caller/answers.yaml\ninstruction: Call tools.\ntools:\n  - name: misbehaver/trap\n  \
         - name: misbehaver/spin\n  - name: misbehaver/allocate\n  - name: misbehaver/huge_result\n  \
         - name: misbehaver/slow\n  - name: misbehaver/echo\n  - name: misbehaver/fatal\n",
    ),
    (
        "caller/answers.yaml",
        "turns:\n\
         \x20 - when: {tool: [trap, spin, allocate, huge_result, slow, echo, fatal, nonsense]}\n    reply: \"it answered: {tool}\"\n\
         \x20 - when: {user: trap}\n    reply: [{call: {name: trap}}]\n\
         \x20 - when: {user: spin}\n    reply: [{call: {name: spin}}]\n\
         \x20 - when: {user: allocate}\n    reply: [{call: {name: allocate}}]\n\
         \x20 - when: {user: huge}\n    reply: [{call: {name: huge_result, args: {bytes: 3000000}}}]\n\
         \x20 - when: {user: slow}\n    reply: [{call: {name: slow, args: {millis: 60000}}}]\n\
         \x20 - when: {user: wrong}\n    reply: [{call: {name: slow, args: {millis: soon}}}]\n\
         \x20 - when: {user: fatal}\n    reply: [{call: {name: fatal}}]\n\
         \x20 - when: {user: nonsense}\n    reply: [{call: {name: nonsense}}]\n\
         \x20 - reply: [{call: {name: echo, args: {value: {deep: [1.5, null, \"ü\"]}}}}]\n",
    ),
];

async fn host(folder: &Folder) -> Result<Host> {
    folder.put("misbehaver.wasm", paths::component("misbehaver")?)?;
    folder.write("hatchery.yaml", LIMITS)?;
    for (name, text) in CALLER {
        folder.write(name, text)?;
    }
    Host::serve(folder).await
}

async fn check_health(host: &Host, session: &str) -> Result<()> {
    host.get("/health").await?.json(200)?;
    let events = host.ask("caller", session, "echo").await?;
    let answer = tool_response(&events, "echo")?;
    assert_eq!(*answer, json!({"value": {"deep": [1.5, null, "ü"]}}));
    Ok(())
}

/// Lets the model call the tool, and returns the error in the tool's response. The run must succeed.
async fn tool_error(host: &Host, word: &str, tool: &str) -> Result<String> {
    let events = host.ask("caller", word, word).await?;
    let error = text_at(tool_response(&events, tool)?, "/error").to_owned();
    let last = event::texts(&events).pop().context("a last word")?;
    assert!(last.starts_with("it answered: "), "the model got the error and the run continued: {last}");
    Ok(error)
}

#[tokio::test]
async fn any_failure_of_a_tool_is_reported_to_the_model() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    let trapped = tool_error(&host, "trap", "trap").await?;
    assert!(trapped.contains("tool `trap` of component `misbehaver` failed: it crashed"), "{trapped}");
    let spun = tool_error(&host, "spin", "spin").await?;
    assert!(spun.ends_with("300ms of CPU time"), "{spun}");
    let grown = tool_error(&host, "allocate", "allocate").await?;
    assert_eq!(grown, "tool `allocate` of component `misbehaver` failed: it exceeded its limit of 16 MiB of memory");
    host.wait_for_log("16 MiB of memory; raise `limits.memory` in hatchery.yaml to allow more").await?;
    let huge = tool_error(&host, "huge", "huge_result").await?;
    assert!(huge.ends_with("1 MiB in one result"), "{huge}");
    let slow = tool_error(&host, "slow", "slow").await?;
    assert!(slow.ends_with("2s of wall time"), "{slow}");
    let wrong = tool_error(&host, "wrong", "slow").await?;
    assert!(wrong.contains("millis"), "{wrong}");
    let nonsense = tool_error(&host, "nonsense", "nonsense").await?;
    assert!(nonsense.contains("nonsense"), "{nonsense}");
    check_health(&host, "after").await
}

/// Runs an app that fails after its first text. Checks `/run`, `/run_sse` and the session, and returns the error
/// message.
async fn run_error(host: &Host, app: &str, first_word: &str, status: u16, code: &str) -> Result<String> {
    host.create_session(app, "whole").await?;
    let answer = host.post("/run", &message(app, "whole", "go")).await?;
    let detail = answer.error(status, code)?;
    let yielded = events_in(&answer.json(status)?)?;
    let [first, failed] = yielded.as_slice() else { anyhow::bail!("{app}: a word and an error: {yielded:?}") };
    assert_eq!(event::text(first), first_word);
    assert_eq!(failed["errorCode"], code, "{failed}");
    assert_eq!(failed["errorMessage"], detail.as_str());

    host.create_session(app, "streamed").await?;
    let messages = host.stream(app, "streamed", "go", true).await?.collect().await?;
    let [.., event, last] = messages.as_slice() else { anyhow::bail!("{app}: an event and an error: {messages:?}") };
    assert_eq!(event["errorCode"], code);
    assert_eq!(*last, json!({"error": detail, "code": code}));

    let stored = events_in(&host.session(app, "whole").await?)?;
    assert_eq!(stored.get(1..), Some(yielded.as_slice()), "what was yielded is stored");
    Ok(detail)
}

#[tokio::test]
async fn an_agent_that_traps_fails_its_run_alone() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    let detail = run_error(&host, "trapping_agent", "about to trap", 500, "COMPONENT_TRAPPED").await?;
    assert!(detail.contains("component `misbehaver`: it crashed"), "{detail}");
    check_health(&host, "after").await
}

#[tokio::test]
async fn an_agent_that_spins_is_stopped_and_others_are_served_meanwhile() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    let spinning = async {
        let detail = run_error(&host, "spinning_agent", "about to spin", 500, "COMPONENT_CPU").await?;
        assert!(detail.ends_with("300ms of CPU time"), "{detail}");
        anyhow::Ok(())
    };
    let others = async {
        for turn in 0..5 {
            check_health(&host, &format!("meanwhile-{turn}")).await?;
        }
        anyhow::Ok(())
    };
    futures::try_join!(spinning, others)?;
    check_health(&host, "after").await
}

#[tokio::test]
async fn an_agent_can_report_its_failure() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    host.create_session("failing_agent", "s").await?;
    let answer = host.post("/run", &message("failing_agent", "s", "go")).await?;
    assert_eq!(answer.status, 500, "{}", answer.text);
    let body: Value = serde_json::from_str(&answer.text)?;
    assert!(text_at(&body, "/detail").contains("beyond repair"), "{body}");
    assert_eq!(event::text(&body["events"][0]), "about to fail");
    check_health(&host, "after").await
}

#[tokio::test]
async fn a_tool_may_end_the_run() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    host.create_session("caller", "s").await?;
    let answer = host.post("/run", &message("caller", "s", "fatal")).await?;
    assert_eq!(answer.status, 500, "{}", answer.text);
    assert!(answer.text.contains("beyond repair"), "{}", answer.text);
    check_health(&host, "after").await
}

#[tokio::test]
async fn a_callback_that_traps_fails_the_run_and_names_itself() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("watched/answers.yaml", "turns:\n  - reply: \"never said\"\n")?;
    folder.write(
        "watched/root_agent.yaml",
        "name: watched\nmodel: scripted:watched/answers.yaml\ninstruction: Answer.\n\
         before_agent_callbacks:\n  - name: misbehaver/trapping_callback\n",
    )?;
    let host = host(&folder).await?;
    host.create_session("watched", "s").await?;
    let answer = host.post("/run", &message("watched", "s", "go")).await?;
    assert_eq!(answer.status, 500, "{}", answer.text);
    let body: Value = serde_json::from_str(&answer.text)?;
    assert!(text_at(&body, "/detail").contains("misbehaver"), "{body}");
    assert!(!answer.text.contains("never said"), "{body}");
    check_health(&host, "after").await
}

#[tokio::test]
async fn many_concurrent_spinning_runs_are_stopped_and_the_host_keeps_serving() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    let runs = (0..16).map(async |run| {
        let session = format!("spin-{run}");
        host.create_session("spinning_agent", &session).await?;
        host.post("/run", &message("spinning_agent", &session, "go")).await?.error(500, "COMPONENT_CPU")
    });
    futures::future::try_join_all(runs).await?;
    check_health(&host, "after").await
}

#[tokio::test]
async fn a_component_has_what_its_calls_have_used_of_its_limits() -> Result<()> {
    let folder = Folder::empty()?;
    let host = host(&folder).await?;
    let usage = async || Ok::<_, anyhow::Error>(host.get("/components/misbehaver").await?.json(200)?["usage"].clone());
    assert_eq!(usage().await?, json!({"calls": 0, "limitHits": {}}), "describing it does not count");
    tool_error(&host, "spin", "spin").await?;
    tool_error(&host, "allocate", "allocate").await?;
    check_health(&host, "healthy").await?;
    let usage = usage().await?;
    assert_eq!((&usage["calls"], &usage["limitHits"]), (&json!(3), &json!({"limits.cpu": 1, "limits.memory": 1})));
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("{usage}"));
    assert!(number("/cpuSeconds/max")? >= 0.3 && number("/wallSeconds/max")? >= number("/cpuSeconds/p50")?, "{usage}");
    let memory = number("/memory/max")?;
    assert!(memory > 1_048_576.0 && memory <= 16.0 * 1_048_576.0, "{usage}");
    assert_eq!(usage.get("agentWallSeconds"), None, "no agent has run");
    Ok(())
}
