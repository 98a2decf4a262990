//! Plugin that replays recorded sessions.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    CallContext, Callback, Content, FunctionCall, JsonMap, LiveConnection, LlmRequest, LlmResponse, Model,
    ModelCapabilities, ModelError, ModelErrorKind, Plugin, ResponseStream, RunError, StreamingMode, Tool, ToolError,
};
use serde::Deserialize;
use serde_json::Value;

use crate::cursor::{Cursor, Mismatch, ModelOutcome, RecordedOutcome};
use crate::intercepted_tool::{InterceptedTool, ToolInterceptor};
use crate::live::ReplayedConnection;
use crate::location::RecordingLocation;
use crate::run_map::RunMap;
use crate::user_messages::REPLAY_KEY;
use crate::{Recordings, ToolCall, ToolOutcome};

/// The error code of a run that differs from its recording.
const MISMATCH_CODE: &str = "REPLAY_MISMATCH";
/// Time that a call that was interrupted in the recording waits for the end of the run before it fails.
const INTERRUPTED_CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Tools that act on the run itself. They are called when a recording does not contain their actions.
const CONTROL_TOOLS: [&str; 2] = ["transfer_to_agent", "exit_loop"];

/// Answers calls of models and tools from a recording. The run fails if it makes another call than the recorded one, or
/// more or fewer calls. Neither models nor tools are called. The recorded actions of tools, such as state changes, are
/// applied again.
pub struct Replayer {
    location: RecordingLocation,
    runs: RunMap<ReplayRun>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    folder: PathBuf,
}

impl Replayer {
    /// Replays the recording in this folder in every session, message by message.
    pub fn from_folder(folder: impl Into<PathBuf>) -> Self {
        Self { location: RecordingLocation::Folder(folder.into()), runs: RunMap::default() }
    }

    /// Replays the sessions whose state has the key `_adk_replay_config` with the value `{"dir": …,
    /// "user_message_index": …}`. `dir` is a folder below `folder`, and the index is the position of the replayed
    /// message, counted from 0.
    pub fn on_demand(folder: impl Into<PathBuf>) -> Self {
        Self { location: RecordingLocation::OnDemand(folder.into(), REPLAY_KEY), runs: RunMap::default() }
    }

    /// Creates a replayer from the arguments in a configuration file: `folder`, the root of the folders that clients
    /// name.
    ///
    /// # Errors
    /// If the argument is missing or of the wrong type, or if there are others.
    pub fn from_args(args: JsonMap) -> Result<Self, serde_json::Error> {
        serde_json::from_value(args.into()).map(|Args { folder }| Self::on_demand(folder))
    }

    /// Fails if the run has differed from its recording. Called from error hooks, so that no callback can hide the
    /// mismatch.
    fn check(&self, cx: &CallContext) -> Result<(), RunError> {
        let mismatch = self.runs.get(cx).and_then(|run| run.state().mismatch.clone());
        mismatch.map_or(Ok(()), |mismatch| Err(mismatch.into()))
    }
}

impl From<Mismatch> for RunError {
    fn from(Mismatch { agent, message }: Mismatch) -> Self {
        Self::Agent { agent, code: MISMATCH_CODE.into(), message }
    }
}

#[async_trait]
impl Callback for Replayer {
    fn name(&self) -> &str {
        "adk_replay"
    }

    async fn on_model_error(
        &self,
        cx: &CallContext,
        _: &LlmRequest,
        _: &ModelError,
    ) -> Result<Option<LlmResponse>, RunError> {
        self.check(cx).map(|()| None)
    }

    async fn on_tool_error(
        &self,
        cx: &CallContext,
        _: &str,
        _: &JsonMap,
        _: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        self.check(cx).map(|()| None)
    }
}

#[async_trait]
impl Plugin for Replayer {
    /// Returns `false`: an agent that is called as a tool is recorded as the response of that tool.
    fn follows_into_tools(&self) -> bool {
        false
    }

    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let Some(location) = self.location.message(cx)? else { return Ok(None) };
        let bad_input =
            |error: &dyn std::fmt::Display| RunError::BadInput(format!("{}: {error}", location.display_name));
        let text = tokio::fs::read_to_string(&location.file).await.map_err(|error| bad_input(&error))?;
        let recordings = Recordings::parse(&text).map_err(|error| bad_input(&error))?;
        let cursor = Cursor::new(recordings, location.user_message_index);
        self.runs.insert(cx, ReplayRun(Mutex::new(ReplayState { cursor, mismatch: None })));
        Ok(None)
    }

    fn model(
        &self,
        cx: &CallContext,
        name: &str,
        resolved: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        match self.runs.get(cx) {
            // `resolved` may be an error: a replay needs no API keys. It needs the capabilities, to build the same
            // requests.
            Some(run) => {
                let models = &cx.invocation.services.models;
                let capabilities = resolved.map_or_else(|_| models.capabilities(name), |model| model.capabilities());
                Ok(Arc::new(ReplayModel { run, cx: cx.clone(), capabilities }))
            }
            None => resolved,
        }
    }

    fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        match self.runs.get(cx) {
            Some(run) => Arc::new(InterceptedTool { tool, interceptor: ToolReplayer { run } }),
            None => tool,
        }
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        self.check(cx)?;
        let missing_call = self.runs.remove(cx).and_then(|run| run.state().cursor.missing_call());
        missing_call.map_or(Ok(()), |mismatch| Err(mismatch.into()))
    }

    async fn on_run_error(&self, cx: &CallContext, _: &RunError) {
        self.runs.remove(cx);
    }
}

