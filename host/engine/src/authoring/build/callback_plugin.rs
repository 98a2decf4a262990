//! A plugin of callbacks.

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Callbacks, Content, JsonMap, LlmRequest, LlmResponse, ModelError, Plugin, RunError,
    ToolError, for_each_hook,
};

use super::callback::{agent_hook_methods, llm_hook_methods};

/// Callbacks that run for every agent, model call and tool call of a runner. At each point they run in order, and the
/// first answer wins.
///
/// ```
/// use hatchery_engine::build::CallbackPlugin;
///
/// let audit = CallbackPlugin::new("audit").before_tool_fn(|cx, tool, args| {
///     Box::pin(async move {
///         println!("{} calls {tool} with {args:?}", cx.agent);
///         Ok(None)
///     })
/// });
/// # hatchery_engine::Plugins::new(vec![std::sync::Arc::new(audit)]).unwrap();
/// ```
#[must_use]
pub struct CallbackPlugin {
    name: String,
    callbacks: Callbacks,
}

impl CallbackPlugin {
    /// Creates a plugin without callbacks.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), callbacks: Callbacks::default() }
    }

    agent_hook_methods!(callbacks);
    llm_hook_methods!(callbacks);
}

macro_rules! forward {
    ($( $(#[$doc:meta])* $point:ident $hook:ident $(($arg:ident: &$($type:tt)+))* -> $answer:ty; )*) => {
        #[async_trait]
        impl Callback for CallbackPlugin {
            fn name(&self) -> &str {
                &self.name
            }

            $(
                async fn $hook(&self, cx: &CallContext $(, $arg: &$($type)+)*) -> Result<Option<$answer>, RunError> {
                    self.callbacks.$hook(cx $(, $arg)*).await
                }
            )*
        }
    };
}

for_each_hook!(forward);

impl Plugin for CallbackPlugin {}
