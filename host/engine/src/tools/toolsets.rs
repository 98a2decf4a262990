//! Sets of tools, and what can be made of one: fewer tools, tools under other names, tools that a person has to agree to.
//!
//! ```
//! use hatchery_core::JsonMap;
//! use hatchery_engine::build::{function_tool, llm};
//! use hatchery_engine::toolsets::{StaticToolset, IntoToolset};
//!
//! let pi = function_tool("pi", "The number pi.", |_: JsonMap, _| async { Ok(std::f64::consts::PI) });
//! let e = function_tool("e", "Euler's number.", |_: JsonMap, _| async { Ok(std::f64::consts::E) });
//! let maths = StaticToolset::new("maths").tool(pi).tool(e);
//! let agent = llm("student").toolset(maths.only(["pi"]).prefix("maths_"));
//! # agent.build().unwrap();
//! ```
//!
//! An agent's toolsets are asked for their tools before each model call, so what they answer may change while the agent runs.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, RunError, Tool, Toolset, WrapperTool, WrapperToolset};

use crate::authoring::build::IntoTool;
use crate::tools::builtin::RequireConfirmation;

/// What can be made of a toolset: one of this module, or any other in an [`Arc`].
pub trait IntoToolset: Sized {
    /// The toolset.
    fn into_toolset(self) -> Arc<dyn Toolset>;

    /// Only the tools of these names. Names that the toolset does not have are passed over: it may have them at another time.
    fn only<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> FilteredToolset {
        let names: HashSet<String> = names.into_iter().map(Into::into).collect();
        self.filtered(move |tool| names.contains(&tool.name))
    }

    /// Only the tools for which `keep` says so.
    fn filtered(self, keep: impl Fn(&FunctionDeclaration) -> bool + Send + Sync + 'static) -> FilteredToolset {
        FilteredToolset { inner: self.into_toolset(), keep: Box::new(keep) }
    }

    /// The same tools, whose names begin with `prefix` for the model, and for callbacks that see its calls.
    fn prefix(self, prefix: impl Into<String>) -> PrefixedToolset {
        PrefixedToolset { inner: self.into_toolset(), prefix: prefix.into() }
    }

    /// The same tools, where a person has to agree to each call.
    fn requiring_confirmation(self) -> ApprovalRequiredToolset {
        ApprovalRequiredToolset(self.into_toolset())
    }
}

impl IntoToolset for Arc<dyn Toolset> {
    fn into_toolset(self) -> Arc<dyn Toolset> {
        self
    }
}

impl<T: Toolset + 'static> IntoToolset for Arc<T> {
    fn into_toolset(self) -> Arc<dyn Toolset> {
        self
    }
}

macro_rules! toolsets {
    ($($toolset:ty),*) => { $(
        impl IntoToolset for $toolset {
            fn into_toolset(self) -> Arc<dyn Toolset> {
                Arc::new(self)
            }
        }
    )* };
}

toolsets!(StaticToolset, FilteredToolset, PrefixedToolset, ApprovalRequiredToolset);

/// Tools that are always the same.
pub struct StaticToolset {
    name: String,
    tools: Vec<Arc<dyn Tool>>,
}

impl StaticToolset {
    /// A toolset of this name without tools.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), tools: Vec::new() }
    }

    /// With this tool.
    #[must_use]
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.tools.push(tool.into_tool());
        self
    }

    /// With these tools.
    #[must_use]
    pub fn tools(mut self, tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        self.tools.extend(tools);
        self
    }
}

#[async_trait]
impl Toolset for StaticToolset {
    fn name(&self) -> &str {
        &self.name
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Ok(self.tools.clone())
    }
}

/// Some tools of a toolset. [`IntoToolset::only`] and [`IntoToolset::filtered`] make one.
pub struct FilteredToolset {
    inner: Arc<dyn Toolset>,
    keep: Box<dyn Fn(&FunctionDeclaration) -> bool + Send + Sync>,
}

#[async_trait]
impl WrapperToolset for FilteredToolset {
    fn inner(&self) -> &dyn Toolset {
        self.inner.as_ref()
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let mut tools = self.inner.tools(cx).await?;
        tools.retain(|tool| (self.keep)(tool.declaration()));
        Ok(tools)
    }
}

/// The tools of a toolset under longer names. [`IntoToolset::prefix`] makes one.
pub struct PrefixedToolset {
    inner: Arc<dyn Toolset>,
    prefix: String,
}

#[async_trait]
impl WrapperToolset for PrefixedToolset {
    fn inner(&self) -> &dyn Toolset {
        self.inner.as_ref()
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let tools = self.inner.tools(cx).await?;
        Ok(tools.into_iter().map(|tool| RenamedTool::prefixed(tool, &self.prefix)).collect())
    }
}

/// A tool under another name.
struct RenamedTool {
    inner: Arc<dyn Tool>,
    declaration: Arc<FunctionDeclaration>,
}

impl RenamedTool {
    fn prefixed(inner: Arc<dyn Tool>, prefix: &str) -> Arc<dyn Tool> {
        let mut declaration = FunctionDeclaration::clone(inner.declaration());
        declaration.name.insert_str(0, prefix);
        Arc::new(Self { inner, declaration: Arc::new(declaration) })
    }
}

impl WrapperTool for RenamedTool {
    fn inner(&self) -> &dyn Tool {
        self.inner.as_ref()
    }

    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }
}

/// The tools of a toolset, where a person has to agree to each call. [`IntoToolset::requiring_confirmation`] makes one.
pub struct ApprovalRequiredToolset(Arc<dyn Toolset>);

#[async_trait]
impl WrapperToolset for ApprovalRequiredToolset {
    fn inner(&self) -> &dyn Toolset {
        self.0.as_ref()
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let tools = self.0.tools(cx).await?;
        Ok(tools.into_iter().map(|tool| Arc::new(RequireConfirmation::new(tool)) as Arc<dyn Tool>).collect())
    }
}