/// A run that is being replayed.
struct ReplayRun(Mutex<ReplayState>);

struct ReplayState {
    cursor: Cursor,
    /// The first mismatch. Every later call fails with it.
    mismatch: Option<Mismatch>,
}

impl ReplayRun {
    fn state(&self) -> MutexGuard<'_, ReplayState> {
        self.0.lock_unpoisoned()
    }

    /// Returns the recorded outcome of a call. If the call was interrupted in the recording, waits for the run to end.
    async fn next_outcome<T>(
        &self,
        cx: &CallContext,
        find: impl FnOnce(&mut Cursor) -> Result<RecordedOutcome<T>, Mismatch>,
    ) -> Result<T, Mismatch> {
        let outcome = {
            let mut state = self.state();
            match state.mismatch.clone() {
                Some(mismatch) => Err(mismatch),
                None => find(&mut state.cursor),
            }
        };
        let mismatch = match outcome {
            Ok(RecordedOutcome::Completed(outcome)) => return Ok(outcome),
            Ok(RecordedOutcome::Cancelled) => {
                cx.invocation.cancel.cancel();
                futures::future::pending().await
            }
            Ok(RecordedOutcome::Interrupted(mismatch)) => {
                tokio::time::sleep(INTERRUPTED_CALL_TIMEOUT).await;
                mismatch
            }
            Err(mismatch) => mismatch,
        };
        self.state().mismatch.get_or_insert(mismatch.clone());
        Err(mismatch)
    }
}

/// A model that responds from the recording.
struct ReplayModel {
    run: Arc<ReplayRun>,
    cx: CallContext,
    capabilities: ModelCapabilities,
}

#[async_trait]
impl Model for ReplayModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let outcome = self.run.next_outcome(&self.cx, |cursor| cursor.next_model_call(&self.cx.agent, &request)).await;
        let ModelOutcome { response, error } = outcome
            .map_err(|mismatch| ModelError::new(ModelErrorKind::BadRequest, &request.model, mismatch.to_string()))?;
        let partial = streaming_mode == StreamingMode::On || error.is_some();
        let response = response.map(|response| Ok(LlmResponse { partial, ..response }));
        let items: Vec<_> = response.into_iter().chain(error.map(Err)).collect();
        Ok(futures::stream::iter(items).boxed())
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let outcome = self.run.next_outcome(&self.cx, |cursor| cursor.next_live_call(&self.cx.agent, &request)).await;
        let model = request.model;
        let failed = move |mismatch: &Mismatch| ModelError::new(ModelErrorKind::Server, &model, mismatch.to_string());
        let call = outcome.map_err(|mismatch| failed(&mismatch))?;
        if let (Some(error), true) = (&call.error, call.steps.is_empty()) {
            return Err(error.clone());
        }
        let (run, agent) = (self.run.clone(), self.cx.agent.to_string());
        Ok(Box::new(ReplayedConnection::new(call, move |message| {
            let mismatch = Mismatch { agent: agent.clone(), message };
            failed(run.state().mismatch.get_or_insert(mismatch))
        })))
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }
}

/// Answers the calls of a tool from the recording.
struct ToolReplayer {
    run: Arc<ReplayRun>,
}

#[async_trait]
impl ToolInterceptor for ToolReplayer {
    async fn call(&self, tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let name = tool.declaration().name.clone();
        let call = FunctionCall {
            id: cx.function_call_id.as_deref().map(Into::into),
            name: name.clone(),
            args: args.clone(),
            ..FunctionCall::default()
        };
        let recorded = self.run.next_outcome(cx, |cursor| cursor.next_tool_call(&cx.agent, &call)).await;
        let ToolCall { outcome, actions, .. } = recorded.map_err(|mismatch| ToolError::Fatal {
            tool: name.clone(),
            code: MISMATCH_CODE.into(),
            message: mismatch.to_string(),
        })?;
        match actions {
            Some(actions) => cx.actions().merge(actions),
            None if CONTROL_TOOLS.contains(&name.as_str()) => {
                tool.call(args, cx).await?;
            }
            None => {}
        }
        match outcome {
            ToolOutcome::Object(response) => Ok(Value::Object(response.response)),
            ToolOutcome::Value(mut response) => Ok(response.response.remove("result").unwrap_or_default()),
            ToolOutcome::Error(error) => Err(error),
            ToolOutcome::Pending | ToolOutcome::Interrupted => Ok(Value::Null),
        }
    }
}
