//! Callbacks: code that runs before and after an agent, a model call or a tool call, or when one has failed, and may replace what they
//! do.

use serde::Serialize;
use serde_json::Value;

use crate::bindings::callbacks::exports::hatchery::agent::guest_callbacks as wit;
use crate::bindings::wit::types;
use crate::content::{Content, JsonMap};
use crate::context::CallbackContext;
use crate::convert::{object, read};
use crate::error::Error;
use crate::export::Offer;
use crate::model::{LlmRequest, LlmResponse};
use crate::tool::LocalFuture;

/// A tool call, as callbacks and plugins see it.
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

/// The code of a callback or hook.
pub type Run<I, O> = fn(I, CallbackContext) -> LocalFuture<Result<O, Error>>;

/// What a callback or hook decides before a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Before<I, O> {
    /// Go on.
    Proceed,
    /// Go on with this.
    Revise(I),
    /// Take this for the answer.
    Respond(O),
}

/// The kinds of callbacks: each has a type that holds its code.
macro_rules! points {
    ($($(#[doc = $comment:literal])* $point:ident = $name:literal: $input:ty => $output:ty;)*) => {
        $(
            $(#[doc = $comment])*
            #[derive(Debug, Clone, Copy)]
            pub struct $point(#[doc(hidden)] pub Run<$input, $output>);

            impl From<Callback<$point>> for AnyCallback {
                fn from(callback: Callback<$point>) -> Self {
                    Self::$point(callback)
                }
            }
        )*

        /// A callback of any kind.
        #[derive(Debug, Clone, Copy)]
        pub enum AnyCallback {
            $( $(#[doc = $comment])* $point(Callback<$point>), )*
        }

        impl AnyCallback {
            fn name(&self) -> &'static str {
                match self {
                    $( Self::$point(callback) => callback.name, )*
                }
            }

            /// The kind, as the contract calls it.
            fn point(&self) -> &'static str {
                match self {
                    $( Self::$point(_) => $name, )*
                }
            }
        }
    };
}

points! {
    /// Before an agent runs: a content is its answer, and it does not run.
    BeforeAgent = "before-agent": () => Option<Content>;
    /// After an agent has run: a content is added to what it said.
    AfterAgent = "after-agent": () => Option<Content>;
    /// When an agent has failed: a content is its answer, and the run goes on.
    OnAgentError = "on-agent-error": Error => Option<Content>;
    /// Before a model call: may change the request; a response takes the place of the model's.
    BeforeModel = "before-model": LlmRequest => Before<LlmRequest, LlmResponse>;
    /// After a model response: a response takes its place.
    AfterModel = "after-model": LlmResponse => Option<LlmResponse>;
    /// When a model call has failed: a response takes the place of the failure.
    OnModelError = "on-model-error": (LlmRequest, Error) => Option<LlmResponse>;
    /// Before a tool call: may change the arguments; an answer takes the place of the tool's.
    BeforeTool = "before-tool": ToolCall => Before<ToolCall, Value>;
    /// After a tool call: an answer takes the place of the tool's.
    AfterTool = "after-tool": (ToolCall, Value) => Option<Value>;
    /// When a tool call has failed: an answer takes the place of the failure.
    OnToolError = "on-tool-error": (ToolCall, Error) => Option<Value>;
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

/// An answer of a tool is an object; another value is put into one.
pub(crate) fn answer_object(value: Value) -> JsonMap {
    match value {
        Value::Object(map) => map,
        other => JsonMap::from_iter([("result".to_owned(), other)]),
    }
}

/// An answer of a tool as JSON text.
pub(crate) fn answer(value: Value) -> String {
    object(answer_object(value))
}

/// Reads the answer of a tool.
pub(crate) fn read_answer(json: &str) -> Result<Value, Error> {
    read(json, "the answer of a tool")
}

#[doc(hidden)]
pub fn value(value: impl Serialize) -> Result<Value, Error> {
    Ok(serde_json::to_value(value)?)
}

impl TryFrom<types::ToolCall> for ToolCall {
    type Error = Error;

    fn try_from(call: types::ToolCall) -> Result<Self, Error> {
        let args = read(&call.args, "the arguments of a tool call")?;
        Ok(Self { tool: call.tool, args })
    }
}

impl From<Before<LlmRequest, LlmResponse>> for types::ModelAction {
    fn from(decided: Before<LlmRequest, LlmResponse>) -> Self {
        match decided {
            Before::Proceed => Self::Proceed,
            Before::Revise(request) => Self::Revise(request.into()),
            Before::Respond(response) => Self::Respond(response.into()),
        }
    }
}

impl From<Before<ToolCall, Value>> for types::ToolAction {
    fn from(decided: Before<ToolCall, Value>) -> Self {
        match decided {
            Before::Proceed => Self::Proceed,
            Before::Revise(call) => Self::Revise(object(call.args)),
            Before::Respond(value) => Self::Respond(answer(value)),
        }
    }
}

fn find<T>(callbacks: Vec<AnyCallback>, name: &str, point: fn(AnyCallback) -> Option<T>) -> Result<T, Error> {
    let mut points = Vec::new();
    for callback in callbacks.into_iter().filter(|callback| callback.name() == name) {
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

/// Runs the callback of this name and kind.
macro_rules! run {
    ($offer:ty, $name:expr, $point:ident, $input:expr) => {{
        let run = find(<$offer>::items(), &$name, |callback| match callback {
            AnyCallback::$point(callback) => Some(callback.point.0),
            _ => None,
        })?;
        run($input, CallbackContext::new()).await?
    }};
}

impl<S: Offer<AnyCallback>> wit::Guest for S {
    fn describe() -> Vec<wit::CallbackSpec> {
        let mut specs: Vec<wit::CallbackSpec> = Vec::new();
        for callback in S::items() {
            let point = callback.point().to_owned();
            match specs.iter_mut().find(|spec| spec.name == callback.name()) {
                Some(spec) => spec.points.push(point),
                None => specs.push(wit::CallbackSpec { name: callback.name().into(), points: vec![point] }),
            }
        }
        specs
    }

    async fn before_agent(name: String) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, BeforeAgent, ()).map(Into::into))
    }

    async fn after_agent(name: String) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, AfterAgent, ()).map(Into::into))
    }

    async fn on_agent_error(name: String, failure: types::Error) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, OnAgentError, failure.into()).map(Into::into))
    }

    async fn before_model(name: String, request: types::LlmRequest) -> Result<types::ModelAction, types::Error> {
        Ok(run!(S, name, BeforeModel, request.try_into()?).into())
    }

    async fn after_model(
        name: String,
        response: types::LlmResponse,
    ) -> Result<Option<types::LlmResponse>, types::Error> {
        Ok(run!(S, name, AfterModel, response.try_into()?).map(Into::into))
    }

    async fn before_tool(name: String, call: types::ToolCall) -> Result<types::ToolAction, types::Error> {
        Ok(run!(S, name, BeforeTool, call.try_into()?).into())
    }

    async fn after_tool(name: String, call: types::ToolCall, response: String) -> Result<Option<String>, types::Error> {
        Ok(run!(S, name, AfterTool, (call.try_into()?, read_answer(&response)?)).map(answer))
    }

    async fn on_model_error(
        name: String,
        request: types::LlmRequest,
        failure: types::Error,
    ) -> Result<Option<types::LlmResponse>, types::Error> {
        Ok(run!(S, name, OnModelError, (request.try_into()?, failure.into())).map(Into::into))
    }

    async fn on_tool_error(
        name: String,
        call: types::ToolCall,
        failure: types::Error,
    ) -> Result<Option<String>, types::Error> {
        Ok(run!(S, name, OnToolError, (call.try_into()?, failure.into())).map(answer))
    }
}
