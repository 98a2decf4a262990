//! Which sessions are recorded and replayed, and where: as code, configuration or a session's state says.

use std::sync::Arc;

use hatchery_core::{Content, JsonMap, Plugin, RunError};
use hatchery_engine::RunRequest;
use hatchery_engine::plugins::recordings::FILE_NAME;
use hatchery_engine::plugins::{Recorder, Replayer};
use hatchery_models::scripted::Scripted;
use serde_json::{Value, json};

use crate::recordings::{counter, counting, plugged, recorded, recording, script, silent, untouched};
use crate::support::*;

async fn said_with(app: &Harness, text: &str, state: Value) -> Result<Vec<String>, RunError> {
    let request = RunRequest { state_delta: map(state), ..app.request(Content::user(text)) };
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await?;
    Ok(events.iter().map(|event| brief(event)).collect())
}

#[tokio::test]
async fn a_session_is_recorded_and_replayed_when_its_state_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::on_demand(folder.path()));
    let app = plugged(Harness::new(counter(script(), counting())).await, vec![recorder]);
    let case = json!({"dir": "cases/one", "user_message_index": 0});
    let said = said_with(&app, "count", json!({"_adk_recordings_config": case})).await.unwrap();
    let file = recorded(&folder.path().join("cases/one"));
    assert_eq!(file.user_messages[0].state_delta, JsonMap::new(), "what has it recorded is not part of it");

    let replay = Arc::new(Replayer::on_demand(folder.path()));
    let again = plugged(Harness::new(counter(silent(), untouched("count"))).await, vec![replay]);
    assert_eq!(said_with(&again, "count", json!({"_adk_replay_config": case})).await.unwrap(), said);
}

#[tokio::test]
async fn sessions_that_do_not_ask_for_it_are_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let plugins: Vec<Arc<dyn Plugin>> =
        vec![Arc::new(Recorder::on_demand(folder.path())), Arc::new(Replayer::on_demand(folder.path()))];
    let app = plugged(Harness::new(llm("root", Scripted::new().default_reply("hello"))).await, plugins);
    assert_eq!(app.transcript("hi").await, ["root: hello"]);
    let off = json!({"_adk_recordings_config": null, "_adk_replay_config": null});
    assert_eq!(said_with(&app, "hi", off).await.unwrap(), ["root: hello"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn clients_name_folders_only_below_that_of_the_operator() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["_adk_recordings_config", "_adk_replay_config"] {
        for dir in ["../elsewhere", "/etc", "a/../../b", ".", ""] {
            let plugins: Vec<Arc<dyn Plugin>> =
                vec![Arc::new(Recorder::on_demand(folder.path())), Arc::new(Replayer::on_demand(folder.path()))];
            let app = plugged(Harness::new(llm("root", silent())).await, plugins);
            let config = json!({"dir": dir, "user_message_index": 0});
            let error = said_with(&app, "hi", json!({key: config})).await.unwrap_err();
            assert_eq!(error.code(), "BAD_INPUT");
            let expected = format!("state key `{key}`: `dir` is `{dir}`, but must be a relative path without `..`");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_replay_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("bad")).unwrap();
    std::fs::write(folder.path().join("bad").join(FILE_NAME), "recordings: [{agent_name: a}]").unwrap();
    let file = |dir: &str| json!({"dir": dir, "user_message_index": 0});
    for (config, expected) in [
        (json!({"dir": "x"}), "state key `_adk_replay_config`: missing field `user_message_index`"),
        (json!("x"), "state key `_adk_replay_config`: "),
        (file("missing"), "missing/generated-recordings.yaml: No such file"),
        (file("bad"), "bad/generated-recordings.yaml: recordings[0]: missing field `user_message_index`"),
    ] {
        let replay = Arc::new(Replayer::on_demand(folder.path()));
        let app = plugged(Harness::new(llm("root", silent())).await, vec![replay]);
        let error = said_with(&app, "hi", json!({"_adk_replay_config": config})).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn each_session_has_a_file_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let args = map(json!({"folder": folder.path(), "sessions": "all"}));
    let recorder = Arc::new(Recorder::from_args(args).unwrap());
    let app = plugged(Harness::new(llm("root", Scripted::new().default_reply("hello"))).await, vec![recorder]);
    app.runner.services().sessions.create("app", USER, Some("s/2"), JsonMap::new()).await.unwrap();
    app.run("one").await;
    let request = RunRequest::new(USER, "s/2", Content::user("two"));
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    for (session, text) in [("s1", "one"), ("s%2f2", "two")] {
        let file = recorded(&folder.path().join("app").join(USER).join(session));
        assert_eq!(file.user_messages[0].content.text(), text);
    }
}

#[tokio::test]
async fn the_recorder_of_one_session_refuses_another() {
    let folder = tempfile::tempdir().unwrap();
    let app = recording(&folder, llm("root", Scripted::new().default_reply("hello"))).await;
    app.run("one").await;
    app.runner.services().sessions.create("app", USER, Some("s2"), JsonMap::new()).await.unwrap();
    let request = RunRequest::new(USER, "s2", Content::user("two"));
    let error = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap_err();
    assert!(
        error.to_string().ends_with("already contains the recording of another session; record into another folder"),
        "{error}"
    );
}

#[test]
fn arguments_are_checked() {
    let recorder = |args| Recorder::from_args(map(args)).map(|_| ()).map_err(|error| error.to_string());
    let replay = |args| Replayer::from_args(map(args)).map(|_| ()).map_err(|error| error.to_string());
    assert_eq!(recorder(json!({"folder": "x"})), Ok(()));
    assert_eq!(replay(json!({"folder": "x"})), Ok(()));
    assert_eq!(recorder(json!({})).unwrap_err(), "missing field `folder`");
    assert!(
        recorder(json!({"folder": "x", "sessions": "some"})).unwrap_err().contains("expected `on_demand` or `all`")
    );
    assert!(replay(json!({"folder": "x", "root": "y"})).unwrap_err().contains("unknown field `root`"));
}
