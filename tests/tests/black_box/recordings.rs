//! Recording and replaying sessions, by `hatchery run` and `hatchery test` and by plugins of a server.

use anyhow::{Result, ensure};
use hatchery_tests::event::{self, text_at};
use hatchery_tests::host::{USER, session_path};
use hatchery_tests::{Folder, Host};
use serde_json::json;

use crate::cli::hatchery;

const AGENT: &str = "\
name: helper
model: scripted:helper/answers.yaml
instruction: Help in few words.
tools:
  - name: load_memory
";

const ANSWERS: &str = "\
turns:
  - when: { tool: load_memory }
    reply: I remember nothing.
  - when: { user: remember }
    reply: [{ call: { name: load_memory, args: { query: hats } } }]
  - reply: At your service.
";

/// Creates an app with a recorded session, whose script is used up.
async fn folder_with_recording() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("helper/root_agent.yaml", AGENT)?;
    folder.write("helper/answers.yaml", ANSWERS)?;
    let record = ["run", ".", "helper", "-m", "Do you remember hats?", "--record", "helper/recorded/hats"];
    let output = hatchery(&folder.served(), &record).await?;
    ensure!(output.success && output.stdout.contains("I remember nothing."), "{}{}", output.stdout, output.stderr);
    ensure!(folder.file("helper/recorded/hats/generated-recordings.yaml").is_file(), "it is recorded");
    folder.remove("helper/answers.yaml")?;
    Ok(folder)
}

#[tokio::test]
async fn a_recorded_session_replays_without_its_model() -> Result<()> {
    let folder = folder_with_recording().await?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    ensure!(output.success, "{}{}", output.stdout, output.stderr);
    let file = "./helper/recorded/hats/generated-recordings.yaml";
    assert_eq!(output.stdout, format!("✓ helper {file}\n1 passed, 0 failed\n"));
    Ok(())
}

#[tokio::test]
async fn plugins_record_and_replay_served_sessions_below_the_folder_of_their_file() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("helper/root_agent.yaml", AGENT)?;
    folder.write("helper/answers.yaml", ANSWERS)?;
    folder.write("hatchery.yaml", "plugins: [{name: recorder, args: {folder: recorded, sessions: all}}]")?;
    let host = Host::serve(&folder).await?;
    host.ask("helper", "original", "Do you remember hats?").await?;
    ensure!(host.stop().await?, "it stops without violation");
    folder.remove("helper/answers.yaml")?;
    folder.write("hatchery.yaml", "plugins: [{name: adk_replay, args: {folder: recorded}}]")?;
    let host = Host::serve(&folder).await?;
    let replayed = json!({"dir": format!("helper/{USER}/original"), "user_message_index": 0});
    let state = json!({"state": {"_adk_replay_config": replayed}});
    host.post(&session_path("helper", "again"), &state).await?.json(200)?;
    let events = host.run("helper", "again", "Do you remember hats?").await?;
    assert_eq!(event::texts(&events), ["I remember nothing."]);
    Ok(())
}

#[tokio::test]
async fn a_changed_model_request_fails_with_a_diff() -> Result<()> {
    let folder = folder_with_recording().await?;
    folder.write("helper/root_agent.yaml", AGENT.replace("few words", "verse"))?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(!output.success, "its exit code says so");
    for line in [
        "  turn 1: \"Do you remember hats?\"",
        "    ✗ the run failed: REPLAY_MISMATCH: agent `helper`: message 0, call 0: the model request differs from the recorded one",
        "      --- recorded",
        "      +++ now",
        "      -    \"system_instruction\": \"Help in few words.\\n",
        "      +    \"system_instruction\": \"Help in verse.\\n",
        "0 passed, 1 failed",
    ] {
        assert!(output.stdout.lines().any(|it| it == line), "{line} is not in {}", output.stdout);
    }
    let report = hatchery(&folder.served(), &["test", ".", "--json"]).await?.json()?;
    assert_eq!(report["failed"], 1, "{report}");
    let problem = text_at(&report, "/conversations/0/turns/0/problems/0");
    assert!(problem.contains("+    \"system_instruction\": \"Help in verse."), "{problem}");
    Ok(())
}

#[tokio::test]
async fn a_recording_without_an_app_is_named() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("helper/root_agent.yaml", AGENT)?;
    folder.write("helper/generated-recordings.yaml", "recordings: []\n")?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(!output.success);
    assert!(output.stdout.contains("the file has no `app` or no `user_messages`"), "{}", output.stdout);
    folder.write("helper/generated-recordings.yaml", "recordings: [{}]\n")?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(!output.success);
    let expected = "generated-recordings.yaml: recordings[0]: missing field `user_message_index`";
    assert!(output.stdout.contains(expected), "{}", output.stdout);
    Ok(())
}

#[tokio::test]
async fn a_folder_without_recordings_is_named() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("helper/root_agent.yaml", AGENT)?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(!output.success);
    let expected = "no conversation.yaml, generated-recordings.yaml or APP/tests/NAME.json found in . or below it";
    assert!(output.stderr.contains(expected), "{}", output.stderr);
    Ok(())
}

/// A session of the app `helper`, which remembers nothing.
const SESSION: &str = r#"{"events": [
    {"author": "user", "content": {"role": "user", "parts": [{"text": "Do you remember hats?"}]}},
    {"author": "helper", "content": {"role": "model", "parts": [
        {"functionCall": {"id": "c1", "name": "load_memory", "args": {"query": "hats"}}}]}},
    {"author": "helper", "content": {"role": "user", "parts": [
        {"functionResponse": {"id": "c1", "name": "load_memory", "response": {"memories": []}}}]}},
    {"author": "helper", "content": {"role": "model", "parts": [{"text": "ANSWER"}]}}
]}"#;

#[tokio::test]
async fn a_session_in_the_folder_of_tests_is_run_without_its_model() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("helper/root_agent.yaml", AGENT)?;
    folder.write("helper/tests/hats.json", SESSION)?;
    // No app has this folder.
    folder.write("other/tests/fixture.json", "[]")?;
    for (dir, file) in [(".", "./helper/tests/hats.json"), ("helper", "helper/tests/hats.json")] {
        let output = hatchery(&folder.served(), &["test", dir]).await?;
        ensure!(output.success, "{}{}", output.stdout, output.stderr);
        assert_eq!(output.stdout, format!("✓ helper {file}\n1 passed, 0 failed\n"));
    }
    // The recording has no second answer.
    let shorter = SESSION.replace(r#""role": "model", "parts": [{"text""#, r#""role": "user", "parts": [{"text""#);
    folder.write("helper/tests/hats.json", shorter)?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(!output.success, "its exit code says so");
    for line in [
        "  turn 1: \"Do you remember hats?\"",
        "    ✗ agent `helper` called its model, but has no more recorded answers",
        "      -        \"text\": \"ANSWER\"",
        "0 passed, 1 failed",
    ] {
        assert!(output.stdout.lines().any(|it| it == line), "{line:?} is not in {}", output.stdout);
    }
    Ok(())
}

#[tokio::test]
async fn a_file_of_tests_that_is_not_a_session_fails() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("helper/root_agent.yaml", AGENT)?;
    folder.write("helper/tests/hats.json", "{}")?;
    let output = hatchery(&folder.served(), &["test", "."]).await?;
    assert!(!output.success);
    let expected = "    hats.json is not a test: missing field `events`";
    assert!(output.stdout.lines().any(|line| line.starts_with(expected)), "{}", output.stdout);
    Ok(())
}
