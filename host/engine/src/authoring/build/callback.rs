//! Closures as callbacks, one shape for each place in a run.
//!
//! A closure borrows what it is given and boxes what it gives, since it may change what it borrows while it waits:
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
//! An `async fn` of the same parameters fits as `|cx, request| Box::pin(check(cx, request))`. The docs of [`Callback`]'s methods say what
//! each may change and what its answer replaces. A callback that serves several places, or has a name of its own for messages, is a type
//! that implements [`Callback`].

use async_trait::async_trait;
use futures::future::BoxFuture;
use hatchery_core::{
    CallContext, Callback, Content, JsonMap, LlmRequest, LlmResponse, ModelError, RunError, ToolError,
};

/// What a callback's closure gives.
pub type Answer<'a, T> = BoxFuture<'a, Result<Option<T>, RunError>>;

/// Defines the shape of a closure for one place, and the callback that it becomes.
macro_rules! closures {
    ($($method:ident, $shape:ident, $callback:ident, ($($name:ident: $given:ty, $taken:ty),*) -> $answer:ty;)*) => { $(
        #[doc = concat!("A closure for [`Callback::", stringify!($method), "`].")]
        pub trait $shape: for<'a> Fn(&'a CallContext $(, $given)*) -> Answer<'a, $answer> + Send + Sync + 'static {}

        impl<F> $shape for F where
            F: for<'a> Fn(&'a CallContext $(, $given)*) -> Answer<'a, $answer> + Send + Sync + 'static
        {
        }

        pub(crate) struct $callback<F>(pub(crate) F);

        #[async_trait]
        impl<F: $shape> Callback for $callback<F> {
            fn name(&self) -> &str {
                stringify!($method)
            }

            async fn $method(&self, cx: &CallContext $(, $name: $taken)*) -> Result<Option<$answer>, RunError> {
                (self.0)(cx $(, $name)*).await
            }
        }
    )* };
}

closures! {
    before_agent, BeforeAgentFn, BeforeAgent, () -> Content;
    after_agent, AfterAgentFn, AfterAgent, () -> Content;
    on_agent_error, OnAgentErrorFn, OnAgentError, (error: &'a RunError, &RunError) -> Content;
    before_model, BeforeModelFn, BeforeModel, (request: &'a mut LlmRequest, &mut LlmRequest) -> LlmResponse;
    after_model, AfterModelFn, AfterModel, (response: &'a LlmResponse, &LlmResponse) -> LlmResponse;
    on_model_error, OnModelErrorFn, OnModelError,
        (request: &'a LlmRequest, &LlmRequest, error: &'a ModelError, &ModelError) -> LlmResponse;
    before_tool, BeforeToolFn, BeforeTool, (tool: &'a str, &str, args: &'a mut JsonMap, &mut JsonMap) -> JsonMap;
    after_tool, AfterToolFn, AfterTool,
        (tool: &'a str, &str, args: &'a JsonMap, &JsonMap, response: &'a JsonMap, &JsonMap) -> JsonMap;
    on_tool_error, OnToolErrorFn, OnToolError,
        (tool: &'a str, &str, args: &'a JsonMap, &JsonMap, error: &'a ToolError, &ToolError) -> JsonMap;
}

/// The two methods by which a builder takes callbacks of one place.
macro_rules! point {
    ($($list:ident).+ : $method:ident, $method_fn:ident, $shape:ident, $callback:ident, $when:literal) => {
        #[doc = concat!("Runs a callback ", $when, ", after those that it has for this already.")]
        pub fn $method(mut self, callback: std::sync::Arc<dyn hatchery_core::Callback>) -> Self {
            self.$($list).+.push(callback);
            self
        }

        #[doc = concat!("Runs a closure ", $when, ". See [`callback`](crate::authoring::build::callback) for its shape.")]
        pub fn $method_fn(self, closure: impl $crate::authoring::build::callback::$shape) -> Self {
            self.$method(std::sync::Arc::new($crate::authoring::build::callback::$callback(closure)))
        }
    };
}

pub(crate) use point;
