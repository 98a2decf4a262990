//! Closures as tools.

use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, Tool, ToolError};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{arguments, schema};
use crate::agents::AgentTool;
use crate::tools::impl_into_tool;

type Run = dyn Fn(JsonMap, CallContext) -> BoxFuture<'static, Result<Value, ToolError>> + Send + Sync;

/// A tool that runs a closure. [`function_tool`] creates one. The closure gets the `args` of an agent definition by
/// [`CallContext::arguments`].
#[derive(Clone)]
pub struct FunctionTool {
    declaration: Arc<FunctionDeclaration>,
    is_long_running: bool,
    requires_confirmation: bool,
    is_idempotent: bool,
    /// The arguments with which an agent definition uses it.
    arguments: Option<Arc<JsonMap>>,
    run: Arc<Run>,
}

/// Creates a tool that runs a closure. The model receives the JSON Schema of the argument type `A` with its doc
/// comments, and the closure the deserialized arguments. Arguments that do not match the schema are reported to the
/// model. The result may be any value that serializes to JSON.
///
/// `A` may be [`JsonMap`] for arbitrary arguments. Set their schema with [`FunctionTool::parameters`].
pub fn function_tool<A, F, R, T>(name: impl Into<String>, description: impl Into<String>, run: F) -> FunctionTool
where
    A: DeserializeOwned + JsonSchema,
    F: Fn(A, CallContext) -> R + Send + Sync + 'static,
    R: Future<Output = Result<T, ToolError>> + Send + 'static,
    T: Serialize,
{
    let name: Arc<str> = name.into().into();
    // Some models reject parameters without properties.
    let parameters = Some(schema::<A>()).filter(|schema| schema.get("properties").is_some());
    let declaration = Arc::new(FunctionDeclaration {
        name: name.to_string(),
        description: description.into(),
        parameters,
        response: None,
    });
    let run = Arc::new(move |args, cx| {
        let future = arguments::read(&name, args).map(|args| run(args, cx));
        let name = name.clone();
        async move { result(&name, future?.await?) }.boxed()
    });
    FunctionTool {
        declaration,
        is_long_running: false,
        requires_confirmation: false,
        is_idempotent: true,
        arguments: None,
        run,
    }
}

fn result(tool: &str, value: impl Serialize) -> Result<Value, ToolError> {
    serde_json::to_value(value)
        .map_err(|error| ToolError::Recoverable(format!("the result of `{tool}` cannot be written as JSON: {error}")))
}

impl FunctionTool {
    /// Sets the JSON Schema of the arguments. Replaces the schema of the argument type.
    #[must_use]
    pub fn parameters(mut self, schema: Value) -> Self {
        Arc::make_mut(&mut self.declaration).parameters = Some(schema);
        self
    }

    /// Marks the tool as long-running: its result may come later. The event reports the call's id, and `null` (such as
    /// `None`) means that there is no response yet.
    #[must_use]
    pub fn long_running(mut self) -> Self {
        self.is_long_running = true;
        self
    }

    /// Requires a person to confirm each call.
    #[must_use]
    pub fn requires_confirmation(mut self) -> Self {
        self.requires_confirmation = true;
        self
    }

    /// Sets whether a call that was interrupted when the host died may be made again, as by default. If not, the model
    /// gets an error: the effect of the call is unknown.
    #[must_use]
    pub fn idempotent(mut self, is_idempotent: bool) -> Self {
        self.is_idempotent = is_idempotent;
        self
    }
}

#[async_trait]
impl Tool for FunctionTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn with_arguments(&self, args: JsonMap) -> Result<Arc<dyn Tool>, String> {
        Ok(Arc::new(Self { arguments: Some(Arc::new(args)), ..self.clone() }))
    }

    fn is_long_running(&self) -> bool {
        self.is_long_running
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    fn is_idempotent(&self) -> bool {
        self.is_idempotent
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        (self.run)(args, cx.with_arguments(self.arguments.clone())).await
    }
}

impl_into_tool!(FunctionTool, AgentTool);
