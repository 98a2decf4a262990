//! Closures as callbacks, one shape for each hook point.
//!
//! A closure borrows its arguments and returns a boxed future, since it may change them while it waits:
//!
//! ```
//! use hatchery_engine::build::llm;
//!
//! let agent = llm("writer").before_model_fn(|cx, request| {
//!     Box::pin(async move {
//!         if let Some(mood) = cx.state("mood") {
//!             request.system_instructions.push(format!("You are in this mood: {mood}."));
//!         }
//!         Ok(None)
//!     })
//! });
//! # agent.build().unwrap();
//! ```
//!
//! An `async fn` of the same parameters fits as `|cx, request| Box::pin(check(cx, request))`. The docs of
//! [`Callback`]'s methods document the arguments that each may change, and the effect of its answer. A callback that
//! serves several points, or has its own name for messages, is a type that implements [`Callback`].

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use hatchery_core::{
    CallContext, Callback, Content, JsonMap, LlmRequest, LlmResponse, ModelError, RunError, ToolError, for_each_hook,
};

/// The future that a callback's closure returns.
pub type Answer<'a, T> = BoxFuture<'a, Result<Option<T>, RunError>>;

/// Defines for each hook point a trait of closures, and a function that wraps a closure in a callback.
macro_rules! closures {
    ($( $(#[$doc:meta])* $point:ident $hook:ident $(($arg:ident: &$($type:tt)+))* -> $answer:ty; )*) => { $(
        #[doc = concat!("A closure for [`Callback::", stringify!($hook), "`].")]
        pub trait $point:
            for<'a> Fn(&'a CallContext $(, &'a $($type)+)*) -> Answer<'a, $answer> + Send + Sync + 'static
        {
        }

        impl<F> $point for F where
            F: for<'a> Fn(&'a CallContext $(, &'a $($type)+)*) -> Answer<'a, $answer> + Send + Sync + 'static
        {
        }

        #[doc = concat!("Returns a closure as a callback for [`Callback::", stringify!($hook), "`].")]
        pub fn $hook(closure: impl $point) -> Arc<dyn Callback> {
            struct Closure<F>(F);

            #[async_trait]
            impl<F: $point> Callback for Closure<F> {
                fn name(&self) -> &str {
                    stringify!($hook)
                }

                async fn $hook(&self, cx: &CallContext $(, $arg: &$($type)+)*) -> Result<Option<$answer>, RunError> {
                    (self.0)(cx $(, $arg)*).await
                }
            }

            Arc::new(Closure(closure))
        }
    )* };
}

for_each_hook!(closures);

/// The two methods by which a builder takes callbacks of one point. They go to its field `$callbacks`.
macro_rules! hook_methods {
    ($($callbacks:ident).+: $point:ident $hook:ident $hook_fn:ident, $when:literal) => {
        #[doc = concat!("Runs a callback ", $when, ", after those that are there already.")]
        pub fn $hook(mut self, callback: std::sync::Arc<dyn hatchery_core::Callback>) -> Self {
            self.$($callbacks).+.push(hatchery_core::HookPoint::$point, callback);
            self
        }

        #[doc = concat!("Runs a closure ", $when, ". See [`callback`](crate::authoring::build::callback) for its shape.")]
        pub fn $hook_fn(self, closure: impl $crate::authoring::build::callback::$point) -> Self {
            self.$hook($crate::authoring::build::callback::$hook(closure))
        }
    };
}

/// The methods for the points of agents of every kind.
macro_rules! agent_hook_methods {
    ($($callbacks:ident).+) => {
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: BeforeAgent before_agent before_agent_fn, "before the agent"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: AfterAgent after_agent after_agent_fn, "after the agent"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: OnAgentError on_agent_error on_agent_error_fn, "if the agent failed"
        }
    };
}

/// The methods for the points of model and tool calls.
macro_rules! llm_hook_methods {
    ($($callbacks:ident).+) => {
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: BeforeModel before_model before_model_fn, "before each model call"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: AfterModel after_model after_model_fn, "after each model response"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: OnModelError on_model_error on_model_error_fn, "if a model call failed"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: BeforeTool before_tool before_tool_fn, "before each tool call"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: AfterTool after_tool after_tool_fn, "after each tool call"
        }
        $crate::authoring::build::callback::hook_methods! {
            $($callbacks).+: OnToolError on_tool_error on_tool_error_fn, "if a tool call failed"
        }
    };
}

pub(crate) use {agent_hook_methods, hook_methods, llm_hook_methods};
