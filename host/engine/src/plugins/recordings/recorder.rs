//! The plugin that records sessions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    CallContext, Callback, Content, FunctionCall, FunctionResponse, JsonMap, LlmRequest, Model, ModelError, Plugin,
    ResponseStream, RunError, StateScope, StoreError, StreamingMode, Tool, ToolError, WrapperModel,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::sync::Mutex;

use super::place::{Case, Place, RECORD_KEY};
use super::runs::Runs;
use super::tape::{Tape, changes};
use super::wrapped::{Answers, Wrapped};
use super::{Recordings, ToolOutcome, UserMessage, messages};
use crate::llm::{as_map, name_calls};
use crate::tasks::finished;

/// Writes down what models and tools are asked and what they answer. A session's file is written whole at the end of each run, also of one
/// that failed. It belongs before all other plugins: one that answers in its place would hide a run from it.
pub struct Recorder {
    place: Place,
    runs: Runs<Run>,
    /// Held while a file is read and written, since runs of several sessions may write to one.
    writing: Arc<Mutex<()>>,
}

/// A run that is being recorded.
struct Run {
    case: Case,
    app: String,
    /// The state before the user's message.
    initial_state: JsonMap,
    /// State of this run alone that came with the message.
    temporary: JsonMap,
    tape: Arc<Tape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    folder: PathBuf,
    #[serde(default)]
    sessions: Sessions,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sessions {
    #[default]
    OnDemand,
    All,
}

impl Recorder {
    /// Records one session, the first that runs, into this folder.
    pub fn of_one_session(folder: impl Into<PathBuf>) -> Self {
        Self::at(Place::OneSession(folder.into(), OnceLock::new()))
    }

    /// Records every session, each into `{app}/{user}/{session}` below this folder.
    pub fn of_each_session(folder: impl Into<PathBuf>) -> Self {
        Self::at(Place::EachSession(folder.into()))
    }

    /// Records the sessions whose state has the key `_adk_recordings_config`, `{"dir": …, "user_message_index": …}`: into that folder below
    /// this one, as that message, counted from 0.
    pub fn on_demand(folder: impl Into<PathBuf>) -> Self {
        Self::at(Place::OnDemand(folder.into(), RECORD_KEY))
    }

    /// From the arguments of a configuration: `folder`, and `sessions`, which is `on_demand` (the default) or `all`.
    ///
    /// # Errors
    /// When an argument is missing, unknown or of the wrong kind.
    pub fn from_args(args: JsonMap) -> Result<Self, serde_json::Error> {
        let args: Args = serde_json::from_value(args.into())?;
        Ok(match args.sessions {
            Sessions::OnDemand => Self::on_demand(args.folder),
            Sessions::All => Self::of_each_session(args.folder),
        })
    }

    fn at(place: Place) -> Self {
        Self { place, runs: Runs::default(), writing: Arc::default() }
    }

    /// Writes what has been recorded of a run that ends.
    fn write(
        &self,
        cx: &CallContext,
        error_code: Option<&str>,
    ) -> impl Future<Output = Result<(), RunError>> + Send + use<> {
        let ended = self.runs.end(cx).map(|run| {
            let mut said = messages::of_session(&cx.invocation.events());
            let mut answered = said.pop().unwrap_or_default();
            answered.state_delta.extend(run.temporary.clone());
            answered.error_code = error_code.map(Into::into);
            (run, said, answered)
        });
        let writing = self.writing.clone();
        async move {
            let Some((run, said, answered)) = ended else { return Ok(()) };
            let _writing = writing.lock().await;
            run.write(said, answered).await
        }
    }
}

impl Run {
    /// Writes the file anew: what it holds of earlier messages, and this run, which has `answered` the message after those that were
    /// `said`.
    async fn write(&self, said: Vec<UserMessage>, answered: UserMessage) -> Result<(), RunError> {
        let index = self.case.user_message_index;
        let mut recordings = match index {
            0 => Recordings { initial_state: self.initial_state.clone(), ..Recordings::default() },
            _ => read(&self.case).await?.unwrap_or_default(),
        };
        recordings.app = Some(self.app.clone());
        recordings.user_messages.truncate(index);
        let known = recordings.user_messages.len();
        recordings.user_messages.extend(said.into_iter().take(index).skip(known));
        recordings.user_messages.push(answered);
        recordings.recordings.retain(|recording| recording.user_message_index < index);
        recordings.recordings.extend(self.tape.take(index));
        let yaml = recordings.to_yaml().map_err(|error| RunError::Internal(error.to_string()))?;
        replace(&self.case.file, &yaml)
            .await
            .map_err(|error| StoreError::backend(format!("writing {}", self.case.file.display()), error).into())
    }
}

/// The recording as it is; nothing when there is none.
async fn read(case: &Case) -> Result<Option<Recordings>, RunError> {
    let text = match tokio::fs::read_to_string(&case.file).await {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::backend(format!("reading {}", case.file.display()), error).into()),
    };
    let recordings = Recordings::parse(&text)
        .map_err(|error| RunError::BadInput(format!("{}: {error}; move it away to record anew", case.shown)))?;
    Ok(Some(recordings))
}

