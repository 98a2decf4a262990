//! Apps that record and replay, and the agents that they run.

use std::path::Path;
use std::sync::Arc;

use hatchery_core::{Agent, Plugin, Tool};
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_recordings::{FILE_NAME, RecordedCall, Recorder, Recordings, Replayer};
pub use hatchery_test_support::*;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Replaces the plugins of an app.
pub fn with_plugins(mut app: Harness, plugins: Vec<Arc<dyn Plugin>>) -> Harness {
    app.runner = Runner::with_plugins(app.runner.services().clone(), Plugins::new(plugins).unwrap());
    app
}

/// Creates an app whose runs are recorded.
pub async fn recording(folder: &TempDir, root: Agent) -> Harness {
    with_plugins(Harness::new(root).await, vec![Arc::new(Recorder::single_session(folder.path()))])
}

/// Creates an app whose runs are replayed.
pub async fn replaying(folder: &TempDir, root: Agent) -> Harness {
    with_plugins(Harness::new(root).await, vec![Arc::new(Replayer::from_folder(folder.path()))])
}

pub fn read_recording(folder: &Path) -> Recordings {
    Recordings::parse(&std::fs::read_to_string(folder.join(FILE_NAME)).unwrap()).unwrap()
}

/// Formats the calls of a recording.
pub fn calls(recordings: &Recordings) -> Vec<String> {
    let calls = recordings.recordings.iter().map(|recording| {
        let call = match &recording.call {
            RecordedCall::Model(_) => "model".to_owned(),
            RecordedCall::Live(_) => "live".to_owned(),
            RecordedCall::Tool(tool) => format!("{}{}", tool.call.name, Value::Object(tool.call.args.clone())),
        };
        format!("{} {}: {call}", recording.user_message_index, recording.agent)
    });
    calls.collect()
}

/// A model that must not be called.
pub fn no_replies() -> Scripted {
    Scripted::sequence(Vec::<Reply>::new())
}

/// A tool that must not be called.
pub fn never_called(name: &str) -> Arc<dyn Tool> {
    tool(name, |_, _| panic!("a replay does not call tools"))
}

/// A tool that adds `by` to the state `count`.
pub fn count_tool() -> Arc<dyn Tool> {
    tool("count", |args, cx| {
        let count = cx.state("count").and_then(|count| count.as_i64()).unwrap_or(0);
        let by = args.get("by").and_then(Value::as_i64).unwrap_or(1);
        cx.set_state("count", json!(count + by));
        Ok(json!(count + by))
    })
}

/// An agent with one tool.
pub fn counter(model: Scripted, tool: Arc<dyn Tool>) -> Agent {
    llm_with("root", model, |llm| llm.tools = vec![tool])
}

/// Calls the tool with two, then replies with the result.
pub fn script() -> Scripted {
    Scripted::sequence([Reply::call("count", json!({"by": 2})), Reply::text("two")])
}

/// Changes a recording.
pub fn edit(folder: &TempDir, change: impl FnOnce(&mut Recordings)) {
    let mut file = read_recording(folder.path());
    change(&mut file);
    std::fs::write(folder.path().join(FILE_NAME), file.to_yaml().unwrap()).unwrap();
}
