//! `scripted:<file>`: a model without a network. It plays answers from a YAML file, streams them, counts tokens and can fail on purpose.
//!
//! ```yaml
//! # Tried from top to bottom: the first turn whose conditions all fit answers.
//! turns:
//!   - when: { user: [roll, throw] }       # the last user text holds one of these, whatever the case
//!     reply:
//!       - text: "Let me roll."
//!       - call: { name: roll_die, args: { sides: "{number}" } }
//!   - when: { tool: roll_die, result: error }
//!     reply: "The die is lost."           # short for one text
//!   - when: { tool: roll_die }            # the last message is the answer of this tool
//!     reply:
//!       - thought: "That was quick."
//!       - text: "You rolled {tool.result}."
//!         chunks: 3                       # streamed in three pieces; or the pieces themselves: text: ["You ", "rolled"]
//!   - when: { user: slow }
//!     delay_ms: 500                       # before the first piece; chunk_delay_ms: between pieces
//!     reply: "Here I am."
//!   - when: { user: break }
//!     reply: "I was about to"
//!     error: { code: 503, message: "out of order", after: 1 }
//!   - reply: "I only know dice."          # no `when`: fits always
//! ```
//!
//! **Conditions** (`when`), each a text or a list of alternatives: `user`, `tool` (exact name), `result` (text in the JSON of that answer),
//! `system` (text in the system instructions; the way to tell agents apart), `context` (what other agents said since the user spoke), and
//! `step: n` (the n-th model call since the user spoke, from 1). A turn with `user` but without `tool`, `result` and
//! `step` does not fit while a tool's answer is the last message, so a turn that calls a tool does not call it for ever.
//!
//! **Answers** (`reply`): a text, or a list of `text`, `thought`, `call: {name, args, id}` (several calls are parallel calls) and
//! `part: {…}` (any part in its JSON form, such as `inlineData`). Beside it: `finish_reason` (default `STOP`), `delay_ms`, `chunk_delay_ms`,
//! and `error: {code, message, after}`, where `code` is an HTTP status or `auth`, `rate_limited`, `bad_request`, `server`, `network`,
//! `timeout`, `bad_response`; without `after` the call itself fails, with `after: n` the stream breaks after n pieces.
//!
//! **Placeholders** in texts, in `args` and in error messages: `{user}`, `{number}` (the first number in the user's text), `{rest}` (what
//! follows the phrase that `user` found), `{context}`, `{tool}` and `{tool.path.to.value}`, and `{tools.<name or index>.path}` when several tools
//! answered. An argument that is one placeholder keeps the value's type. Other braces are text.
//!
//! Everything is derived from the request, so that one script serves any number of sessions at once. A call costs some microseconds
//! whatever the length of the history: only what came since the user's last text is looked at, and only that and the system instructions
//! are counted as prompt tokens (four bytes each). A name leads only to regular files of at most 4 MiB below the scripts
//! folder. It deliberately knows no regular expressions and keeps no state between calls.

mod file;
mod place;
mod reply;
mod tail;
mod template;
mod turn;

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use hatchery_core::{LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream, StreamingMode};

use self::file::ScriptFile;
use self::place::Place;
pub use self::reply::Reply;
use self::tail::Tail;
pub use self::turn::Turn;
use crate::WritableFolders;
use crate::registry::ModelProvider;

