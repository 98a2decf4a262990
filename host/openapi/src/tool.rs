//! A tool that calls an operation of an API.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{Blob, CallContext, FunctionDeclaration, JsonMap, Part, PartData, Tool, ToolError, excerpt};
use hatchery_egress::pending_result;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::api::Api;
use crate::document::Operation;
use crate::error::ApiError;
use crate::http::ApiResponse;
use crate::request::Request;

/// Maximum size in bytes of an answer in an error.
const MAX_EXCERPT: usize = 2_000;

/// A tool that calls an operation.
pub(crate) struct OperationTool {
    pub(crate) api: Arc<Api>,
    pub(crate) operation: Arc<Operation>,
    /// The declaration for the model. Its name can have a prefix.
    pub(crate) declaration: Arc<FunctionDeclaration>,
    pub(crate) requires_confirmation: bool,
}

#[async_trait]
impl Tool for OperationTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("{}:{}/{}", self.api.prefix, self.api.name, self.operation.name).into()
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    fn is_idempotent(&self) -> bool {
        self.operation.method.is_idempotent()
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let limits = &self.api.config.limits;
        let deadline = Instant::now() + limits.call_timeout;
        let request = Request::for_call(&self.operation, args, limits.max_request, cx);
        let request = tokio::time::timeout_at(deadline, request).await.unwrap_or_else(|_| {
            let seconds = limits.call_timeout.as_secs_f64();
            Err(format!("the files of the request were not read within {seconds} s, so it was not sent"))
        });
        let request = request.map_err(ToolError::Recoverable)?;
        match self.api.http.send_by(&request, cx, deadline).await {
            Ok(answer) => self.result(answer, cx).await,
            Err(ApiError::CredentialRequested) => Ok(pending_result()),
            Err(error) => Err(self.tool_error(&error)),
        }
    }
}

impl OperationTool {
    fn tool_error(&self, error: &ApiError) -> ToolError {
        let (api, operation) = (&self.api.name, &self.operation.name);
        let (full, shown) = (error.to_string(), error.for_models());
        if full != shown {
            tracing::warn!(api, operation, "a call of an API failed: {full}");
        }
        ToolError::Recoverable(format!("the call of `{operation}` of the API `{api}` failed: {shown}"))
    }

    /// Returns an answer as the result of the call: JSON unchanged, text as a string, and everything else as an
    /// artifact.
    async fn result(&self, answer: ApiResponse, cx: &CallContext) -> Result<Value, ToolError> {
        let ApiResponse { status, media_type, body } = answer;
        let error = |reason: String| {
            let (api, operation) = (&self.api.name, &self.operation.name);
            Err(ToolError::Recoverable(format!("`{operation}` of the API `{api}` answered {reason}")))
        };
        let show = |body: &[u8]| excerpt(String::from_utf8_lossy(body).trim(), MAX_EXCERPT);
        if !status.is_success() {
            let text = if body.is_empty() { "without a body".into() } else { show(&body) };
            return error(format!("with the status {status}: {text}"));
        }
        if body.is_empty() || self.operation.method == Method::HEAD {
            return Ok(json!({"status": status.as_u16()}));
        }
        let is_json = media_type == "application/json" || media_type.ends_with("+json");
        match serde_json::from_slice::<Value>(&body) {
            Ok(value) if is_json || media_type.is_empty() => return Ok(value),
            Err(reason) if is_json => {
                return error(format!("with `{media_type}` that is not JSON ({reason}): {}", show(&body)));
            }
            Ok(_) | Err(_) => {}
        }
        let is_text = media_type.starts_with("text/") || media_type.is_empty() || is_textual(&media_type);
        match String::from_utf8(body) {
            Ok(text) if is_text => Ok(text.into()),
            Ok(text) => self.store(media_type, text.into_bytes(), cx).await,
            Err(bytes) => self.store(media_type, bytes.into_bytes(), cx).await,
        }
    }

    /// Stores an answer as an artifact.
    async fn store(&self, mime_type: String, body: Vec<u8>, cx: &CallContext) -> Result<Value, ToolError> {
        let bytes = body.len();
        let blob = Blob { mime_type, data: body.into(), display_name: None };
        let (mime_type, extension) = (blob.mime_type.clone(), blob.extension().to_owned());
        let name = format!("openapi/{}/{}.{extension}", self.api.name, self.operation.name);
        let version = cx.save_artifact(&name, &Part::from(PartData::InlineData(blob))).await?;
        Ok(json!({"artifact": name, "version": version, "mimeType": mime_type, "bytes": bytes}))
    }
}

/// Returns true for media types of texts that do not begin with `text/`.
fn is_textual(media_type: &str) -> bool {
    let names =
        ["application/xml", "application/yaml", "application/x-yaml", "application/javascript", "application/x-ndjson"];
    names.contains(&media_type) || media_type.ends_with("+xml")
}
