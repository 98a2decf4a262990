//! Tools that models call, and toolsets that are resolved while an agent runs.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent::AgentTree;
use crate::call_context::CallContext;
use crate::error::{RunError, ToolError};
use crate::json::JsonMap;
use crate::model::{FunctionDeclaration, LlmRequest};

/// Decides whether the tool with this [qualified name](Tool::qualified_name) may be called.
pub type ToolAuthorizer<'a> = &'a (dyn Fn(&str) -> Result<(), ToolError> + Send + Sync);

/// A function that a model can call, or a change of the model's requests. Agents use native tools and components' tools
/// in the same way.
///
/// One tool serves many runs at the same time. [`Tool::prepare`] runs in the agent's task before each model call.
/// [`Tool::call`] runs once per function call, and the calls of one model response run concurrently. Neither may block
/// its thread: use `spawn_blocking` for work that takes more than about a millisecond. If the run is cancelled, the
/// future of a call is dropped.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
/// use serde_json::{Value, json};
///
/// /// Remembers a note in the session.
/// struct TakeNote(Arc<FunctionDeclaration>);
///
/// impl TakeNote {
///     fn new() -> Self {
///         Self(Arc::new(FunctionDeclaration {
///             name: "take_note".into(),
///             description: "Remembers a short text.".into(),
///             parameters: Some(json!({"type": "object", "properties": {"text": {"type": "string"}}})),
///             response: None,
///         }))
///     }
/// }
///
/// #[async_trait]
/// impl Tool for TakeNote {
///     fn declaration(&self) -> &Arc<FunctionDeclaration> {
///         &self.0
///     }
///
///     async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
///         let text = args.get("text").and_then(Value::as_str).unwrap_or_default();
///         if text.is_empty() {
///             // The model reads this and can call the tool again.
///             return Err(ToolError::Recoverable("`text` is empty".into()));
///         }
///         cx.set_state("note", json!(text));
///         Ok(json!({"saved": true}))
///     }
/// }
///
/// let tool = TakeNote::new();
/// assert_eq!(tool.qualified_name(), "take_note");
/// assert!(tool.is_callable() && !tool.requires_confirmation());
/// ```
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns the name, description and argument schema that the model sees.
    fn declaration(&self) -> &Arc<FunctionDeclaration>;

    /// Returns the name that identifies the tool in all agents: `component/tool` for a tool of a
    /// component, `agent:NAME` for an agent that is called as a tool, and the name of the declaration for any other. A
    /// wrapper returns the name of the tool inside.
    fn qualified_name(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.declaration().name)
    }

    /// Returns this tool for use with `args` of an agent definition. The default takes none.
    ///
    /// # Errors
    /// The reason why the arguments are invalid, or that the tool takes none.
    fn with_arguments(&self, args: JsonMap) -> Result<Arc<dyn Tool>, String> {
        let _ = args;
        Err("takes no `args`".into())
    }

    /// Returns true if the result arrives later. The call's id is then reported in the event, and the turn may end
    /// without a result.
    fn is_long_running(&self) -> bool {
        false
    }

    /// Returns false if the tool only changes requests and a model cannot call it.
    fn is_callable(&self) -> bool {
        true
    }

    /// Returns true if a person must approve each call before it runs.
    fn requires_confirmation(&self) -> bool {
        false
    }

    /// Returns true if a call that was interrupted by a crash may be repeated (the default). If false, the model gets
    /// an error instead, because the effect of the call is unknown.
    fn is_idempotent(&self) -> bool {
        true
    }

    /// Returns the agents that the tool runs, if it is an agent of this host that is called as a tool. The default is
    /// `None`.
    fn agents(&self) -> Option<&AgentTree> {
        None
    }

    /// Adds the tool to a request. The default adds its declaration.
    ///
    /// # Errors
    /// If the tool cannot be used with this request. The error ends the run.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let _ = cx;
        request.tools.push(self.declaration().clone());
        Ok(())
    }

    /// Runs the tool. The result may be any JSON: values other than objects are sent to the model as `{"result": …}`. A
    /// long-running tool returns `null` if it has nothing to report yet.
    ///
    /// # Errors
    /// [`ToolError::Recoverable`] is sent to the model as `{"error": …}`, [`ToolError::Fatal`] ends the run.
    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError>;
}

/// A set of tools that is not known before an agent runs, such as the tools of a server, or the tools that a user may
/// use.
///
/// All methods run in the agent's task and may await, but not block. [`Toolset::tools`] is called before each model
/// call, so it should cache expensive results.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use hatchery_core::{CallContext, RunError, Tool, Toolset};
///
/// /// Offers its tools to administrators only.
/// struct AdminTools(Vec<Arc<dyn Tool>>);
///
/// #[async_trait]
/// impl Toolset for AdminTools {
///     fn name(&self) -> &str {
///         "admin"
///     }
///
///     async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
///         let is_admin = cx.state("user:admin") == Some(true.into());
///         Ok(if is_admin { self.0.clone() } else { Vec::new() })
///     }
/// }
///
/// assert_eq!(AdminTools(Vec::new()).name(), "admin");
/// ```
#[async_trait]
pub trait Toolset: Send + Sync {
    /// Returns the name that messages use.
    fn name(&self) -> &str;

    /// Returns the names of its tools if they are always the same. The default is `None`: they depend on the run.
    fn tool_names(&self) -> Option<Vec<String>> {
        None
    }

    /// Returns the tools. Called before each model call.
    ///
    /// # Errors
    /// If the tools cannot be determined. The error ends the run.
    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError>;

    /// Changes a request, in addition to the changes of the tools.
    ///
    /// # Errors
    /// If the toolset cannot be used with this request. The error ends the run.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let _ = (request, cx);
        Ok(())
    }

    /// Releases connections and other resources. No other method is called afterwards.
    async fn close(&self) {}
}
