//! Provider for `scripted:<file>`: a mock model that replays replies from a YAML file. It streams them, counts tokens
//! and simulates errors.
//!
//! ```yaml
//! # Turns are tried from top to bottom. The first turn whose conditions all match replies.
//! turns:
//!   - when: { user: [roll, throw] }       # the last user text contains one of these, ignoring case
//!     reply:
//!       - text: "Let me roll."
//!       - call: { name: roll_die, args: { sides: "{number}" } }
//!   - when: { tool: roll_die, result: error }
//!     reply: "The die is lost."           # short for one text
//!   - when: { tool: roll_die }            # the last message is the result of this tool
//!     reply:
//!       - thought: "That was quick."
//!       - text: "You rolled {tool.result}."
//!         chunks: 3                       # streamed in three chunks; or a list of chunks: text: ["You ", "rolled"]
//!   - when: { user: slow }
//!     delay_ms: 500                       # before the first chunk; chunk_delay_ms: between chunks
//!     reply: "Here I am."
//!   - when: { user: break }
//!     reply: "I was about to"
//!     error: { code: 503, message: "out of order", after: 1 }
//!   - reply: "I only know dice."          # without `when`: always matches
//! ```
//!
//! **Conditions** (`when`), each a string or a list of alternatives:
//! - `user`: text in the last user message,
//! - `tool`: exact name of the tool whose result is the last message,
//! - `result`: text in the JSON of that result,
//! - `system`: text in the system instructions, which distinguishes agents,
//! - `context`: text of another agent since the last user message,
//! - `step: n`: the n-th model call since the last user message, from 1.
//!
//! A turn with `user` but without `tool`, `result` and `step` does not match while a tool result is the last message.
//! Otherwise a turn that calls a tool would call it forever.
//!
//! **Replies** (`reply`): a string, or a list of `text`, `thought`, `call: {name, args, id}` (several calls are
//! parallel calls) and `part: {…}` (any part in its JSON form, such as `inlineData`). Keys beside it: `finish_reason`
//! (default `STOP`), `delay_ms`, `chunk_delay_ms`, and `error: {code, message, after}`, where `code` is an HTTP status
//! or `auth`, `rate_limited`, `bad_request`, `server`, `network`, `timeout`, `bad_response`. Without `after` the call
//! fails, with `after: n` the stream breaks after n chunks.
//!
//! **Placeholders** in texts, in `args` and in error messages: `{user}`, `{number}` (the first number in the user's
//! text), `{rest}` (the text after the phrase that matched `user`), `{context}`, `{tool}` and `{tool.path.to.value}`,
//! and `{tools.<name or index>.path}` for one of several tool results. An argument that is a single placeholder keeps
//! the value's type. Other braces are text.
//!
//! `scripted-live:<file>` is a live model with the same script. It answers messages, and speech once the microphone is
//! off, whose transcription is its length. Unless the output is text, it speaks: each chunk of a text is its
//! transcription and a tone.
//!
//! A reply depends only on the request, so one script serves any number of concurrent sessions. A call takes some
//! microseconds for any length of the history: only the contents since the last user text are read, and only they
//! and the system instructions are counted as prompt tokens (four bytes each). A name resolves only to regular files of
//! at most 4 MiB below the scripts folder. Regular expressions and state between calls are not supported.

mod file;
mod live;
mod recent_history;
mod reply;
mod script_path;
mod template;
mod turn;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream, StreamingMode, pluralize,
};

use self::file::ScriptFile;
use self::live::LiveScript;
use self::recent_history::RecentHistory;
pub use self::reply::Reply;
use self::script_path::ScriptPath;
pub use self::turn::Turn;
use crate::WritableFolders;
use crate::provider::ModelProvider;

/// Prefix of the names of scripts that are live models.
const LIVE_PREFIX: &str = "scripted-live:";

/// Returns the file that the model `scripted:NAME` reads if scripts are in `folder`.
pub fn script_file(folder: &Path, name: &str) -> PathBuf {
    script_path::resolve_script(folder, name)
}

