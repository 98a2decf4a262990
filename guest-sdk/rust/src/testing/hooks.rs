//! Runs callbacks and the hooks of plugins.

use std::marker::PhantomData;

use serde_json::Value;

use super::Host;
use super::scope::Call;
use crate::callback::{
    AfterAgent, AfterModel, AfterTool, Before, BeforeAgent, BeforeModel, BeforeTool, Callback, OnAgentError,
    OnModelError, OnToolError, Run, ToolCall,
};
use crate::content::{Content, JsonMap};
use crate::context::CallbackContext;
use crate::error::Error;
use crate::event::Event;
use crate::hook::{answer_object, for_each_hook};
use crate::model::{LlmRequest, LlmResponse};
use crate::plugin::{Hooks, Plugin};

/// A plugin in a host. A hook that the plugin does not have changes nothing, as in a real host.
pub struct HostedPlugin<'a, P> {
    host: &'a Host,
    plugin: PhantomData<P>,
}

impl Host {
    /// Returns a plugin with its hooks as methods.
    pub fn plugin<P: Plugin>(&self) -> HostedPlugin<'_, P> {
        HostedPlugin { host: self, plugin: PhantomData }
    }

    fn hook<I, O>(&self, call: Call, run: Run<I, O>, input: I) -> Result<O, Error> {
        self.serve(call, async { run(input, CallbackContext::new()).await }, |_| false)
    }
}

/// Converts inputs and outputs of hooks as a real host does: answers of tools become objects.
trait Normalize {
    fn normalize(self) -> Self;
}

macro_rules! unchanged {
    ($($type:ty),*) => { $( impl Normalize for $type { fn normalize(self) -> Self { self } } )* };
}

unchanged!((), Content, Error, Event, LlmRequest, LlmResponse, ToolCall);
unchanged!(Option<Content>, Option<LlmResponse>, Option<Event>, Before<LlmRequest, LlmResponse>);

impl Normalize for Value {
    fn normalize(self) -> Self {
        match self {
            Self::Null => Self::Object(JsonMap::new()),
            other => Self::Object(answer_object(other)),
        }
    }
}

impl Normalize for Option<Value> {
    fn normalize(self) -> Self {
        self.map(|value| Value::Object(answer_object(value)))
    }
}

impl Normalize for Before<ToolCall, Value> {
    fn normalize(self) -> Self {
        match self {
            Self::Respond(value) => Self::Respond(Value::Object(answer_object(value))),
            other => other,
        }
    }
}

/// The output of a hook that a plugin does not have.
trait UnchangedOutput {
    const UNCHANGED: Self;
}

impl UnchangedOutput for () {
    const UNCHANGED: Self = ();
}

impl<T> UnchangedOutput for Option<T> {
    const UNCHANGED: Self = None;
}

impl<I, O> UnchangedOutput for Before<I, O> {
    const UNCHANGED: Self = Self::Proceed;
}

macro_rules! callback_methods {
    (() runs $_runs:tt agents { $($agents:tt)* } calls { $($calls:tt)* }) => {
        callback_methods! { $($agents)* $($calls)* }
    };
    ($(
        $(#[$doc:meta])* $hook:ident $point:ident $_name:literal ($($input:ident: $type:ty),*) -> $output:ty, $call:ident;
    )*) => {
        /// Callbacks.
        impl Host {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The error that the callback returns.
                pub fn $hook(
                    &self,
                    callback: impl FnOnce() -> Callback<$point>
                    $(, $input: $type)*
                ) -> Result<$output, Error> {
                    self.hook(self.$call(), callback().point.0, ($($input.normalize()),*)).map(Normalize::normalize)
                }
            )*
        }
    };
}

macro_rules! plugin_methods {
    (() runs { $($runs:tt)* } agents { $($agents:tt)* } calls { $($calls:tt)* }) => {
        plugin_methods! { $($runs)* $($agents)* $($calls)* }
    };
    ($(
        $(#[$doc:meta])* $hook:ident $_point:ident $_name:literal ($($input:ident: $type:ty),*) -> $output:ty, $call:ident;
    )*) => {
        impl<P: Plugin> HostedPlugin<'_, P> {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// The error that the hook returns.
                pub fn $hook(&self $(, $input: $type)*) -> Result<$output, Error> {
                    let Hooks { $hook: hook, .. } = P::HOOKS;
                    let Some(hook) = hook else { return Ok(UnchangedOutput::UNCHANGED) };
                    self.host.hook(self.host.$call(), hook, ($($input.normalize()),*)).map(Normalize::normalize)
                }
            )*
        }
    };
}

for_each_hook!(callback_methods);
for_each_hook!(plugin_methods);
