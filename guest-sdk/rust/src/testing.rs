//! Unit tests of components by plain `cargo test`: a [`Host`] takes the place of the real one, without WebAssembly.
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
//! fn a_roll_goes_on_from_the_last() {
//!     let host = Host::new().state("last", 3);
//!     let rolled: u32 = host.call(roll_die, json!({ "sides": 6 })).unwrap();
//!     assert_eq!((rolled, host.state_of("last")), (4, Some(4)));
//! }
//! # a_roll_goes_on_from_the_last();
//! ```
//!
//! A test says what there is (the state, what the user says, models, tools, artifacts …), has the host run something, and looks at what
//! it gave and what it did. Everything that [`export!`](crate::export) takes can be run:
//!
//! | | run by | gives |
//! |---|---|---|
//! | tool | [`Host::call`] | its result, or its [`ToolError`](crate::ToolError), also for arguments that do not fit |
//! | custom agent | [`Host::run`] | its events as the session gets them |
//! | LLM agent with computed instructions | [`Host::instruction`], [`Host::global_instruction`] | the text |
//! | callback | [`Host::before_agent`] and so on | what it decides |
//! | plugin | [`Host::plugin`], then a hook | what it decides |
//! | model | [`Host::answer`], [`Host::stream`] | the whole answer, its pieces |
//! | code executor | [`Host::execute`] | its output |
//! | summarizer | [`Host::summarize`] | the summary |
//! | provider of examples | [`Host::examples`] | the examples |
//!
//! A custom agent with a model, a tool and an agent below it:
//!
//! ```
//! # use hatchery_guest::prelude::*;
//! use hatchery_guest::testing::Host;
//!
//! /// Looks things up, and asks its helper where there is nothing.
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
//!     assert_eq!(events[0].said(), "Praise All about whales. Done.");
//!     assert_eq!(host.requests().len(), 1);
//! }
//! # a_book_is_praised();
//!
//! // #[test]
//! fn the_helper_knows_more() {
//!     let host = Host::new().user_says("?").tool("search/find", |_| Ok(json!([])));
//!     let events = host.sub_agent("helper", [Event::text("Ask Ada.")]).run(librarian);
//!     assert_eq!((events[0].author.as_str(), events[0].said().as_str()), ("helper", "Ask Ada."));
//! }
//! # the_helper_knows_more();
//! ```
//!
//! What a test has not set up is an error as in a host, with the same code and with the line to add. A host belongs to its test: tests run
//! at the same time. Ids and times are the same in each run of a test.
//!
//! It is the component's code that is tested here, not the host's: no model is called for an LLM agent, no callback runs by itself, there
//! are no grants and no limits, and arguments of a tool are read by its code without being checked against its JSON Schema first.
//! `hatchery test` plays conversations with the compiled component for all of that.

mod agent;
mod answer;
mod call;
mod hooks;
mod http;
pub(crate) mod imports;
mod relay;
mod scope;
mod setup;
mod stream;
mod world;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::answer::ModelAnswer;
pub use self::hooks::HostedPlugin;
pub use self::http::{HttpRequest, HttpResponse};
use self::world::World;
pub use crate::callback::Before;
use crate::callback::ToolCall;
use crate::confirmation::ToolConfirmation;
use crate::content::{JsonMap, Part};
use crate::event::Event;
use crate::model::LlmRequest;

/// The host of one test. It is set up by methods that take it and give it back, runs things as often as wanted, and tells what they did.
/// Clones are the same host.
#[derive(Clone)]
#[must_use = "a host does nothing by itself: let it call something"]
pub struct Host(Rc<RefCell<World>>);

/// A line that code has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// What it says.
    pub message: String,
    /// Named values.
    pub fields: Vec<(String, String)>,
}

/// As `level message key=value …`.
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

/// What has happened.
impl Host {
    /// A state key as it is now; nothing when it is not set.
    ///
    /// # Panics
    /// When it is of another shape than `T`.
    #[track_caller]
    pub fn state_of<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let value = self.0.borrow().state.get(key).cloned()?;
        match serde_json::from_value(value.clone()) {
            Ok(value) => Some(value),
            Err(error) => {
                misuse(&format!("the state key `{key}` is `{value}`, which is not what is asked for: {error}"))
            }
        }
    }

    /// All state.
    pub fn all_state(&self) -> JsonMap {
        self.0.borrow().state.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// All events of the session: those that it was set up with, what the user has said, and what agents have yielded.
    pub fn events(&self) -> Vec<Event> {
        self.0.borrow().events.clone()
    }

    /// The versions of an artifact, the oldest first; none when there is no such artifact.
    pub fn versions_of(&self, artifact: &str) -> Vec<Part> {
        self.0.borrow().artifacts.get(artifact).cloned().unwrap_or_default()
    }

    /// What models were asked, in order. A request that names no model has the name of its agent's own.
    pub fn requests(&self) -> Vec<LlmRequest> {
        self.0.borrow().requests.clone()
    }

    /// The tool calls that code has made, in order.
    pub fn tool_calls(&self) -> Vec<ToolCall> {
        self.0.borrow().tool_calls.clone()
    }

    /// The HTTP requests that code has sent, in order.
    pub fn http_requests(&self) -> Vec<HttpRequest> {
        self.0.borrow().http_requests.clone()
    }

    /// What code has logged, in order.
    pub fn logged(&self) -> Vec<LogLine> {
        self.0.borrow().log.clone()
    }

    /// What a person is to be asked about a tool call.
    pub fn asked_for_confirmation(&self) -> Option<ToolConfirmation> {
        self.0.borrow().asked.clone()
    }

    /// The agent that the conversation is handed over to.
    pub fn transferred_to(&self) -> Option<String> {
        self.0.borrow().actions.transfer_to_agent.clone()
    }

    /// True when the loops and parallel agents around the agent are to end.
    pub fn escalated(&self) -> bool {
        self.0.borrow().actions.escalate == Some(true)
    }

    /// True when a tool's result is the answer, without a summary by the model.
    pub fn skipped_summarization(&self) -> bool {
        self.0.borrow().actions.skip_summarization == Some(true)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let world = self.0.borrow();
        let (events, state) = (world.events.len(), Value::from_iter(world.state.clone()));
        f.debug_struct("Host").field("events", &events).field("state", &state).finish_non_exhaustive()
    }
}

/// The last part of `component/item`, which is what code calls the item by.
fn item_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, item)| item)
}

/// Names for a message.
fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "none".into();
    }
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Fails the test, which has asked for something impossible.
#[track_caller]
#[allow(clippy::panic, reason = "this is how a test fails")]
fn misuse(message: &str) -> ! {
    panic!("{message}")
}
