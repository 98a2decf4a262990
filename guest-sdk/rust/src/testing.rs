//! Unit tests of components with plain `cargo test`: a [`Host`] is a mock of the real host, without WebAssembly.
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! use hatchery_guest::testing::Host;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Roll { sides: u32 }
//!
//! /// Rolls a die.
//! #[tool]
//! async fn roll_die(roll: Roll, cx: ToolContext) -> Result<u32, ToolError> {
//!     let rolled = cx.state::<u32>("last")?.unwrap_or(0) % roll.sides + 1;
//!     cx.set_state("last", rolled)?;
//!     Ok(rolled)
//! }
//!
//! // #[test]
//! fn a_roll_continues_from_the_last() {
//!     let host = Host::new().state("last", 3);
//!     let rolled: u32 = host.call(roll_die, json!({ "sides": 6 })).unwrap();
//!     assert_eq!((rolled, host.state_value("last")), (4, Some(4)));
//! }
//! # a_roll_continues_from_the_last();
//! ```
//!
//! A test sets up the environment (state, user message, models, tools, artifacts …), runs an item, and checks its
//! result and its effects. Everything that [`export!`](crate::export) takes can be run:
//!
//! | item | run by | result |
//! |---|---|---|
//! | tool | [`Host::call`] | its result or its [`ToolError`](crate::ToolError), also for invalid arguments |
//! | custom agent | [`Host::run`] | its events as the session stores them |
//! | LLM agent with computed instructions | [`Host::instruction`], [`Host::global_instruction`] | the text |
//! | callback | [`Host::before_agent`] and others | its decision |
//! | plugin | [`Host::plugin`], then a hook | its decision |
//! | model | [`Host::answer`], [`Host::stream`] | the complete answer, the partial responses |
//! | code executor | [`Host::execute`] | its output |
//! | summarizer | [`Host::summarize`] | the summary |
//! | example provider | [`Host::examples`] | the examples |
//!
//! A custom agent with a model, a tool and a sub-agent:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! use hatchery_guest::testing::Host;
//!
//! /// Looks things up, and runs its helper if nothing is found.
//! #[agent(tools = ["search/find"], sub_agents = ["helper"])]
//! async fn librarian(cx: AgentContext) -> Result<(), Error> {
//!     let found: Vec<String> = cx.call_tool("find", &json!({ "text": cx.user_content()?.text() })).await?;
//!     match found.first() {
//!         Some(title) => cx.emit(cx.generate(LlmRequest::new("", format!("Praise {title}."))).await?).await,
//!         None => cx.run_sub_agent("helper").await,
//!     }
//! }
//!
//! // #[test]
//! fn a_book_is_praised() {
//!     let host = Host::new()
//!         .user_says("whales")
//!         .tool("search/find", |args| Ok(json!([format!("All about {}", args["text"].as_str().unwrap())])))
//!         .model(|request| format!("{} Done.", request.contents[0].text()));
//!     let events = host.run(librarian);
//!     assert_eq!(events[0].text_content(), "Praise All about whales. Done.");
//!     assert_eq!(host.requests().len(), 1);
//! }
//! # a_book_is_praised();
//!
//! // #[test]
//! fn the_helper_knows_more() {
//!     let host = Host::new().user_says("?").tool("search/find", |_| Ok(json!([])));
//!     let events = host.sub_agent("helper", [Event::text("Ask Ada.")]).run(librarian);
//!     assert_eq!((events[0].author.as_str(), events[0].text_content().as_str()), ("helper", "Ask Ada."));
//! }
//! # the_helper_knows_more();
//! ```
//!
//! Use of anything that a test has not set up is an error with the code of the real host and the line to add. Each
//! test has its own host, so tests can run concurrently. Ids and timestamps are the same in every run of a test.
//!
//! These tests cover the component's code, not the host: no model is called for an LLM agent, callbacks do not run by
//! themselves, there are no grants and no limits, and a tool's arguments are parsed without being checked against its
//! JSON Schema first. For all of that, `hatchery test` plays conversations with the compiled component.

mod agent;
mod answer;
mod call;
mod hooks;
mod http;
pub(crate) mod imports;
mod mock_state;
mod relay;
mod scope;
mod setup;
mod stream;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::answer::ModelAnswer;
pub use self::hooks::HostedPlugin;
pub use self::http::{HttpRequest, HttpResponse};
use self::mock_state::MockState;
pub use crate::callback::Before;
use crate::callback::ToolCall;
use crate::confirmation::ToolConfirmation;
use crate::content::{JsonMap, Part};
use crate::context::MemoryEntry;
use crate::event::Event;
use crate::model::LlmRequest;
use crate::runner::RunRequest;

/// The mock host of one test. Setup methods take and return it; it runs items any number of times and records what they
/// did. Clones share their state.
#[derive(Clone)]
#[must_use = "a host does nothing by itself: let it call something"]
pub struct Host(Rc<RefCell<MockState>>);

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// The text of the line.
    pub message: String,
    /// Named values of the line.
    pub fields: Vec<(String, String)>,
}

