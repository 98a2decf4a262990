//! Fallback: a model that is replaced by others, in order, if it fails before it has answered.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, StreamExt};

use crate::error::{ModelError, ModelErrorKind};
use crate::live::LiveConnection;
use crate::model::{LlmRequest, Model, ModelCapabilities, ResponseGrouping, ResponseStream, StreamingMode};

/// A model and its replacements. Each is called once per request, with its own retries, until one answers. A request
/// that a model rejects as invalid, and a stream that breaks after its first response, are not sent to the next one.
pub struct FallbackModel {
    models: Vec<(String, Arc<dyn Model>)>,
}

impl FallbackModel {
    /// Creates a model from those of `models` that could be resolved, in order.
    ///
    /// # Errors
    /// The error of the first one, with the errors of the others, if none could be resolved.
    pub fn new(
        models: impl IntoIterator<Item = (String, Result<Arc<dyn Model>, ModelError>)>,
    ) -> Result<Self, ModelError> {
        let mut usable = Vec::new();
        let mut first_error: Option<ModelError> = None;
        for (name, model) in models {
            match model {
                Ok(model) => usable.push((name, model)),
                Err(error) => first_error = Some(join_errors(first_error, error)),
            }
        }
        match first_error {
            Some(error) if usable.is_empty() => Err(error),
            _ => Ok(Self { models: usable }),
        }
    }

    /// Returns the features that both models support.
    #[must_use]
    pub fn common_capabilities(one: ModelCapabilities, other: ModelCapabilities) -> ModelCapabilities {
        let is_batched = [one, other].iter().any(|model| model.response_grouping == ResponseGrouping::Batched);
        ModelCapabilities {
            schema_with_tools: one.schema_with_tools && other.schema_with_tools,
            lacks_response_schema: one.lacks_response_schema || other.lacks_response_schema,
            built_in_tools: one.built_in_tools && other.built_in_tools,
            live: one.live && other.live,
            // Every model accepts responses after the last of the calls.
            response_grouping: if is_batched { ResponseGrouping::Batched } else { ResponseGrouping::PerCall },
        }
    }
}

/// Returns the earlier error with the message of a later one.
fn join_errors(earlier: Option<ModelError>, later: ModelError) -> ModelError {
    match earlier {
        None => later,
        Some(error) => {
            ModelError { message: format!("{}; `{}`: {}", error.message, later.model, later.message), ..error }
        }
    }
}

#[async_trait]
impl Model for FallbackModel {
    async fn generate(&self, request: LlmRequest, streaming_mode: StreamingMode) -> Result<ResponseStream, ModelError> {
        let mut first_error = None;
        for (name, model) in &self.models {
            let request = LlmRequest { model: name.clone(), ..request.clone() };
            match begin(model.as_ref(), request, streaming_mode).await {
                Ok(responses) => return Ok(responses),
                Err(error) => {
                    let is_final = matches!(error.kind, ModelErrorKind::BadRequest | ModelErrorKind::Cancelled);
                    tracing::debug!(%error, is_final, "the model failed before it has answered");
                    first_error = Some(join_errors(first_error, error));
                    if is_final {
                        break;
                    }
                }
            }
        }
        let none = || ModelError::new(ModelErrorKind::UnknownModel, &request.model, "the list of models is empty");
        Err(first_error.unwrap_or_else(none))
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let mut first_error = None;
        for (name, model) in &self.models {
            match model.connect(LlmRequest { model: name.clone(), ..request.clone() }).await {
                Ok(connection) => return Ok(connection),
                Err(error) => first_error = Some(join_errors(first_error, error)),
            }
        }
        let none = || ModelError::new(ModelErrorKind::UnknownModel, &request.model, "the list of models is empty");
        Err(first_error.unwrap_or_else(none))
    }

    fn capabilities(&self) -> ModelCapabilities {
        let all = self.models.iter().map(|(_, model)| model.capabilities());
        all.reduce(Self::common_capabilities).unwrap_or_default()
    }
}

/// Calls a model and waits for its first response. Returns an error that comes first.
async fn begin(
    model: &dyn Model,
    request: LlmRequest,
    streaming_mode: StreamingMode,
) -> Result<ResponseStream, ModelError> {
    let mut responses = model.generate(request, streaming_mode).await?;
    match responses.next().await {
        Some(first) => Ok(stream::iter([Ok(first?)]).chain(responses).boxed()),
        None => Ok(responses),
    }
}
