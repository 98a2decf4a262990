//! Toolsets, and adapters that filter, rename or require confirmation of their tools.
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
//! The tools of an agent's toolsets are resolved before each model call, so they may change while the agent runs.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, FunctionDeclaration, RunError, Tool, Toolset, WrapperTool, WrapperToolset};

use crate::tools::IntoTool;
use crate::tools::builtin::{AtMostOnce, RequireConfirmation};

/// Conversion into a toolset, and its adapters. Implemented for the toolsets of this module, and for any other in an
/// [`Arc`].
pub trait IntoToolset: Sized {
    /// Converts this into a shared toolset.
    fn into_toolset(self) -> Arc<dyn Toolset>;

    /// Keeps only the tools of these names, as models see them or as their server knows them. Unknown names are
    /// ignored, because the toolset may have them later.
    fn only<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> FilteredToolset {
        let names = names.into_iter().map(Into::into).collect();
        FilteredToolset { inner: self.into_toolset(), filter: ToolFilter::Names(names) }
    }

    /// Keeps only the tools for which `keep` returns true.
    fn filter(self, keep: impl Fn(&FunctionDeclaration) -> bool + Send + Sync + 'static) -> FilteredToolset {
        FilteredToolset { inner: self.into_toolset(), filter: ToolFilter::Declaration(Box::new(keep)) }
    }

    /// Adds a prefix to the names of the tools, as the model and callbacks see them.
    fn prefix(self, prefix: impl Into<String>) -> PrefixedToolset {
        PrefixedToolset { inner: self.into_toolset(), prefix: prefix.into(), renamed: Mutex::default() }
    }

    /// Requires a person's confirmation of each call.
    fn require_confirmation(self) -> ApprovalRequiredToolset {
        ApprovalRequiredToolset(self.into_toolset())
    }

    /// Wraps the toolset so that calls which were interrupted by a crash of the host are not repeated.
    fn at_most_once(self) -> AtMostOnceToolset {
        AtMostOnceToolset(self.into_toolset())
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

toolsets!(StaticToolset, FilteredToolset, PrefixedToolset, ApprovalRequiredToolset, AtMostOnceToolset);

/// A toolset with a fixed list of tools.
pub struct StaticToolset {
    name: String,
    tools: Vec<Arc<dyn Tool>>,
}

impl StaticToolset {
    /// Creates an empty toolset.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), tools: Vec::new() }
    }

    /// Adds a tool.
    #[must_use]
    pub fn tool(mut self, tool: impl IntoTool) -> Self {
        self.tools.push(tool.into_tool());
        self
    }

    /// Adds tools.
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

    fn tool_names(&self) -> Option<Vec<String>> {
        Some(self.tools.iter().map(|tool| tool.declaration().name.clone()).collect())
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Ok(self.tools.clone())
    }
}

/// Returns true for the declarations of tools to keep.
type DeclarationPredicate = Box<dyn Fn(&FunctionDeclaration) -> bool + Send + Sync>;

/// The tools of a toolset to keep.
enum ToolFilter {
    /// By the names that models see, or by the names that their server knows.
    Names(HashSet<String>),
    Declaration(DeclarationPredicate),
}

impl ToolFilter {
    /// Returns true if a tool of the toolset named `toolset` is kept.
    fn matches(&self, tool: &dyn Tool, toolset: &str) -> bool {
        match self {
            Self::Names(names) => {
                let qualified_name = tool.qualified_name();
                let server_name = qualified_name.strip_prefix(toolset).and_then(|name| name.strip_prefix('/'));
                names.contains(&tool.declaration().name) || server_name.is_some_and(|name| names.contains(name))
            }
            Self::Declaration(keep) => keep(tool.declaration()),
        }
    }
}

/// A toolset that omits tools of another. Created by [`IntoToolset::only`] and [`IntoToolset::filter`].
pub struct FilteredToolset {
    inner: Arc<dyn Toolset>,
    filter: ToolFilter,
}

#[async_trait]
impl WrapperToolset for FilteredToolset {
    fn inner(&self) -> &dyn Toolset {
        self.inner.as_ref()
    }

