//! Plugin that records sessions.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    CallContext, Callback, Content, FunctionCall, FunctionResponse, JsonMap, LiveConnection, LlmRequest, Model,
    ModelError, Plugin, ResponseStream, RunError, StateScope, StoreError, StreamingMode, Tool, ToolError, WrapperModel,
};
use serde::Deserialize;
use serde_json::Value;
use tokio::fs;
use tokio::sync::Mutex;

use crate::call_recorder::{CallRecorder, added_actions};
use crate::clean_up::remove_temporary_files;
use crate::intercepted_tool::{InterceptedTool, ToolInterceptor};
use crate::live::RecordedConnection;
use crate::location::{MessageLocation, RecordingLocation};
use crate::run_map::RunMap;
use crate::user_messages::RECORD_KEY;
use crate::{Recordings, ToolOutcome, UserMessage, user_messages};
use hatchery_engine::llm::assign_call_ids;
use hatchery_engine::tasks::run_to_completion;
use hatchery_files::{FileAccess, write_atomically};

/// Records the requests and responses of models and tools. The file of a session is rewritten at the end of each run,
/// including failed runs. List it before all other plugins: it does not record a run that an earlier plugin answers.
///
/// A process that is killed while it writes leaves the previous file, and a hidden one whose name ends with
/// `.tmp`. At the end of its first run, a recorder removes those that are older than a day from its folder, and from
/// the folders below it if it writes there.
pub struct Recorder {
    location: RecordingLocation,
    has_cleaned_up: AtomicBool,
    runs: RunMap<ActiveRun>,
    /// Held while a file is read and written, because runs of several sessions may write to the same file.
    write_lock: Arc<Mutex<()>>,
}

/// A run that is being recorded.
struct ActiveRun {
    location: MessageLocation,
    app: String,
    /// The session's state before the user's message.
    initial_state: JsonMap,
    /// The `temp:` state that was sent with the message.
    temp_state: JsonMap,
    /// The number of messages of the user before the run.
    earlier_messages: usize,
    calls: Arc<CallRecorder>,
}

/// The user's messages up to and including those that a run has answered. A live run answers any number of them.
struct Conversation {
    earlier_messages: Vec<UserMessage>,
    answered_messages: Vec<UserMessage>,
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
    pub fn single_session(folder: impl Into<PathBuf>) -> Self {
        Self::new(RecordingLocation::SingleSession(folder.into(), OnceLock::new()))
    }

    /// Records every session, each into `{app}/{user}/{session}` below this folder.
    pub fn all_sessions(folder: impl Into<PathBuf>) -> Self {
        Self::new(RecordingLocation::FolderPerSession(folder.into()))
    }

    /// Records the sessions whose state has the key `_adk_recordings_config` with the value `{"dir": …,
    /// "user_message_index": …}`. `dir` is a folder below `folder`, and the index is the position of the recorded
    /// message, counted from 0.
    pub fn on_demand(folder: impl Into<PathBuf>) -> Self {
        Self::new(RecordingLocation::OnDemand(folder.into(), RECORD_KEY))
    }

    /// Creates a recorder from the arguments in a configuration file: `folder`, and `sessions`, which is `on_demand`
    /// (the default) or `all`.
    ///
    /// # Errors
    /// If an argument is missing, unknown or of the wrong type.
    pub fn from_args(args: JsonMap) -> Result<Self, serde_json::Error> {
        let args: Args = serde_json::from_value(args.into())?;
        Ok(match args.sessions {
            Sessions::OnDemand => Self::on_demand(args.folder),
            Sessions::All => Self::all_sessions(args.folder),
        })
    }

    fn new(location: RecordingLocation) -> Self {
        Self { location, has_cleaned_up: AtomicBool::new(false), runs: RunMap::default(), write_lock: Arc::default() }
    }

