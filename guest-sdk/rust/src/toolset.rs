//! Toolsets of a component: [`ToolsetExport`], whose tools are computed before each model call, and [`DynamicTool`].

use std::fmt;
use std::future::Future;
use std::rc::Rc;

use serde_json::Value;

use crate::bindings::toolsets::exports::hatchery::agent::guest_toolsets as wit;
use crate::bindings::wit::types;
use crate::context::{Context, ToolContext};
use crate::convert::read;
use crate::error::{Error, ToolError};
use crate::export::{ExportList, find};
use crate::model::FunctionDeclaration;
use crate::tool::{LocalFuture, Tool};

/// A toolset: code that computes the tools for a model call.
///
/// ```
/// # use hatchery_guest::prelude::*;
/// # use hatchery_guest::ToolsetExport;
/// /// Bans a user.
/// #[tool]
/// async fn ban() -> &'static str {
///     "banned"
/// }
///
/// /// Offers its tools to administrators only.
/// fn admin_tools() -> ToolsetExport {
///     ToolsetExport::new("admin", async |cx: Context| {
///         let is_admin = cx.state::<bool>("admin")?.unwrap_or(false);
///         Ok(if is_admin { vec![ban().into()] } else { Vec::new() })
///     })
/// }
///
/// #[agent]
/// fn moderator() -> LlmAgent {
///     LlmAgent::new("moderator").toolset("admin")
/// }
/// # hatchery_guest::export! { agents: [moderator], toolsets: [admin_tools] }
/// ```
#[derive(Clone)]
pub struct ToolsetExport {
    name: &'static str,
    tools: Rc<ListTools>,
}

impl ToolsetExport {
    /// Creates a toolset from an async function. It is called before each model call, where changes fail with the code
    /// `READ_ONLY`, and once more for each call of one of its tools.
    pub fn new<F, R>(name: &'static str, tools: F) -> Self
    where
        F: Fn(Context) -> R + 'static,
        R: Future<Output = Result<Vec<DynamicTool>, Error>> + 'static,
    {
        Self { name, tools: Rc::new(move |cx| Box::pin(tools(cx))) }
    }

    /// Returns its tools.
    pub(crate) async fn tools(&self) -> Result<Vec<DynamicTool>, Error> {
        (self.tools)(Context::new()).await
    }

    /// Calls one of its tools.
    pub(crate) async fn call(&self, tool: &str, args: String) -> Result<String, ToolError> {
        let tools = self.tools().await?;
        let found = tools.into_iter().find(|found| found.declaration.name == tool);
        let unknown = || ToolError::Recoverable(format!("toolset `{}` has no tool `{tool}` now", self.name));
        (found.ok_or_else(unknown)?.run)(args, ToolContext::new()).await
    }
}

impl fmt::Debug for ToolsetExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolsetExport").field("name", &self.name).finish_non_exhaustive()
    }
}

type ListTools = dyn Fn(Context) -> LocalFuture<Result<Vec<DynamicTool>, Error>>;
type CallTool = dyn Fn(String, ToolContext) -> LocalFuture<Result<String, ToolError>>;

/// A tool of a toolset. Converts from a function marked `#[tool]`, as in `roll_die().into()`.
#[derive(Clone)]
pub struct DynamicTool {
    declaration: FunctionDeclaration,
    long_running: bool,
    requires_confirmation: bool,
    run: Rc<CallTool>,
}

impl DynamicTool {
    /// Creates a tool from an async function of its arguments, a JSON object.
    pub fn new<F, R>(name: impl Into<String>, description: impl Into<String>, run: F) -> Self
    where
        F: Fn(Value, ToolContext) -> R + Clone + 'static,
        R: Future<Output = Result<Value, ToolError>> + 'static,
    {
        let run = move |args: String, cx| -> LocalFuture<_> {
            let run = run.clone();
            Box::pin(async move { Ok(run(read(&args, "the arguments")?, cx).await?.to_string()) })
        };
        let declaration = FunctionDeclaration {
            name: name.into(),
            description: description.into(),
            ..FunctionDeclaration::default()
        };
        Self { declaration, long_running: false, requires_confirmation: false, run: Rc::new(run) }
    }

    /// Sets the JSON Schema of the arguments.
    #[must_use]
    pub fn parameters(mut self, schema: impl Into<Value>) -> Self {
        self.declaration.parameters = Some(schema.into());
        self
    }

    /// Marks the tool as long-running: its result arrives later.
    #[must_use]
    pub fn long_running(mut self) -> Self {
        self.long_running = true;
        self
    }

    /// Requires a person to approve each call before it runs.
    #[must_use]
    pub fn confirm(mut self) -> Self {
        self.requires_confirmation = true;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.declaration.name
    }
}

impl From<Tool> for DynamicTool {
    fn from(tool: Tool) -> Self {
        Self {
            declaration: FunctionDeclaration {
                name: tool.name.into(),
                description: tool.description.into(),
                parameters: (tool.parameters)(),
                response: None,
            },
            long_running: tool.long_running,
            requires_confirmation: tool.requires_confirmation,
            run: Rc::new(tool.run),
        }
    }
}

impl fmt::Debug for DynamicTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamicTool").field("declaration", &self.declaration).finish_non_exhaustive()
    }
}

impl<S: ExportList<ToolsetExport>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|toolset| toolset.name.into()).collect()
    }

    async fn tools(name: String) -> Result<Vec<wit::ToolSpec>, types::Error> {
        let toolset = find(S::items(), "toolset", &name, |toolset| toolset.name)?;
        let spec = |tool: DynamicTool| wit::ToolSpec {
            declaration: tool.declaration.into(),
            long_running: tool.long_running,
            requires_confirmation: tool.requires_confirmation,
        };
        Ok(toolset.tools().await?.into_iter().map(spec).collect())
    }

    async fn call(toolset: String, tool: String, args: String) -> Result<String, types::ToolError> {
        let toolset = find(S::items(), "toolset", &toolset, |toolset| toolset.name).map_err(ToolError::fatal)?;
        Ok(toolset.call(&tool, args).await?)
    }
}
