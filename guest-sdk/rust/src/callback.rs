//! Callbacks: code that runs before and after an agent, a model call or a tool call, and may replace what they do.

use serde::Serialize;
use serde_json::Value;

use crate::bindings::callbacks::exports::hatchery::agent::guest_callbacks as wit;
use crate::bindings::wit::types;
use crate::content::{Content, JsonMap};
use crate::context::CallbackContext;
use crate::convert::{object, read};
use crate::error::Error;
use crate::model::{LlmRequest, LlmResponse};
use crate::tool::LocalFuture;

/// A tool call, as tool callbacks see it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCall {
    /// The tool.
    pub tool: String,
    /// Arguments by name.
    pub args: JsonMap,
}

/// A callback of the kind `P`, as [`#[callback]`](macro@crate::callback) makes it of an async function.
#[derive(Debug, Clone, Copy)]
pub struct Callback<P> {
    #[doc(hidden)]
    pub name: &'static str,
    #[doc(hidden)]
    pub point: P,
}

type Run<I, O> = fn(I, CallbackContext) -> LocalFuture<Result<O, Error>>;

/// Before an agent runs: a content is its answer, and it does not run.
#[derive(Debug, Clone, Copy)]
pub struct BeforeAgent(#[doc(hidden)] pub Run<(), Option<Content>>);

/// After an agent has run: a content is added to what it said.
#[derive(Debug, Clone, Copy)]
pub struct AfterAgent(#[doc(hidden)] pub Run<(), Option<Content>>);

/// Before a model call: may change the request; a response takes the place of the model's.
#[derive(Debug, Clone, Copy)]
pub struct BeforeModel(#[doc(hidden)] pub Run<LlmRequest, Before<LlmRequest, LlmResponse>>);

/// After a model response: a response takes its place.
#[derive(Debug, Clone, Copy)]
pub struct AfterModel(#[doc(hidden)] pub Run<LlmResponse, Option<LlmResponse>>);

/// Before a tool call: may change the arguments; an answer takes the place of the tool's.
#[derive(Debug, Clone, Copy)]
pub struct BeforeTool(#[doc(hidden)] pub Run<ToolCall, Before<ToolCall, Value>>);

/// After a tool call: an answer takes the place of the tool's.
#[derive(Debug, Clone, Copy)]
pub struct AfterTool(#[doc(hidden)] pub Run<(ToolCall, Value), Option<Value>>);

/// What a callback decides before a call.
#[doc(hidden)]
pub enum Before<I, O> {
    /// Go on.
    Proceed,
    /// Go on with this.
    Revise(I),
    /// Take this for the answer.
    Respond(O),
}

/// A callback of any kind.
#[derive(Debug, Clone, Copy)]
pub enum AnyCallback {
    /// Before an agent.
    BeforeAgent(Callback<BeforeAgent>),
    /// After an agent.
    AfterAgent(Callback<AfterAgent>),
    /// Before a model call.
    BeforeModel(Callback<BeforeModel>),
    /// After a model call.
    AfterModel(Callback<AfterModel>),
    /// Before a tool call.
    BeforeTool(Callback<BeforeTool>),
    /// After a tool call.
    AfterTool(Callback<AfterTool>),
}

macro_rules! any_callback {
    ($($point:ident),*) => { $(
        impl From<Callback<$point>> for AnyCallback {
            fn from(callback: Callback<$point>) -> Self {
                Self::$point(callback)
            }
        }
    )* };
}

any_callback!(BeforeAgent, AfterAgent, BeforeModel, AfterModel, BeforeTool, AfterTool);

impl AnyCallback {
    fn name(&self) -> &'static str {
        match self {
            Self::BeforeAgent(callback) => callback.name,
            Self::AfterAgent(callback) => callback.name,
            Self::BeforeModel(callback) => callback.name,
            Self::AfterModel(callback) => callback.name,
            Self::BeforeTool(callback) => callback.name,
            Self::AfterTool(callback) => callback.name,
        }
    }

    fn point(&self) -> &'static str {
        match self {
            Self::BeforeAgent(_) => "before-agent",
            Self::AfterAgent(_) => "after-agent",
            Self::BeforeModel(_) => "before-model",
            Self::AfterModel(_) => "after-model",
            Self::BeforeTool(_) => "before-tool",
            Self::AfterTool(_) => "after-tool",
        }
    }
}

/// Refers to a callback of the kind `P`: a function marked `#[callback(…)]`, or a name (`check`, `guards/check`).
pub trait CallbackRef<P> {
    /// The name.
    fn callback_name(self) -> String;
}

impl<P, F: Fn() -> Callback<P>> CallbackRef<P> for F {
    fn callback_name(self) -> String {
        self().name.into()
    }
}

impl<P> CallbackRef<P> for &str {
    fn callback_name(self) -> String {
        self.into()
    }
}

/// What `export!` makes of its list of callbacks.
#[doc(hidden)]
pub trait CallbackSet {
    /// The callbacks, in the order written.
    fn callbacks() -> Vec<AnyCallback>;
}

/// An answer of a tool is an object; another value is put into one.
fn answer(value: Value) -> String {
    match value {
        Value::Object(map) => object(map),
        other => object(JsonMap::from_iter([("result".to_owned(), other)])),
    }
}

#[doc(hidden)]
pub fn value(value: impl Serialize) -> Result<Value, Error> {
    Ok(serde_json::to_value(value)?)
}

impl TryFrom<wit::ToolCall> for ToolCall {
    type Error = Error;

    fn try_from(call: wit::ToolCall) -> Result<Self, Error> {
        let args = read(&call.args, "the arguments of a tool call")?;
        Ok(Self { tool: call.tool, args })
    }
}

fn find<T>(set: Vec<AnyCallback>, name: &str, point: fn(AnyCallback) -> Option<T>) -> Result<T, Error> {
    let mut points = Vec::new();
    for callback in set.into_iter().filter(|callback| callback.name() == name) {
        points.push(callback.point());
        if let Some(found) = point(callback) {
            return Ok(found);
        }
    }
    Err(Error::new(
        "NOT_FOUND",
        match points.as_slice() {
            [] => format!("this component has no callback `{name}`"),
            points => format!("callback `{name}` is for {}", points.join(", ")),
        },
    ))
}

macro_rules! at {
    ($set:ty, $name:expr, $point:ident) => {
        find(<$set>::callbacks(), $name, |callback| match callback {
            AnyCallback::$point(callback) => Some(callback.point.0),
            _ => None,
        })
    };
}

impl<S: CallbackSet> wit::Guest for S {
    fn describe() -> Vec<wit::CallbackSpec> {
        let mut specs: Vec<wit::CallbackSpec> = Vec::new();
        for callback in S::callbacks() {
            let point = callback.point().to_owned();
            match specs.iter_mut().find(|spec| spec.name == callback.name()) {
                Some(spec) => spec.points.push(point),
                None => specs.push(wit::CallbackSpec { name: callback.name().into(), points: vec![point] }),
            }
        }
        specs
    }

    async fn before_agent(name: String) -> Result<Option<types::Content>, types::Error> {
        let run = at!(S, &name, BeforeAgent)?;
        Ok(run((), CallbackContext::new()).await?.map(Into::into))
    }

    async fn after_agent(name: String) -> Result<Option<types::Content>, types::Error> {
        let run = at!(S, &name, AfterAgent)?;
        Ok(run((), CallbackContext::new()).await?.map(Into::into))
    }

    async fn before_model(name: String, request: types::LlmRequest) -> Result<wit::ModelAction, types::Error> {
        let run = at!(S, &name, BeforeModel)?;
        Ok(match run(request.try_into()?, CallbackContext::new()).await? {
            Before::Proceed => wit::ModelAction::Proceed,
            Before::Revise(request) => wit::ModelAction::Revise(request.into()),
            Before::Respond(response) => wit::ModelAction::Respond(response.into()),
        })
    }

    async fn after_model(
        name: String,
        response: types::LlmResponse,
    ) -> Result<Option<types::LlmResponse>, types::Error> {
        let run = at!(S, &name, AfterModel)?;
        Ok(run(response.try_into()?, CallbackContext::new()).await?.map(Into::into))
    }

    async fn before_tool(name: String, call: wit::ToolCall) -> Result<wit::ToolAction, types::Error> {
        let run = at!(S, &name, BeforeTool)?;
        Ok(match run(call.try_into()?, CallbackContext::new()).await? {
            Before::Proceed => wit::ToolAction::Proceed,
            Before::Revise(call) => wit::ToolAction::Revise(object(call.args)),
            Before::Respond(value) => wit::ToolAction::Respond(answer(value)),
        })
    }

    async fn after_tool(name: String, call: wit::ToolCall, response: String) -> Result<Option<String>, types::Error> {
        let run = at!(S, &name, AfterTool)?;
        let response = read(&response, "the answer of a tool")?;
        Ok(run((call.try_into()?, response), CallbackContext::new()).await?.map(answer))
    }
}
