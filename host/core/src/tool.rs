//! Tools: what an agent can do beside talking, and sets of them that are looked up when an agent runs.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::content::JsonMap;
use crate::context::CallContext;
use crate::error::{RunError, ToolError};
use crate::model::{FunctionDeclaration, LlmRequest};

/// Whether a tool of this full name may be called, as in [`Tool::qualified_name`].
pub type ToolAuthorizer<'a> = &'a (dyn Fn(&str) -> Result<(), ToolError> + Send + Sync);

/// Something that a model can call, or that changes what the model is asked. Native and component tools are the same to an agent.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Name, description and argument schema.
    fn declaration(&self) -> &Arc<FunctionDeclaration>;

    /// What it is, whatever an agent calls it: `component/tool` for a tool of a component, `agent:NAME` for an agent that is called as a
    /// tool, and for any other the name of its declaration. Whatever wraps a tool gives that of the tool inside.
    fn qualified_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.declaration().name)
    }

    /// True when a result comes later: the call's id is reported, and the turn may end without a result.
    fn is_long_running(&self) -> bool {
        false
    }

    /// False when it only changes requests and a model cannot call it.
    fn is_callable(&self) -> bool {
        true
    }

    /// True when a person has to agree to each call before it runs.
    fn requires_confirmation(&self) -> bool {
        false
    }

    /// Puts itself into a request; by default, adds its declaration.
    ///
    /// # Errors
    /// When it cannot be used with this request; the run ends.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let _ = cx;
        request.tools.push(self.declaration().clone());
        Ok(())
    }

    /// Runs. The result may be any JSON; the model gets an object, so other values are wrapped as `{"result": …}`. `null` from a
    /// long-running tool means that there is nothing to tell yet.
    ///
    /// # Errors
    /// [`ToolError::Recoverable`] goes to the model as `{"error": …}`, [`ToolError::Fatal`] ends the run.
    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError>;
}

/// Tools that are not known before an agent runs: those of a server, or those that a user may use.
#[async_trait]
pub trait Toolset: Send + Sync {
    /// Its name, for messages.
    fn name(&self) -> &str;

    /// The tools, asked for before each model call.
    ///
    /// # Errors
    /// End the run.
    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError>;

    /// Changes a request, beside what its tools do.
    ///
    /// # Errors
    /// End the run.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let _ = (request, cx);
        Ok(())
    }

    /// Lets go of connections and the like; it will not be asked again.
    async fn close(&self) {}
}