/// The progress that a tool has reported.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The amount done.
    pub progress: f64,
    /// The total amount. `None` if the tool does not know it.
    pub total: Option<f64>,
    /// A text for people. `None` if it is empty.
    pub message: Option<String>,
}

/// Formats the line as `level message key=value …`.
impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.level, self.message)?;
        self.fields.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
    }
}

impl Default for Host {
    fn default() -> Self {
        Self::new()
    }
}

/// Records of the effects of code.
impl Host {
    /// Returns the current value of a state key. `None` if it is not set.
    ///
    /// # Panics
    /// If the value is not a `T`.
    #[track_caller]
    pub fn state_value<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let value = self.0.borrow().state.get(key).cloned()?;
        match serde_json::from_value(value.clone()) {
            Ok(value) => Some(value),
            Err(error) => {
                misuse(&format!("the state key `{key}` is `{value}`, which is not of the requested type: {error}"))
            }
        }
    }

    /// Returns all state.
    pub fn all_state(&self) -> JsonMap {
        self.0.borrow().state.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Returns all events of the session: those that were set up, user messages, and events of agents.
    pub fn events(&self) -> Vec<Event> {
        self.0.borrow().events.clone()
    }

    /// Returns the versions of an artifact, oldest first. Empty if there is no such artifact.
    pub fn artifact_versions(&self, artifact: &str) -> Vec<Part> {
        let mock = self.0.borrow();
        mock.artifacts.get(artifact).into_iter().flatten().map(|saved| saved.part.clone()).collect()
    }

    /// Returns the custom metadata of the versions of an artifact, oldest first.
    pub fn artifact_metadata(&self, artifact: &str) -> Vec<JsonMap> {
        let mock = self.0.borrow();
        mock.artifacts.get(artifact).into_iter().flatten().map(|saved| saved.custom_metadata.clone()).collect()
    }

    /// Returns the requests to models, in order. A request that names no model has the name of its agent's model.
    pub fn requests(&self) -> Vec<LlmRequest> {
        self.0.borrow().requests.clone()
    }

    /// Returns the tool calls of code, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        self.0.borrow().tool_calls.clone()
    }

    /// Returns the requests of code for runs of apps, in order.
    pub fn run_requests(&self) -> Vec<RunRequest> {
        self.0.borrow().run_requests.clone()
    }

    /// Returns the ids of the runs that code has cancelled, in order.
    pub fn cancelled_runs(&self) -> Vec<String> {
        self.0.borrow().cancelled_runs.clone()
    }

    /// Returns the events of another session of the user. `None` if it does not exist.
    pub fn session_events(&self, app: &str, session: &str) -> Option<Vec<Event>> {
        self.0.borrow().sessions.get(&(app.to_owned(), session.to_owned())).map(|session| session.events.clone())
    }

    /// Returns the entries of the memory, in the order in which they were added.
    pub fn memory(&self) -> Vec<MemoryEntry> {
        self.0.borrow().memory.clone()
    }

    /// Returns the HTTP requests of code, in order.
    pub fn http_requests(&self) -> Vec<HttpRequest> {
        self.0.borrow().http_requests.clone()
    }

    /// Returns the log lines of code, in order.
    pub fn log_lines(&self) -> Vec<LogLine> {
        self.0.borrow().log.clone()
    }

    /// Returns the progress that tools have reported, in order. A real host sends at most ten reports of a call per
    /// second.
    pub fn progress(&self) -> Vec<Progress> {
        self.0.borrow().progress.clone()
    }

    /// Returns the confirmation that was requested for a tool call.
    pub fn requested_confirmation(&self) -> Option<ToolConfirmation> {
        self.0.borrow().requested_confirmation.clone()
    }

    /// Returns the configuration of the credential that was requested for a tool call, in the JSON of ADK.
    pub fn requested_credential(&self) -> Option<Value> {
        self.0.borrow().requested_credential.clone()
    }

    /// Returns the agent that the conversation was transferred to.
    pub fn transferred_to(&self) -> Option<String> {
        self.0.borrow().actions.transfer_to_agent.clone()
    }

    /// Returns true if the loops and parallel agents around the agent are to end.
    pub fn has_escalated(&self) -> bool {
        self.0.borrow().actions.escalate == Some(true)
    }

    /// Returns true if the run is to end: no further agent runs.
    pub fn has_ended_invocation(&self) -> bool {
        self.0.borrow().actions.end_invocation == Some(true)
    }

    /// Returns true if a tool's result is the final answer, without a summary by the model.
    pub fn has_skipped_summarization(&self) -> bool {
        self.0.borrow().actions.skip_summarization == Some(true)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mock = self.0.borrow();
        let (events, state) = (mock.events.len(), Value::from_iter(mock.state.clone()));
        f.debug_struct("Host").field("events", &events).field("state", &state).finish_non_exhaustive()
    }
}

/// Returns the last part of `component/item`, which is the name that code uses.
fn item_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, item)| item)
}

/// Formats names for a message.
fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Fails the test because of a misuse of the mock host.
#[track_caller]
#[allow(clippy::panic, reason = "this is how a test fails")]
fn misuse(message: &str) -> ! {
    panic!("{message}")
}
