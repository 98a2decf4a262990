//! The plugin that plays recorded sessions back.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    CallContext, Callback, Content, FunctionCall, JsonMap, LlmRequest, LlmResponse, Model, ModelError, ModelErrorKind,
    Plugin, ResponseStream, RunError, StreamingMode, Tool, ToolError,
};
use serde::Deserialize;
use serde_json::Value;

use super::cursor::{Answer, Cursor, Found, Mismatch};
use super::place::{Place, REPLAY_KEY};
use super::runs::Runs;
use super::wrapped::{Answers, Wrapped};
use super::{Recordings, ToolCall, ToolOutcome};
use crate::llm::transfer;
use crate::tools::builtin::exit_loop;

/// The code of a run that is not the recorded one.
const MISMATCH: &str = "REPLAY_MISMATCH";
/// How long a call that was stopped in the recording waits for being stopped again.
const STOPPED: Duration = Duration::from_secs(5);

/// Answers in the place of models and tools as they are recorded, and ends a run with an error when it asks for something else, for more,
/// or for less. Neither a model nor a tool is called; what a tool did to the state, it does again.
pub struct Replay {
    place: Place,
    runs: Runs<Playing>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    folder: PathBuf,
}

impl Replay {
    /// Replays the recording in this folder in every session, message by message.
    pub fn of_folder(folder: impl Into<PathBuf>) -> Self {
        Self { place: Place::Folder(folder.into()), runs: Runs::default() }
    }

    /// Replays in the sessions whose state has the key `_adk_replay_config`, `{"dir": …, "user_message_index": …}`, that message of the
    /// recording in that folder below this one.
    pub fn on_demand(folder: impl Into<PathBuf>) -> Self {
        Self { place: Place::OnDemand(folder.into(), REPLAY_KEY), runs: Runs::default() }
    }

    /// From the arguments of a configuration: `folder`, below which clients may name recordings.
    ///
    /// # Errors
    /// When the argument is missing or there are others.
    pub fn from_args(args: JsonMap) -> Result<Self, serde_json::Error> {
        serde_json::from_value(args.into()).map(|Args { folder }| Self::on_demand(folder))
    }

    /// The mismatch that has ended the run, also where a callback would make up for it.
    fn check(&self, cx: &CallContext) -> Result<(), RunError> {
        let failure = self.runs.get(cx).and_then(|playing| playing.state().failure.clone());
        failure.map_or(Ok(()), |mismatch| Err(mismatch.into()))
    }
}

impl From<Mismatch> for RunError {
    fn from(Mismatch { agent, message }: Mismatch) -> Self {
        Self::Agent { agent, code: MISMATCH.into(), message }
    }
}

#[async_trait]
impl Callback for Replay {
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
impl Plugin for Replay {
    /// What is recorded of a tool is its answer, also when the tool is an agent.
    fn follows_into_tools(&self) -> bool {
        false
    }

    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let Some(case) = self.place.case(cx)? else { return Ok(None) };
        let wrong = |error: &dyn std::fmt::Display| RunError::BadInput(format!("{}: {error}", case.shown));
        let text = tokio::fs::read_to_string(&case.file).await.map_err(|error| wrong(&error))?;
        let recordings = Recordings::parse(&text).map_err(|error| wrong(&error))?;
        let cursor = Cursor::new(recordings, case.user_message_index);
        self.runs.begin(cx, Playing(Mutex::new(State { cursor, failure: None })));
        Ok(None)
    }

    fn model(
        &self,
        cx: &CallContext,
        _: &str,
        found: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        match self.runs.get(cx) {
            // It needs not even be found: a replay goes without keys.
            Some(playing) => Ok(Arc::new(PlayedModel { playing, cx: cx.clone() })),
            None => found,
        }
    }

    fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        match self.runs.get(cx) {
            Some(playing) => Arc::new(Wrapped { tool, answers: PlayedTool { playing } }),
            None => tool,
        }
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        self.check(cx)?;
        let leftovers = self.runs.end(cx).and_then(|playing| playing.state().cursor.leftovers());
        leftovers.map_or(Ok(()), |mismatch| Err(mismatch.into()))
    }

    async fn on_run_error(&self, cx: &CallContext, _: &RunError) {
        self.runs.end(cx);
    }
}

/// A run that is being replayed.
struct Playing(Mutex<State>);

struct State {
    cursor: Cursor,
    /// The first mismatch; the run is over with it.
    failure: Option<Mismatch>,
}

impl Playing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock_unpoisoned()
    }

    /// What the recording has for a call, once a call that was stopped in it has waited for being stopped.
    async fn find<T>(
        &self,
        cx: &CallContext,
        find: impl FnOnce(&mut Cursor) -> Result<Found<T>, Mismatch>,
    ) -> Result<T, Mismatch> {
        let found = {
            let mut state = self.state();
            match state.failure.clone() {
                Some(failure) => Err(failure),
                None => find(&mut state.cursor),
            }
        };
        let mismatch = match found {
            Ok(Found::Answer(answer)) => return Ok(answer),
            Ok(Found::Cancelled) => {
                cx.invocation.cancel.cancel();
                futures::future::pending().await
            }
            Ok(Found::Stopped(mismatch)) => {
                tokio::time::sleep(STOPPED).await;
                mismatch
            }
            Err(mismatch) => mismatch,
        };
        self.state().failure.get_or_insert(mismatch.clone());
        Err(mismatch)
    }
}

/// A model that answers as it is recorded.
struct PlayedModel {
    playing: Arc<Playing>,
    cx: CallContext,
}

#[async_trait]
impl Model for PlayedModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let ask = |cursor: &mut Cursor| cursor.ask(&self.cx.agent, &request);
        let found = self.playing.find(&self.cx, ask).await;
        let Answer { response, error } = found
            .map_err(|mismatch| ModelError::new(ModelErrorKind::BadRequest, &request.model, mismatch.to_string()))?;
        let partial = streaming_mode == StreamingMode::On || error.is_some();
        let response = response.map(|response| Ok(LlmResponse { partial, ..response }));
        let items: Vec<_> = response.into_iter().chain(error.map(Err)).collect();
        Ok(futures::stream::iter(items).boxed())
    }
}

/// Answers the calls of a tool as they are recorded.
struct PlayedTool {
    playing: Arc<Playing>,
}

#[async_trait]
impl Answers for PlayedTool {
    async fn call(&self, tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let name = tool.declaration().name.clone();
        let call = FunctionCall {
            id: cx.function_call_id.as_deref().map(Into::into),
            name: name.clone(),
            args: args.clone(),
            ..FunctionCall::default()
        };
        let found = self.playing.find(cx, |cursor| cursor.call(&cx.agent, &call)).await;
        let recorded = found.map_err(|mismatch| ToolError::Fatal {
            tool: name.clone(),
            code: MISMATCH.into(),
            message: mismatch.to_string(),
        })?;
        let ToolCall { outcome, actions, .. } = &recorded;
        match actions {
            Some(actions) => cx.actions().merge(actions.clone()),
            // Recordings made elsewhere do not say whom the run was handed over to, or that a loop has ended.
            None if [transfer::TRANSFER, exit_loop::NAME].contains(&name.as_str()) => {
                tool.call(args, cx).await?;
            }
            None => {}
        }
        match outcome {
            ToolOutcome::Answered(response) => Ok(Value::Object(response.response.clone())),
            ToolOutcome::AnsweredBare(response) => Ok(response.response.get("result").cloned().unwrap_or_default()),
            ToolOutcome::Failed(error) => Err(error.clone()),
            ToolOutcome::NothingYet | ToolOutcome::Stopped => Ok(Value::Null),
        }
    }
}
