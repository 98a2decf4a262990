//! Wrappers (decorators) of tools, toolsets, models, and services of sessions and runs: each forwards all methods to
//! the one inside and overrides the methods that it changes.
//!
//! A type that implements [`WrapperTool`] is a [`Tool`], and so on for the others. The blanket implementations name
//! every method of the trait that they implement, default methods included; the lint on them fails the build when one
//! is missing. So a new method cannot be lost in a wrapper.

mod run_service;
mod session_service;

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::agent::AgentTree;
use crate::call_context::CallContext;
use crate::error::{ModelError, RunError, ToolError};
use crate::json::JsonMap;
use crate::live::LiveConnection;
use crate::model::{FunctionDeclaration, LlmRequest, Model, ModelCapabilities, ResponseStream, StreamingMode};
use crate::tool::{Tool, Toolset};

pub use self::run_service::WrapperRunService;
pub use self::session_service::WrapperSessionService;

/// A [`Tool`] that wraps another tool.
///
/// ```
/// use hatchery_core::{Tool, WrapperTool};
///
/// /// Runs only after a person has agreed.
/// struct ConfirmedTool(Box<dyn Tool>);
///
/// impl WrapperTool for ConfirmedTool {
///     fn inner(&self) -> &dyn Tool {
///         &*self.0
///     }
///
///     fn requires_confirmation(&self) -> bool {
///         true
///     }
/// }
///
/// fn confirmed(tool: Box<dyn Tool>) -> Box<dyn Tool> {
///     Box::new(ConfirmedTool(tool))
/// }
/// ```
#[async_trait]
pub trait WrapperTool: Send + Sync {
    /// Returns the tool inside.
    fn inner(&self) -> &dyn Tool;

    /// See [`Tool::declaration`].
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        self.inner().declaration()
    }

    /// See [`Tool::qualified_name`].
    fn qualified_name(&self) -> Cow<'_, str> {
        self.inner().qualified_name()
    }

    /// See [`Tool::with_arguments`]. The default takes none, because a tool that the inner one returns would lose this
    /// wrapper: wrap the tool that has its arguments instead.
    fn with_arguments(&self, args: JsonMap) -> Result<Arc<dyn Tool>, String> {
        let _ = args;
        Err("takes no `args` once it is wrapped".into())
    }

    /// See [`Tool::is_long_running`].
    fn is_long_running(&self) -> bool {
        self.inner().is_long_running()
    }

    /// See [`Tool::is_callable`].
    fn is_callable(&self) -> bool {
        self.inner().is_callable()
    }

    /// See [`Tool::requires_confirmation`].
    fn requires_confirmation(&self) -> bool {
        self.inner().requires_confirmation()
    }

    /// See [`Tool::is_idempotent`].
    fn is_idempotent(&self) -> bool {
        self.inner().is_idempotent()
    }

    /// See [`Tool::agents`].
    fn agents(&self) -> Option<&AgentTree> {
        self.inner().agents()
    }

    /// See [`Tool::prepare`]. A wrapper that overrides [`WrapperTool::declaration`] need not override this: its
    /// declaration replaces the one that the inner tool has added to the request.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let inner = self.inner();
        let len_before = request.tools.len();
        inner.prepare(request, cx).await?;
        let (own, replaced) = (WrapperTool::declaration(self), inner.declaration());
        if !Arc::ptr_eq(own, replaced) {
            let added = request.tools.iter_mut().skip(len_before);
            added.filter(|added| added.name == replaced.name).for_each(|added| *added = own.clone());
        }
        Ok(())
    }

    /// See [`Tool::call`].
    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.inner().call(args, cx).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: WrapperTool> Tool for T {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        WrapperTool::declaration(self)
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        WrapperTool::qualified_name(self)
    }

    fn with_arguments(&self, args: JsonMap) -> Result<Arc<dyn Tool>, String> {
        WrapperTool::with_arguments(self, args)
    }

    fn is_long_running(&self) -> bool {
        WrapperTool::is_long_running(self)
    }

    fn is_callable(&self) -> bool {
        WrapperTool::is_callable(self)
    }

    fn requires_confirmation(&self) -> bool {
        WrapperTool::requires_confirmation(self)
    }

    fn is_idempotent(&self) -> bool {
        WrapperTool::is_idempotent(self)
    }

    fn agents(&self) -> Option<&AgentTree> {
        WrapperTool::agents(self)
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        WrapperTool::prepare(self, request, cx).await
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        WrapperTool::call(self, args, cx).await
    }
}

/// A [`Toolset`] that wraps another toolset. See [`WrapperTool`] for an example.
#[async_trait]
pub trait WrapperToolset: Send + Sync {
    /// Returns the toolset inside.
    fn inner(&self) -> &dyn Toolset;

    /// See [`Toolset::name`].
    fn name(&self) -> &str {
        self.inner().name()
    }

    /// See [`Toolset::tool_names`].
    fn tool_names(&self) -> Option<Vec<String>> {
        self.inner().tool_names()
    }

    /// See [`Toolset::tools`].
    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        self.inner().tools(cx).await
    }

    /// See [`Toolset::prepare`].
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        self.inner().prepare(request, cx).await
    }

    /// See [`Toolset::close`].
    async fn close(&self) {
        self.inner().close().await;
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: WrapperToolset> Toolset for T {
    fn name(&self) -> &str {
        WrapperToolset::name(self)
    }

    fn tool_names(&self) -> Option<Vec<String>> {
        WrapperToolset::tool_names(self)
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        WrapperToolset::tools(self, cx).await
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        WrapperToolset::prepare(self, request, cx).await
    }

    async fn close(&self) {
        WrapperToolset::close(self).await;
    }
}

/// A [`Model`] that wraps another model. See [`WrapperTool`] for an example.
#[async_trait]
pub trait WrapperModel: Send + Sync {
    /// Returns the model inside.
    fn inner(&self) -> &dyn Model;

    /// See [`Model::generate`].
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        self.inner().generate(request, streaming_mode).await
    }

    /// See [`Model::connect`].
    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        self.inner().connect(request).await
    }

    /// See [`Model::capabilities`].
    fn capabilities(&self) -> ModelCapabilities {
        self.inner().capabilities()
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: WrapperModel> Model for T {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        WrapperModel::generate(self, request, streaming_mode).await
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        WrapperModel::connect(self, request).await
    }

    fn capabilities(&self) -> ModelCapabilities {
        WrapperModel::capabilities(self)
    }
}
