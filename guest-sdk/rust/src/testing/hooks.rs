//! Running callbacks and plugins' hooks.

use std::marker::PhantomData;

use serde_json::Value;

use super::Host;
use super::scope::Call;
use crate::callback::{
    AfterAgent, AfterModel, AfterTool, Before, BeforeAgent, BeforeModel, BeforeTool, Callback, OnAgentError,
    OnModelError, OnToolError, Run, ToolCall, answer_object,
};
use crate::content::{Content, JsonMap};
use crate::context::CallbackContext;
use crate::error::Error;
use crate::event::Event;
use crate::model::{LlmRequest, LlmResponse};
use crate::plugin::{Hooks, Plugin};

/// A plugin in a host. Its hooks are called as the host would: one that the plugin does not have changes nothing.
pub struct HostedPlugin<'a, P> {
    host: &'a Host,
    plugin: PhantomData<P>,
}

impl Host {
    /// A plugin, whose hooks are the methods of what this gives.
    pub fn plugin<P: Plugin>(&self) -> HostedPlugin<'_, P> {
        HostedPlugin { host: self, plugin: PhantomData }
    }

    fn hook<I, O>(&self, call: Call, run: Run<I, O>, input: I) -> Result<O, Error> {
        self.serve(call, async { run(input, CallbackContext::new()).await }, |_| false)
    }
}

/// What the host does with what it hands over, and with an answer before it counts.
trait Settle {
    fn settle(self) -> Self;
}

macro_rules! as_it_is {
    ($($answer:ty),*) => { $( impl Settle for $answer { fn settle(self) -> Self { self } } )* };
}

as_it_is!((), Content, Error, Event, LlmRequest, LlmResponse, ToolCall, Option<Content>, Option<LlmResponse>, Option<Event>, Before<LlmRequest, LlmResponse>);

/// The answer of a tool is shown as an object.
impl Settle for Value {
    fn settle(self) -> Self {
        match self {
            Self::Null => Self::Object(JsonMap::new()),
            other => Self::Object(answer_object(other)),
        }
    }
}

/// An answer in place of a tool's becomes an object.
impl Settle for Option<Value> {
    fn settle(self) -> Self {
        self.map(|value| Value::Object(answer_object(value)))
    }
}

impl Settle for Before<ToolCall, Value> {
    fn settle(self) -> Self {
        match self {
            Self::Respond(value) => Self::Respond(Value::Object(answer_object(value))),
            other => other,
        }
    }
}

/// Nothing changes.
trait Nothing {
    const NOTHING: Self;
}

impl Nothing for () {
    const NOTHING: Self = ();
}

impl<T> Nothing for Option<T> {
    const NOTHING: Self = None;
}

impl<I, O> Nothing for Before<I, O> {
    const NOTHING: Self = Self::Proceed;
}

/// The points that callbacks and plugins share, and the call that each is made for.
macro_rules! points {
    ($($(#[doc = $comment:literal])* $hook:ident: $point:ident($($input:ident: $type:ty),*) => $output:ty, $call:ident;)*) => {
        /// Callbacks.
        impl Host {
            $(
                $(#[doc = $comment])*
                ///
                /// # Errors
                /// As the callback.
                pub fn $hook(
                    &self,
                    callback: impl FnOnce() -> Callback<$point>,
                    $($input: $type),*
                ) -> Result<$output, Error> {
                    self.hook(self.$call(), callback().point.0, ($($input.settle()),*)).map(Settle::settle)
                }
            )*
        }

        hooks! { $($(#[doc = $comment])* $hook($($input: $type),*) => $output, $call;)* }
    };
}

macro_rules! hooks {
    ($($(#[doc = $comment:literal])* $hook:ident($($input:ident: $type:ty),*) => $output:ty, $call:ident;)*) => {
        impl<P: Plugin> HostedPlugin<'_, P> {
            $(
                $(#[doc = $comment])*
                ///
                /// # Errors
                /// As the hook.
                pub fn $hook(&self, $($input: $type),*) -> Result<$output, Error> {
                    let Hooks { $hook: hook, .. } = P::HOOKS;
                    let Some(hook) = hook else { return Ok(Nothing::NOTHING) };
                    self.host.hook(self.host.$call(), hook, ($($input.settle()),*)).map(Settle::settle)
                }
            )*
        }
    };
}

points! {
    /// Before an agent runs: a content is its answer, and it does not run.
    before_agent: BeforeAgent() => Option<Content>, run_call;
    /// After an agent has run: a content is added to what it said.
    after_agent: AfterAgent() => Option<Content>, run_call;
    /// When an agent has failed: a content is its answer.
    on_agent_error: OnAgentError(failure: Error) => Option<Content>, run_call;
    /// Before a model call.
    before_model: BeforeModel(request: LlmRequest) => Before<LlmRequest, LlmResponse>, run_call;
    /// After a model response: a response takes its place.
    after_model: AfterModel(response: LlmResponse) => Option<LlmResponse>, run_call;
    /// When a model call has failed: a response takes the place of the failure.
    on_model_error: OnModelError(request: LlmRequest, failure: Error) => Option<LlmResponse>, run_call;
    /// Before a tool call. An answer that is no object is put into one, as `result`.
    before_tool: BeforeTool(call: ToolCall) => Before<ToolCall, Value>, function_call;
    /// After a tool call: an object takes the place of its answer; another value is put into one, as `result`. So is the answer that the
    /// code is shown.
    after_tool: AfterTool(call: ToolCall, answer: Value) => Option<Value>, function_call;
    /// When a tool call has failed: an object takes the place of the failure; another value is put into one, as `result`.
    on_tool_error: OnToolError(call: ToolCall, failure: Error) => Option<Value>, function_call;
}

hooks! {
    /// When the user has said something: a content takes the place of the message.
    on_user_message(message: Content) => Option<Content>, run_call;
    /// Before the agent runs: a content is the run's answer, and no agent runs.
    before_run() => Option<Content>, run_call;
    /// Before an event is stored and yielded: another takes its place in both.
    on_event(event: Event) => Option<Event>, run_call;
    /// After a run that did not fail.
    after_run() => (), run_call;
    /// After a run that failed.
    on_run_error(failure: Error) => (), run_call;
}