/// A model that plays a script, from a file or built in Rust:
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
    /// An empty script, which fits nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::from_script(Script::Turns(Vec::new()))
    }

    fn from_script(script: Script) -> Self {
        // Scripts stand in for models with any built-in tool.
        let capabilities = ModelCapabilities { built_in_tools: true, ..ModelCapabilities::default() };
        Self { script, requests: None, capabilities }
    }

    /// The script in a YAML file, read at the first call and again whenever its time or length has changed. It may be anywhere, but must be a
    /// regular file of at most 4 MiB.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::at(Place::anywhere(path.into()))
    }

    fn at(place: Place) -> Self {
        Self::from_script(Script::File(ScriptFile::new(place)))
    }

    /// A script of these turns, tried in order.
    pub fn from_turns(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::from_script(Script::Turns(turns.into_iter().collect()))
    }

    /// Answers the first call with the first reply, and so on, whatever is asked; records the requests. A call too many is an error.
    pub fn sequence<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let replies = replies.into_iter().map(Into::into).collect();
        Self::from_script(Script::Sequence { replies, next: AtomicUsize::new(0) }).record_requests()
    }

    /// Adds a turn after the others. What a file or a sequence would answer is replaced.
    #[must_use]
    pub fn turn(mut self, turn: Turn) -> Self {
        match &mut self.script {
            Script::Turns(turns) => turns.push(turn),
            Script::Sequence { .. } | Script::File(_) => self.script = Script::Turns(vec![turn]),
        }
        self
    }

    /// Answers a user text that holds `text`.
    #[must_use]
    pub fn on_user(self, text: impl Into<String>, reply: impl Into<Reply>) -> Self {
        self.turn(Turn::new(reply).user(text))
    }

    /// Answers the result of the tool `name`.
    #[must_use]
    pub fn on_tool(self, name: impl Into<String>, reply: impl Into<Reply>) -> Self {
        self.turn(Turn::new(reply).tool(name))
    }

    /// Answers whatever no turn before it fits.
    #[must_use]
    pub fn default_reply(self, reply: impl Into<Reply>) -> Self {
        self.turn(Turn::new(reply))
    }

    /// Reports these capabilities instead of its own: [`ModelCapabilities::built_in_tools`] and no other.
    #[must_use]
    pub fn with_capabilities(self, capabilities: ModelCapabilities) -> Self {
        Self { capabilities, ..self }
    }

    /// Keeps the requests from now on, for [`Scripted::requests`]. For tests: they are never forgotten.
    #[must_use]
    pub fn record_requests(mut self) -> Self {
        self.requests = Some(Mutex::default());
        self
    }

    /// The requests so far, oldest first; empty unless [`Scripted::record_requests`].
    pub fn requests(&self) -> Vec<LlmRequest> {
        self.requests
            .as_ref()
            .map(|requests| requests.lock().unwrap_or_else(PoisonError::into_inner).clone())
            .unwrap_or_default()
    }

    async fn play(&self, request: &LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let tail = Tail::of(request);
        match &self.script {
            Script::Turns(turns) => play_turns(turns, "this script", &tail, streaming_mode).await,
            Script::File(file) => {
                let turns = file
                    .turns()
                    .map_err(|message| ModelError::new(ModelErrorKind::BadRequest, &request.model, message))?;
                play_turns(&turns, file.name(), &tail, streaming_mode).await
            }
            Script::Sequence { replies, next } => {
                let call = next.fetch_add(1, Ordering::Relaxed);
                let reply = replies.get(call).ok_or_else(|| {
                    let message = format!("the sequence has {} replies, and call {} came", replies.len(), call + 1);
                    ModelError::new(ModelErrorKind::BadRequest, &request.model, message)
                })?;
                reply.play(&tail.fit(), streaming_mode).await
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
    origin: &str,
    tail: &Tail<'_>,
    streaming_mode: StreamingMode,
) -> Result<ResponseStream, ModelError> {
    match turns.iter().find_map(|turn| Some((turn, turn.fits(tail)?))) {
        Some((turn, fit)) => turn.reply.play(&fit, streaming_mode).await,
        None => {
            let message = format!(
                "no turn of {origin} fits: {}; add a turn whose `when` fits it, or a last one without `when`, which fits always",
                tail.describe()
            );
            Err(ModelError::new(ModelErrorKind::BadRequest, tail.model(), message))
        }
    }
}

#[async_trait]
impl Model for Scripted {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        if let Some(requests) = &self.requests {
            requests.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        }
        self.play(&request, streaming_mode).await
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }
}

/// Serves `scripted:<file>`, for files of one folder only.
#[derive(Debug)]
pub struct ScriptedProvider {
    base: PathBuf,
    written: WritableFolders,
}

impl ScriptedProvider {
    /// Files are looked up in `base`. A name that is absolute, has `..` or a hidden part, or is a link that leads out of `base` is refused.
    pub fn new(base: impl Into<PathBuf>) -> Self {
        Self { base: base.into(), written: WritableFolders::default() }
    }

    /// Reads nothing that is in one of these folders.
    #[must_use]
    pub fn outside(self, written: WritableFolders) -> Self {
        Self { written, ..self }
    }
}

impl ModelProvider for ScriptedProvider {
    fn patterns(&self) -> &[&'static str] {
        &["scripted:*"]
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        let unknown = |message: String| ModelError::new(ModelErrorKind::UnknownModel, name, message);
        let file = name.strip_prefix("scripted:").filter(|file| !file.is_empty()).ok_or_else(|| {
            unknown("the file is missing; write `scripted:<file>`, such as `scripted:answers.yaml`".into())
        })?;
        let place = Place::below(&self.base, file, self.written.clone()).ok_or_else(|| {
            let message = "a script's name is a path below the scripts folder, without `.`, `..` and hidden parts; put the file there and \
                           write `scripted:<file>`, such as `scripted:dice/answers.yaml`";
            unknown(message.into())
        })?;
        Ok(Arc::new(Scripted::at(place)))
    }
}
