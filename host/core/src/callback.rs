//! Callbacks: hooks before and after an agent, a model call or a tool call, and on their errors.
//!
//! [`for_each_hook`](crate::for_each_hook) is the table of hook points. The methods of [`Callback`], the cases of
//! [`HookPoint`] and the forwarding code of other crates come from it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::call_context::CallContext;
use crate::content::Content;
use crate::error::{ModelError, RunError, ToolError};
use crate::json::JsonMap;
use crate::model::{LlmRequest, LlmResponse};

/// Calls a macro with the table of hook points.
///
/// A row is `Point method (argument: &Type)… -> Answer;` after its docs. An answer replaces the result of the step, and
/// `None` leaves it as it is. The calling module imports the types that the rows name. The pattern of a row is:
///
/// ```text
/// $( $(#[$doc:meta])* $point:ident $hook:ident $(($arg:ident: &$($type:tt)+))* -> $answer:ty; )*
/// ```
#[macro_export]
macro_rules! for_each_hook {
    ($macro:ident) => {
        $macro! {
            /// Runs before an agent. The content is the agent's answer: the agent does not run.
            BeforeAgent before_agent -> Content;

            /// Runs after an agent. The content is appended to its answer.
            AfterAgent after_agent -> Content;

            /// Runs if an agent failed. The content is the agent's answer, and the run continues.
            OnAgentError on_agent_error (error: &RunError) -> Content;

            /// Runs before a model call and may change the request. The response replaces the call.
            BeforeModel before_model (request: &mut LlmRequest) -> LlmResponse;

            /// Runs after each response of a model, including partial ones. The response replaces it.
            AfterModel after_model (response: &LlmResponse) -> LlmResponse;

            /// Runs if a model call failed. The response replaces the error, and passes through `after_model`.
            OnModelError on_model_error (request: &LlmRequest) (error: &ModelError) -> LlmResponse;

            /// Runs before a tool call and may change the arguments. The map replaces the call.
            BeforeTool before_tool (tool: &str) (args: &mut JsonMap) -> JsonMap;

            /// Runs after a tool call, even if `before_tool` answered it. The map replaces the tool's response.
            AfterTool after_tool (tool: &str) (args: &JsonMap) (response: &JsonMap) -> JsonMap;

            /// Runs if a tool call failed. The map replaces the error, and passes through `after_tool`.
            OnToolError on_tool_error (tool: &str) (args: &JsonMap) (error: &ToolError) -> JsonMap;
        }
    };
}

macro_rules! define_callbacks {
    ($( $(#[$doc:meta])* $point:ident $hook:ident $(($arg:ident: &$($type:tt)+))* -> $answer:ty; )*) => {
        /// A callback. The [`HookPoint`] at which it is registered decides which method is called. The default of each
        /// method changes nothing. An error ends the run.
        ///
        /// ```
        /// use async_trait::async_trait;
        /// use hatchery_core::{CallContext, Callback, JsonMap, RunError};
        ///
        /// struct ReadOnly;
        ///
        /// #[async_trait]
        /// impl Callback for ReadOnly {
        ///     fn name(&self) -> &str {
        ///         "read_only"
        ///     }
        ///
        ///     async fn before_tool(
        ///         &self,
        ///         _cx: &CallContext,
        ///         tool: &str,
        ///         _args: &mut JsonMap,
        ///     ) -> Result<Option<JsonMap>, RunError> {
        ///         let refusal = || JsonMap::from_iter([("error".into(), "this agent only reads".into())]);
        ///         Ok(tool.starts_with("write_").then(refusal))
        ///     }
        /// }
        /// ```
        #[async_trait]
        pub trait Callback: Send + Sync {
            /// Returns the name that messages use.
            fn name(&self) -> &str;

            /// Checks that the callback can be registered at a point. The default can at every point.
            ///
            /// # Errors
            /// The hook points that the callback implements instead.
            fn check_point(&self, point: HookPoint) -> Result<(), String> {
                let _ = point;
                Ok(())
            }

            $(
                $(#[$doc])*
                async fn $hook(&self, cx: &CallContext $(, $arg: &$($type)+)*) -> Result<Option<$answer>, RunError> {
                    let _ = (cx, $($arg),*);
                    Ok(None)
                }
            )*
        }

        /// A point of a run at which callbacks run: one per hook method of [`Callback`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum HookPoint {
            $( #[doc = concat!("The point of [`Callback::", stringify!($hook), "`].")] $point, )*
        }

        impl HookPoint {
            /// All points.
            pub const ALL: &'static [Self] = &[$(Self::$point),*];

            /// Returns the name of the method, such as `before_agent`.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$point => stringify!($hook), )*
                }
            }
        }

        /// Each method runs the callbacks of its point in order and returns the first answer.
        impl Callbacks {
            $(
                $(#[$doc])*
                pub async fn $hook(
                    &self,
                    cx: &CallContext
                    $(, $arg: &$($type)+)*
                ) -> Result<Option<$answer>, RunError> {
                    for callback in self.at(HookPoint::$point) {
                        if let Some(answer) = callback.$hook(cx $(, $arg)*).await? {
                            return Ok(Some(answer));
                        }
                    }
                    Ok(None)
                }
            )*
        }
    };
}

for_each_hook!(define_callbacks);

impl HookPoint {
    /// Returns the point of this [name](HookPoint::name).
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|point| point.name() == name)
    }

    /// Returns true for the points of agents of every kind. The others are points of LLM agents.
    pub fn is_for_all_agents(self) -> bool {
        matches!(self, Self::BeforeAgent | Self::AfterAgent | Self::OnAgentError)
    }
}

/// Callbacks by hook point, in the order in which they run. Cheap to clone.
#[derive(Clone, Default)]
pub struct Callbacks {
    entries: Arc<Vec<(HookPoint, Arc<dyn Callback>)>>,
}

impl Callbacks {
    /// Appends a callback to the callbacks of a point.
    pub fn push(&mut self, point: HookPoint, callback: Arc<dyn Callback>) {
        Arc::make_mut(&mut self.entries).push((point, callback));
    }

    /// Returns the callbacks of a point in order.
    pub fn at(&self, point: HookPoint) -> impl Iterator<Item = &Arc<dyn Callback>> {
        self.entries.iter().filter(move |(at, _)| *at == point).map(|(_, callback)| callback)
    }
}