/// Checks a script without running it. For the operator: the error contains the path, and keys and values of the file.
///
/// # Errors
/// If the file cannot be read or is not a valid script.
pub fn check_script(file: &Path) -> Result<(), String> {
    file::check(ScriptPath::anywhere(file.to_owned())).map_err(|error| format!("{}: {error}", file.display()))
}

/// A mock model that replays a script, from a file or built in Rust:
///
/// ```
/// use hatchery_models::scripted::{Reply, Scripted};
/// use serde_json::json;
///
/// let model = Scripted::new()
///     .on_user("roll", Reply::call("roll_die", json!({ "sides": 6 })))
///     .on_tool("roll_die", "You rolled {tool.result}.")
///     .default_reply("I only know dice.");
/// ```
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    requests: Option<Mutex<Vec<LlmRequest>>>,
    capabilities: ModelCapabilities,
}

#[derive(Debug)]
enum Script {
    Turns(Vec<Turn>),
    Sequence { replies: Vec<Reply>, next: AtomicUsize },
    File(ScriptFile),
}

impl Scripted {
    /// Creates an empty script. Each call fails until turns are added.
    #[must_use]
    pub fn new() -> Self {
        Self::from_script(Script::Turns(Vec::new()))
    }

    fn from_script(script: Script) -> Self {
        // A script can mock a model with any built-in tool.
        let capabilities = ModelCapabilities { built_in_tools: true, ..ModelCapabilities::default() };
        Self { script, requests: None, capabilities }
    }

    /// Creates a model from a YAML file, which is read at the first call and whenever its modification time or length
    /// changes. It may be in any folder, but must be a regular file of at most 4 MiB.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::from_path(ScriptPath::anywhere(path.into()))
    }

    fn from_path(path: ScriptPath) -> Self {
        Self::from_script(Script::File(ScriptFile::new(path)))
    }

    /// Creates a script of these turns, tried in order.
    pub fn from_turns(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::from_script(Script::Turns(turns.into_iter().collect()))
    }

    /// Creates a model that returns the replies in order, one per call, and records the requests. A call after the last
    /// reply fails.
    pub fn sequence<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let replies = replies.into_iter().map(Into::into).collect();
        Self::from_script(Script::Sequence { replies, next: AtomicUsize::new(0) }).record_requests()
    }

    /// Adds a turn after the others. Replaces the script of a file or a sequence.
    #[must_use]
    pub fn turn(mut self, turn: Turn) -> Self {
        match &mut self.script {
            Script::Turns(turns) => turns.push(turn),
            Script::Sequence { .. } | Script::File(_) => self.script = Script::Turns(vec![turn]),
        }
        self
    }

    /// Adds a turn that matches a user text which contains `text`.
    #[must_use]
    pub fn on_user(self, text: impl Into<String>, reply: impl Into<Reply>) -> Self {
        self.turn(Turn::new(reply).user(text))
    }

    /// Adds a turn that matches a result of the tool `name`.
    #[must_use]
    pub fn on_tool(self, name: impl Into<String>, reply: impl Into<Reply>) -> Self {
        self.turn(Turn::new(reply).tool(name))
    }

    /// Adds a turn that always matches, so that its reply is used if no earlier turn matches.
    #[must_use]
    pub fn default_reply(self, reply: impl Into<Reply>) -> Self {
        self.turn(Turn::new(reply))
    }

    /// Sets the capabilities. By default, the model only has [`ModelCapabilities::built_in_tools`].
    #[must_use]
    pub fn with_capabilities(self, capabilities: ModelCapabilities) -> Self {
        Self { capabilities, ..self }
    }

    /// Records all requests for [`Scripted::requests`]. For tests only, because they are never dropped.
    #[must_use]
    pub fn record_requests(mut self) -> Self {
        self.requests = Some(Mutex::default());
        self
    }

    /// Returns the recorded requests, oldest first. Empty without [`Scripted::record_requests`].
    pub fn requests(&self) -> Vec<LlmRequest> {
        self.requests.as_ref().map(|requests| requests.lock_unpoisoned().clone()).unwrap_or_default()
    }

    async fn play(&self, request: &LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let history = RecentHistory::new(request);
        match &self.script {
            Script::Turns(turns) => play_turns(turns, "this script", &history, streaming_mode).await,
            Script::File(file) => {
                let turns = file
                    .turns()
                    .map_err(|message| ModelError::new(ModelErrorKind::BadRequest, &request.model, message))?;
                play_turns(&turns, file.name(), &history, streaming_mode).await
            }
            Script::Sequence { replies, next } => {
                let call = next.fetch_add(1, Ordering::Relaxed);
                let reply = replies.get(call).ok_or_else(|| {
                    let replies = pluralize(replies.len(), "reply", "replies");
                    let message = format!("the sequence has {replies}, but this is call {}", call + 1);
                    ModelError::new(ModelErrorKind::BadRequest, &request.model, message)
                })?;
                reply.play(&history.unconditional_match(), streaming_mode).await
            }
        }
    }
}

