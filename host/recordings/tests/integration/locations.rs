//! Locations of recordings: set by the program, by configuration or by the state of a session.

use std::sync::Arc;

use hatchery_core::{Content, JsonMap, Plugin, RunError};
use hatchery_engine::{Factories, RunRequest};
use hatchery_models::scripted::Scripted;
use hatchery_recordings::{FILE_NAME, PLUGIN_NAMES, Recorder, Replayer, register};
use serde_json::{Value, json};

use crate::support::*;

async fn run_with_state(app: &Harness, text: &str, state: Value) -> Result<Vec<String>, RunError> {
    let request = RunRequest { state_delta: map(state), ..app.request(Content::user(text)) };
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await?;
    Ok(events.iter().map(|event| brief(event)).collect())
}

#[tokio::test]
async fn a_session_is_recorded_and_replayed_if_its_state_requests_it() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::on_demand(folder.path()));
    let app = with_plugins(Harness::new(counter(script(), count_tool())).await, vec![recorder]);
    let config = json!({"dir": "cases/one", "user_message_index": 0});
    let transcript = run_with_state(&app, "count", json!({"_adk_recordings_config": config})).await.unwrap();
    let file = read_recording(&folder.path().join("cases/one"));
    assert_eq!(file.user_messages[0].state_delta, JsonMap::new(), "the state key of the request is not recorded");

    let replay = Arc::new(Replayer::on_demand(folder.path()));
    let again = with_plugins(Harness::new(counter(no_replies(), never_called("count"))).await, vec![replay]);
    assert_eq!(run_with_state(&again, "count", json!({"_adk_replay_config": config})).await.unwrap(), transcript);
}

#[tokio::test]
async fn sessions_without_the_state_key_are_not_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let plugins: Vec<Arc<dyn Plugin>> =
        vec![Arc::new(Recorder::on_demand(folder.path())), Arc::new(Replayer::on_demand(folder.path()))];
    let app = with_plugins(Harness::new(llm("root", Scripted::new().default_reply("hello"))).await, plugins);
    assert_eq!(app.transcript("hi").await, ["root: hello"]);
    let off = json!({"_adk_recordings_config": null, "_adk_replay_config": null});
    assert_eq!(run_with_state(&app, "hi", off).await.unwrap(), ["root: hello"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn clients_can_only_name_folders_below_the_operators_folder() {
    let folder = tempfile::tempdir().unwrap();
    for key in ["_adk_recordings_config", "_adk_replay_config"] {
        for dir in ["../elsewhere", "/etc", "a/../../b", ".", ""] {
            let plugins: Vec<Arc<dyn Plugin>> =
                vec![Arc::new(Recorder::on_demand(folder.path())), Arc::new(Replayer::on_demand(folder.path()))];
            let app = with_plugins(Harness::new(llm("root", no_replies())).await, plugins);
            let config = json!({"dir": dir, "user_message_index": 0});
            let error = run_with_state(&app, "hi", json!({key: config})).await.unwrap_err();
            assert_eq!(error.code(), "BAD_INPUT");
            let expected = format!("state key `{key}`: `dir` is `{dir}`, but must be a relative path without `..`");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }
}

#[tokio::test]
async fn errors_of_a_replay_name_the_key_or_the_file() {
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
        let app = with_plugins(Harness::new(llm("root", no_replies())).await, vec![replay]);
        let error = run_with_state(&app, "hi", json!({"_adk_replay_config": config})).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[tokio::test]
async fn each_session_has_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let args = map(json!({"folder": folder.path(), "sessions": "all"}));
    let recorder = Arc::new(Recorder::from_args(args).unwrap());
    let app = with_plugins(Harness::new(llm("root", Scripted::new().default_reply("hello"))).await, vec![recorder]);
    app.runner.services().sessions.create("app", USER, Some("s/2"), JsonMap::new()).await.unwrap();
    app.run("one").await;
    let request = RunRequest::new(USER, "s/2", Content::user("two"));
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    for (session, text) in [("s1", "one"), ("s%2f2", "two")] {
        let file = read_recording(&folder.path().join("app").join(USER).join(session));
        assert_eq!(file.user_messages[0].content.text(), text);
    }
}

#[tokio::test]
async fn a_session_with_a_long_id_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = Arc::new(Recorder::all_sessions(folder.path()));
    let app = with_plugins(Harness::new(llm("root", Scripted::new().default_reply("hello"))).await, vec![recorder]);
    let id = "ä".repeat(128);
    app.runner.services().sessions.create("app", USER, Some(&*id), JsonMap::new()).await.unwrap();
    let request = RunRequest::new(USER, &*id, Content::user("one"));
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let mut path = folder.path().join("app").join(USER);
    for (number, part) in "%c3%a4".repeat(128).as_bytes().chunks(254).enumerate() {
        let prefix = if number == 0 { "" } else { "~" };
        path.push(format!("{prefix}{}", std::str::from_utf8(part).unwrap()));
    }
    assert_eq!(read_recording(&path).user_messages[0].content.text(), "one");
}

#[tokio::test]
async fn the_recorder_of_a_single_session_rejects_another_session() {
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
fn the_plugins_are_registered_by_name() {
    let mut plugins = Factories::default();
    register(&mut plugins);
    let create = |name: &str, args| plugins.create(name, map(args)).unwrap().map(|plugin| plugin.name().to_owned());
    assert_eq!(create("recorder", json!({"folder": "x", "sessions": "all"})), Ok("recorder".into()));
    for name in ["adk_replay", "replay"] {
        assert_eq!(create(name, json!({"folder": "x"})), Ok("adk_replay".into()));
    }
    for (name, args, message) in [
        ("recorder", json!({}), "missing field `folder`"),
        ("recorder", json!({"folder": "a", "dir": "b"}), "unknown field `dir`, expected `folder` or `sessions`"),
        ("recorder", json!({"folder": "a", "sessions": "one"}), "unknown variant `one`, expected `on_demand` or `all`"),
        ("adk_replay", json!({"folder": 3}), "invalid type: integer `3`, expected path string"),
        ("replay", json!({"folder": "a", "sessions": "all"}), "unknown field `sessions`, expected `folder`"),
    ] {
        assert_eq!(create(name, args), Err(message.into()));
    }
    assert!(PLUGIN_NAMES.iter().all(|name| plugins.contains(name)));
}