    /// Ends the recording of a run. The returned future writes the file and does not borrow from `self` or `cx`.
    fn finish_run(
        &self,
        cx: &CallContext,
        error_code: Option<&str>,
    ) -> impl Future<Output = Result<(), RunError>> + Send + use<> {
        let finished_run = self.runs.remove(cx).map(|run| {
            let mut earlier_messages = user_messages::collect(&cx.invocation.events());
            let count = run.earlier_messages.min(earlier_messages.len());
            let mut answered_messages = earlier_messages.split_off(count);
            if answered_messages.is_empty() {
                answered_messages.push(UserMessage::default());
            }
            if let Some(message) = answered_messages.first_mut() {
                message.state_delta.extend(run.temp_state.clone());
                message.error_code = error_code.map(Into::into);
            }
            (run, Conversation { earlier_messages, answered_messages })
        });
        let is_first = finished_run.is_some() && !self.has_cleaned_up.swap(true, Ordering::Relaxed);
        let (root, write_lock) = (is_first.then(|| self.location.root()), self.write_lock.clone());
        async move {
            let Some((run, conversation)) = finished_run else { return Ok(()) };
            let _guard = write_lock.lock().await;
            if let Some(root) = root {
                // Files that are left do no harm to the recording.
                let _ = tokio::task::spawn_blocking(move || remove_temporary_files(root)).await;
            }
            run.write(conversation).await
        }
    }
}

impl ActiveRun {
    /// Rewrites the file: keeps the recordings of earlier messages and adds this run.
    async fn write(&self, conversation: Conversation) -> Result<(), RunError> {
        let Conversation { earlier_messages, answered_messages } = conversation;
        let index = self.location.user_message_index;
        let mut recordings = match index {
            0 => Recordings { initial_state: self.initial_state.clone(), ..Recordings::default() },
            _ => read(&self.location).await?.unwrap_or_default(),
        };
        recordings.app = Some(self.app.clone());
        recordings.user_messages.truncate(index);
        let recorded_messages = recordings.user_messages.len();
        recordings.user_messages.extend(earlier_messages.into_iter().take(index).skip(recorded_messages));
        recordings.user_messages.extend(answered_messages);
        recordings.recordings.retain(|recording| recording.user_message_index < index);
        recordings.recordings.extend(self.calls.take(index));
        let yaml = recordings.to_yaml().map_err(|error| RunError::Internal(error.to_string()))?;
        let file = &self.location.file;
        write(file.clone(), yaml)
            .await
            .map_err(|error| StoreError::backend(format!("cannot write {}", file.display()), error).into())
    }
}

/// Converts a result other than an object to the response that models receive.
fn wrap_value(value: Value) -> JsonMap {
    match value {
        Value::Null => JsonMap::new(),
        value => JsonMap::from_iter([("result".into(), value)]),
    }
}

/// Reads the recording, or returns `None` if the file does not exist.
async fn read(location: &MessageLocation) -> Result<Option<Recordings>, RunError> {
    let MessageLocation { file, display_name, .. } = location;
    let text = match fs::read_to_string(file).await {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::backend(format!("cannot read {}", file.display()), error).into()),
    };
    let recordings = Recordings::parse(&text).map_err(|error| {
        RunError::BadInput(format!("{display_name}: {error}; move the file away to start a new recording"))
    })?;
    Ok(Some(recordings))
}

/// Replaces a recording. If several recorders write it concurrently, the last one wins.
async fn write(file: PathBuf, text: String) -> io::Result<()> {
    let write = move || {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        write_atomically(&file, text.as_bytes(), FileAccess::Default)
    };
    tokio::task::spawn_blocking(write).await.map_err(io::Error::other).and_then(|written| written)
}

#[async_trait]
impl Callback for Recorder {
    fn name(&self) -> &str {
        "recorder"
    }
}

