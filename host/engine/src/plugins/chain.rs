//! The hook chain of an agent: the plugins of its run, then its own callbacks.

use std::sync::Arc;

use hatchery_core::{
    CallContext, Callbacks, Content, JsonMap, LlmRequest, LlmResponse, ModelError, Plugin, RunError, ToolError,
    for_each_hook,
};

/// The plugins and callbacks at each hook point of an agent, in order. Cheap to clone.
#[derive(Clone)]
pub(crate) struct HookChain {
    pub(super) plugins: Arc<[Arc<dyn Plugin>]>,
    /// `None` for calls that only plugins see.
    pub(super) callbacks: Option<Callbacks>,
}

macro_rules! run_in_order {
    ($( $(#[$doc:meta])* $point:ident $hook:ident $(($arg:ident: &$($type:tt)+))* -> $answer:ty; )*) => {
        /// Each method runs the chain in order and returns the first answer.
        impl HookChain {
            $(
                $(#[$doc])*
                pub(crate) async fn $hook(
                    &self,
                    cx: &CallContext
                    $(, $arg: &$($type)+)*
                ) -> Result<Option<$answer>, RunError> {
                    for plugin in self.plugins.iter() {
                        if let Some(answer) = plugin.$hook(cx $(, $arg)*).await? {
                            return Ok(Some(answer));
                        }
                    }
                    match &self.callbacks {
                        Some(callbacks) => callbacks.$hook(cx $(, $arg)*).await,
                        None => Ok(None),
                    }
                }
            )*
        }
    };
}

for_each_hook!(run_in_order);