/// Puts a file in its place in one step.
async fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    let unfinished = file.with_extension("yaml.unfinished");
    let mut new = tokio::fs::File::create(&unfinished).await?;
    new.write_all(text.as_bytes()).await?;
    new.sync_all().await?;
    tokio::fs::rename(&unfinished, file).await
}

#[async_trait]
impl Callback for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }
}

#[async_trait]
impl Plugin for Recorder {
    /// What is recorded of a tool is its answer, also when the tool is an agent.
    fn follows_into_tools(&self) -> bool {
        false
    }

    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let Some(case) = self.place.case(cx)? else { return Ok(None) };
        let said = messages::of_session(&cx.invocation.events());
        let set_now = said.last().map(|message| &message.state_delta);
        let (mut initial_state, mut temporary) = (JsonMap::new(), JsonMap::new());
        for (key, value) in cx.invocation.state().iter() {
            if StateScope::of(key).0 == StateScope::Temp {
                temporary.insert(key.into(), value.clone());
            } else if set_now.is_none_or(|set| !set.contains_key(key)) {
                initial_state.insert(key.into(), value.clone());
            }
        }
        let app = cx.invocation.session_key.app.to_string();
        let initial_state = messages::without_config(initial_state);
        self.runs.begin(cx, Run { case, app, initial_state, temporary, tape: Arc::default() });
        Ok(None)
    }

    fn model(
        &self,
        cx: &CallContext,
        _: &str,
        found: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        let model = found?;
        Ok(match self.runs.get(cx) {
            Some(run) => Arc::new(Recorded { model, agent: cx.agent.clone(), tape: run.tape.clone() }),
            None => model,
        })
    }

    fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        match self.runs.get(cx) {
            Some(run) => Arc::new(Wrapped { tool, answers: Recording { tape: run.tape.clone() } }),
            None => tool,
        }
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        finished(self.write(cx, None)).await
    }

    /// A run that is cancelled may not wait for its recording, so the recording does not depend on it.
    async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        let (written, invocation) = (self.write(cx, Some(error.code())), cx.invocation.id.clone());
        let _ = finished(async move {
            written
                .await
                .inspect_err(|failure| tracing::error!(%invocation, "the run could not be recorded: {failure}"))
        })
        .await;
    }

    /// Waits for what is being written.
    async fn close(&self) {
        drop(self.writing.lock().await);
    }
}

/// A model that is recorded.
struct Recorded {
    model: Arc<dyn Model>,
    agent: Arc<str>,
    tape: Arc<Tape>,
}

#[async_trait]
impl WrapperModel for Recorded {
    fn inner(&self) -> &dyn Model {
        self.model.as_ref()
    }

    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let tape = self.tape.clone();
        let slot = tape.ask(&self.agent, &request);
        let responses =
            self.model.generate(request, streaming_mode).await.inspect_err(|error| tape.failed(slot, error))?;
        let recorded = responses.map(move |mut response| {
            match &mut response {
                Ok(response) => {
                    // The ids that the engine would give to the calls later on, so that their answers are found by them.
                    name_calls(response);
                    tape.answered(slot, response);
                }
                Err(error) => tape.failed(slot, error),
            }
            response
        });
        Ok(recorded.boxed())
    }
}

/// Records the calls of a tool.
struct Recording {
    tape: Arc<Tape>,
}

#[async_trait]
impl Answers for Recording {
    async fn call(&self, tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let call = FunctionCall {
            id: cx.function_call_id.as_deref().map(Into::into),
            name: tool.declaration().name.clone(),
            args: args.clone(),
            ..FunctionCall::default()
        };
        let answer = FunctionResponse { id: call.id.clone(), name: call.name.clone(), ..FunctionResponse::default() };
        let slot = self.tape.call(&cx.agent, call);
        let before = cx.actions().clone();
        let result = tool.call(args, cx).await;
        let outcome = match &result {
            Ok(Value::Null) if tool.is_long_running() => ToolOutcome::NothingYet,
            Ok(Value::Object(map)) => ToolOutcome::Answered(FunctionResponse { response: map.clone(), ..answer }),
            Ok(bare) => ToolOutcome::AnsweredBare(FunctionResponse { response: as_map(bare.clone()), ..answer }),
            Err(error) => ToolOutcome::Failed(error.clone()),
        };
        self.tape.returned(slot, outcome, changes(&before, cx.actions().clone()));
        result
    }
}