#[async_trait]
impl Plugin for Recorder {
    /// Returns `false`: an agent that is called as a tool is recorded as the response of that tool.
    fn follows_into_tools(&self) -> bool {
        false
    }

    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let Some(location) = self.location.message(cx)? else { return Ok(None) };
        let messages = user_messages::collect(&cx.invocation.events());
        let earlier_messages = messages.len() - usize::from(user_messages::begins_with_message(cx)).min(messages.len());
        let set_by_message = messages.get(earlier_messages).map(|message| &message.state_delta);
        let (mut initial_state, mut temp_state) = (JsonMap::new(), JsonMap::new());
        for (key, value) in cx.invocation.state().iter() {
            if StateScope::split_key(key).0 == StateScope::Temp {
                temp_state.insert(key.into(), value.clone());
            } else if set_by_message.is_none_or(|set| !set.contains_key(key)) {
                initial_state.insert(key.into(), value.clone());
            }
        }
        let app = cx.invocation.session_key.app.to_string();
        let initial_state = user_messages::without_config_keys(initial_state);
        let calls = Arc::default();
        self.runs.insert(cx, ActiveRun { location, app, initial_state, temp_state, earlier_messages, calls });
        Ok(None)
    }

    fn model(
        &self,
        cx: &CallContext,
        _: &str,
        resolved: Result<Arc<dyn Model>, ModelError>,
    ) -> Result<Arc<dyn Model>, ModelError> {
        let model = resolved?;
        Ok(match self.runs.get(cx) {
            Some(run) => Arc::new(RecordedModel { model, agent: cx.agent.clone(), calls: run.calls.clone() }),
            None => model,
        })
    }

    fn tool(&self, cx: &CallContext, tool: Arc<dyn Tool>) -> Arc<dyn Tool> {
        match self.runs.get(cx) {
            Some(run) => Arc::new(InterceptedTool { tool, interceptor: ToolRecorder { calls: run.calls.clone() } }),
            None => tool,
        }
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        run_to_completion(self.finish_run(cx, None)).await
    }

    /// Writes the recording in its own task, because a cancelled run does not wait for it.
    async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        let (write, invocation) = (self.finish_run(cx, Some(error.code())), cx.invocation.id.clone());
        let _ = run_to_completion(async move {
            write.await.inspect_err(|failure| tracing::error!(%invocation, "the run could not be recorded: {failure}"))
        })
        .await;
    }

    /// Waits for pending writes.
    async fn close(&self) {
        drop(self.write_lock.lock().await);
    }
}

/// Records the calls of a model.
struct RecordedModel {
    model: Arc<dyn Model>,
    agent: Arc<str>,
    calls: Arc<CallRecorder>,
}

#[async_trait]
impl WrapperModel for RecordedModel {
    fn inner(&self) -> &dyn Model {
        self.model.as_ref()
    }

    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let calls = self.calls.clone();
        let id = calls.begin_model_call(&self.agent, &request);
        let responses =
            self.model.generate(request, streaming_mode).await.inspect_err(|error| calls.set_error(id, error))?;
        let recorded = responses.map(move |mut response| {
            match &mut response {
                Ok(response) => {
                    // The engine would assign these ids later. They link the tool calls to this response.
                    assign_call_ids(response);
                    calls.add_response(id, response);
                }
                Err(error) => calls.set_error(id, error),
            }
            response
        });
        Ok(recorded.boxed())
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let calls = self.calls.clone();
        let id = calls.begin_live_call(&self.agent, &request);
        let connection = self.model.connect(request).await.inspect_err(|error| calls.set_error(id, error))?;
        Ok(Box::new(RecordedConnection { connection, calls, id }))
    }
}

/// Records the calls of a tool.
struct ToolRecorder {
    calls: Arc<CallRecorder>,
}

#[async_trait]
impl ToolInterceptor for ToolRecorder {
    async fn call(&self, tool: &dyn Tool, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let call = FunctionCall {
            id: cx.function_call_id.as_deref().map(Into::into),
            name: tool.declaration().name.clone(),
            args: args.clone(),
            ..FunctionCall::default()
        };
        let response = FunctionResponse { id: call.id.clone(), name: call.name.clone(), ..FunctionResponse::default() };
        let id = self.calls.begin_tool_call(&cx.agent, call);
        let actions_before = cx.actions().clone();
        let result = tool.call(args, cx).await;
        let outcome = match &result {
            Ok(Value::Null) if tool.is_long_running() => ToolOutcome::Pending,
            Ok(Value::Object(map)) => ToolOutcome::Object(FunctionResponse { response: map.clone(), ..response }),
            Ok(value) => ToolOutcome::Value(FunctionResponse { response: wrap_value(value.clone()), ..response }),
            Err(error) => ToolOutcome::Error(error.clone()),
        };
        self.calls.finish_tool_call(id, outcome, added_actions(&actions_before, cx.actions().clone()));
        result
    }
}
