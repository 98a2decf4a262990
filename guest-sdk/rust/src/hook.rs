//! The table of hooks: callbacks, plugins, builders of agents and the test host come from it.

use serde_json::Value;

use crate::bindings::wit::types;
use crate::callback::{Before, ToolCall};
use crate::content::{Content, JsonMap};
use crate::convert::{object, read};
use crate::error::Error;
use crate::event::Event;
use crate::model::{LlmRequest, LlmResponse};

/// Calls a macro with its arguments and the table of hooks. Hooks of runs are for plugins only.
///
/// A row is `hook Type "contract-name" (input: Type, …) -> Output, call;` after its docs, where `call` is the method of
/// the test host that calls the hook. The calling module imports the types that the rows name.
macro_rules! for_each_hook {
    ($macro:ident $($args:tt)*) => {
        $macro! {
            ($($args)*)
            runs {
                /// Runs when a message of the user arrives. The content replaces the message.
                on_user_message OnUserMessage "on-user-message" (message: Content) -> Option<Content>, run_call;
                /// Runs before the agent of a run. The content is the run's answer, and no agent runs.
                before_run BeforeRun "before-run" () -> Option<Content>, run_call;
                /// Runs before an event is stored and sent. The returned event replaces it.
                on_event OnEvent "on-event" (event: Event) -> Option<Event>, run_call;
                /// Runs after a run that succeeded.
                after_run AfterRun "after-run" () -> (), run_call;
                /// Runs after a run that failed.
                on_run_error OnRunError "on-run-error" (failure: Error) -> (), run_call;
                /// Releases resources when the host stops or the plugin is replaced. There is no session.
                close Close "close" () -> (), run_call;
            }
            agents {
                /// Runs before an agent. The content is the agent's answer: the agent does not run.
                before_agent BeforeAgent "before-agent" () -> Option<Content>, run_call;
                /// Runs after an agent. The content is appended to its answer.
                after_agent AfterAgent "after-agent" () -> Option<Content>, run_call;
                /// Runs if an agent failed. The content is the agent's answer, and the run continues.
                on_agent_error OnAgentError "on-agent-error" (failure: Error) -> Option<Content>, run_call;
            }
            calls {
                /// Runs before a model call and may change the request. A response replaces the call.
                before_model BeforeModel "before-model" (request: LlmRequest) -> Before<LlmRequest, LlmResponse>, run_call;
                /// Runs after each response of a model. The returned response replaces it.
                after_model AfterModel "after-model" (response: LlmResponse) -> Option<LlmResponse>, run_call;
                /// Runs if a model call failed. The response replaces the error.
                on_model_error OnModelError "on-model-error"
                    (request: LlmRequest, failure: Error) -> Option<LlmResponse>, run_call;
                /// Runs before a tool call and may change the arguments. An answer replaces the call. An answer that is
                /// not an object is wrapped in one, as `result`.
                before_tool BeforeTool "before-tool" (call: ToolCall) -> Before<ToolCall, Value>, function_call;
                /// Runs after a tool call. The returned value replaces the tool's answer. A value that is not an object
                /// is wrapped in one, as `result`.
                after_tool AfterTool "after-tool" (call: ToolCall, answer: Value) -> Option<Value>, function_call;
                /// Runs if a tool call failed. The value replaces the error. A value that is not an object is wrapped
                /// in one, as `result`.
                on_tool_error OnToolError "on-tool-error" (call: ToolCall, failure: Error) -> Option<Value>, function_call;
            }
        }
    };
}

pub(crate) use for_each_hook;

macro_rules! define_callback_lists {
    (() runs $_runs:tt agents $agents:tt calls $calls:tt) => {
        define_callback_lists! { "The callbacks of an agent of any kind, by name.", AgentCallbacks $agents }
        define_callback_lists! { "The callbacks around model and tool calls, by name.", CallCallbacks $calls }
    };
    ($comment:literal, $lists:ident { $(
        $(#[$doc:meta])* $hook:ident $_point:ident $_name:literal $_inputs:tt -> $_output:ty, $_call:ident;
    )* }) => {
        #[doc = $comment]
        #[derive(Default)]
        pub(crate) struct $lists {
            $( pub(crate) $hook: Vec<String>, )*
        }
    };
}

for_each_hook!(define_callback_lists);

/// The input of a hook, from the contract's type.
pub trait FromWit: Sized {
    type Wit;

    fn from_wit(wit: Self::Wit) -> Result<Self, Error>;
}

/// The output of a hook, as the contract's type.
pub trait IntoWit {
    type Wit;

    fn into_wit(self) -> Self::Wit;
}

macro_rules! from_wit {
    ($($type:ident),*) => { $(
        impl FromWit for $type {
            type Wit = types::$type;

            fn from_wit(wit: types::$type) -> Result<Self, Error> {
                wit.try_into()
            }
        }
    )* };
}

macro_rules! into_wit {
    ($($type:ty => $wit:ident),*) => { $(
        impl IntoWit for $type {
            type Wit = types::$wit;

            fn into_wit(self) -> types::$wit {
                self.into()
            }
        }
    )* };
}

from_wit!(Content, Event, LlmRequest, LlmResponse, ToolCall);
into_wit!(Content => Content, Event => Event, LlmResponse => LlmResponse);
into_wit!(Before<LlmRequest, LlmResponse> => ModelAction, Before<ToolCall, Value> => ToolAction);

impl FromWit for Error {
    type Wit = types::Error;

    fn from_wit(wit: types::Error) -> Result<Self, Error> {
        Ok(wit.into())
    }
}

/// The answer of a tool is JSON text.
impl FromWit for Value {
    type Wit = String;

    fn from_wit(json: String) -> Result<Self, Error> {
        read(&json, "the answer of a tool")
    }
}

/// The answer of a tool is the JSON text of an object.
impl IntoWit for Value {
    type Wit = String;

    fn into_wit(self) -> String {
        object(answer_object(self))
    }
}

impl<T: IntoWit> IntoWit for Option<T> {
    type Wit = Option<T::Wit>;

    fn into_wit(self) -> Self::Wit {
        self.map(T::into_wit)
    }
}

impl IntoWit for () {
    type Wit = ();

    fn into_wit(self) {}
}

/// Returns the answer of a tool as an object. Other values are wrapped in one, as `result`.
pub(crate) fn answer_object(value: Value) -> JsonMap {
    match value {
        Value::Object(map) => map,
        other => JsonMap::from_iter([("result".to_owned(), other)]),
    }
}

impl TryFrom<types::ToolCall> for ToolCall {
    type Error = Error;

    fn try_from(call: types::ToolCall) -> Result<Self, Error> {
        let args = read(&call.args, "the arguments of a tool call")?;
        Ok(Self { tool: call.tool, args })
    }
}

impl From<Before<LlmRequest, LlmResponse>> for types::ModelAction {
    fn from(decision: Before<LlmRequest, LlmResponse>) -> Self {
        match decision {
            Before::Proceed => Self::Proceed,
            Before::Revise(request) => Self::Revise(request.into()),
            Before::Respond(response) => Self::Respond(response.into()),
        }
    }
}

impl From<Before<ToolCall, Value>> for types::ToolAction {
    fn from(decision: Before<ToolCall, Value>) -> Self {
        match decision {
            Before::Proceed => Self::Proceed,
            Before::Revise(call) => Self::Revise(object(call.args)),
            Before::Respond(value) => Self::Respond(value.into_wit()),
        }
    }
}