    fn tool_names(&self) -> Option<Vec<String>> {
        let ToolFilter::Names(names) = &self.filter else { return None };
        let mut kept = self.inner.tool_names()?;
        // Any other name may be the one that the server of a tool knows.
        let are_known = names.iter().all(|name| kept.contains(name));
        kept.retain(|name| names.contains(name));
        are_known.then_some(kept)
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let mut tools = self.inner.tools(cx).await?;
        tools.retain(|tool| self.filter.matches(tool.as_ref(), self.inner.name()));
        Ok(tools)
    }
}

/// A toolset that adds a prefix to the names of tools. Created by [`IntoToolset::prefix`].
pub struct PrefixedToolset {
    inner: Arc<dyn Toolset>,
    prefix: String,
    /// The declarations of the tools that were resolved last. Most toolsets resolve the same ones before each model
    /// call.
    renamed: Mutex<Vec<RenamedDeclaration>>,
}

/// A declaration, and its copy under another name.
struct RenamedDeclaration {
    original: Arc<FunctionDeclaration>,
    copy: Arc<FunctionDeclaration>,
}

impl RenamedDeclaration {
    fn with_prefix(prefix: &str, original: &Arc<FunctionDeclaration>) -> Self {
        let mut copy = FunctionDeclaration::clone(original);
        copy.name.insert_str(0, prefix);
        Self { original: original.clone(), copy: Arc::new(copy) }
    }
}

impl PrefixedToolset {
    /// Returns tools under their names with the prefix.
    fn rename(&self, tools: Vec<Arc<dyn Tool>>) -> Vec<Arc<dyn Tool>> {
        let mut all = self.renamed.lock_unpoisoned();
        let mut earlier = std::mem::take(&mut *all).into_iter();
        let rename = |inner: Arc<dyn Tool>| {
            let is_same = |known: &RenamedDeclaration| Arc::ptr_eq(&known.original, inner.declaration());
            let renamed = earlier.next().filter(is_same);
            let renamed = renamed.unwrap_or_else(|| RenamedDeclaration::with_prefix(&self.prefix, inner.declaration()));
            let declaration = renamed.copy.clone();
            all.push(renamed);
            Arc::new(RenamedTool { inner, declaration }) as Arc<dyn Tool>
        };
        tools.into_iter().map(rename).collect()
    }
}

#[async_trait]
impl WrapperToolset for PrefixedToolset {
    fn inner(&self) -> &dyn Toolset {
        self.inner.as_ref()
    }

    fn tool_names(&self) -> Option<Vec<String>> {
        let names = self.inner.tool_names()?;
        Some(names.into_iter().map(|name| format!("{}{name}", self.prefix)).collect())
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let tools = self.inner.tools(cx).await?;
        Ok(self.rename(tools))
    }
}

/// A tool under another name.
struct RenamedTool {
    inner: Arc<dyn Tool>,
    declaration: Arc<FunctionDeclaration>,
}

impl WrapperTool for RenamedTool {
    fn inner(&self) -> &dyn Tool {
        self.inner.as_ref()
    }

    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }
}

/// A toolset whose calls a person must confirm. Created by [`IntoToolset::require_confirmation`].
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

/// A toolset whose interrupted calls are not repeated. Created by [`IntoToolset::at_most_once`].
pub struct AtMostOnceToolset(Arc<dyn Toolset>);

#[async_trait]
impl WrapperToolset for AtMostOnceToolset {
    fn inner(&self) -> &dyn Toolset {
        self.0.as_ref()
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let tools = self.0.tools(cx).await?;
        Ok(tools.into_iter().map(|tool| Arc::new(AtMostOnce::new(tool)) as Arc<dyn Tool>).collect())
    }
}