impl Default for Scripted {
    fn default() -> Self {
        Self::new()
    }
}

async fn play_turns(
    turns: &[Turn],
    script_name: &str,
    history: &RecentHistory<'_>,
    streaming_mode: StreamingMode,
) -> Result<ResponseStream, ModelError> {
    match turns.iter().find_map(|turn| Some((turn, turn.find_match(history)?))) {
        Some((turn, turn_match)) => turn.reply.play(&turn_match, streaming_mode).await,
        None => {
            let message = format!(
                "no turn of {script_name} matches: {}; add a turn whose `when` matches it, or a last one without `when`, \
                 which always matches",
                history.describe()
            );
            Err(ModelError::new(ModelErrorKind::BadRequest, history.model(), message))
        }
    }
}

#[async_trait]
impl Model for Scripted {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        request.progress.set_provider("scripted");
        if let Some(requests) = &self.requests {
            requests.lock_unpoisoned().push(request.clone());
        }
        self.play(&request, streaming_mode).await
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }
}

/// Serves `scripted:<file>` for the files below one folder.
#[derive(Debug)]
pub struct ScriptedProvider {
    folder: PathBuf,
    excluded: WritableFolders,
}

impl ScriptedProvider {
    /// Creates a provider for the files below `folder`. A name is rejected if it is absolute, has `..` or a hidden
    /// part, or is a link that leads out of `folder`.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), excluded: WritableFolders::default() }
    }

    /// Excludes the files in these folders.
    #[must_use]
    pub fn excluding(self, excluded: WritableFolders) -> Self {
        Self { excluded, ..self }
    }
}

impl ModelProvider for ScriptedProvider {
    fn label(&self) -> &'static str {
        "scripted"
    }

    fn patterns(&self) -> &[&'static str] {
        &["scripted:*", "scripted-live:*"]
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let unknown = |message: String| ModelError::new(ModelErrorKind::UnknownModel, name, message);
        let live_file = name.strip_prefix(LIVE_PREFIX);
        let file = live_file.or_else(|| name.strip_prefix("scripted:")).filter(|file| !file.is_empty());
        let file = file.ok_or_else(|| {
            unknown("the file is missing; write `scripted:<file>`, such as `scripted:answers.yaml`".into())
        })?;
        let path = ScriptPath::below(&self.folder, file, self.excluded.clone()).ok_or_else(|| {
            let message = "a script's name is a path below the scripts folder, without `.`, `..` and hidden parts; put the file there and \
                           write `scripted:<file>`, such as `scripted:dice/answers.yaml`";
            unknown(message.into())
        })?;
        let scripted = Arc::new(Scripted::from_path(path));
        Ok(if live_file.is_some() { Arc::new(LiveScript(scripted)) } else { scripted })
    }
}
