//! Sampling: messages that a model of the host writes for a server, during a call.

#![expect(deprecated, reason = "revision 2026-07-28 deprecates sampling, and servers use it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::StreamExt;
use hatchery_core::{CallContext, GenerateContentConfig, LlmRequest, LlmResponse, RunError, StreamingMode};
use rmcp::model::{CreateMessageRequestParams, CreateMessageResult, Role};

use crate::config::Sampling;
use crate::messages;

/// Maximum number of messages of one call.
const MAX_MESSAGES: usize = 8;

/// The finish reason, and the error code, of an answer that reaches the limit of tokens.
const CUT_OFF: &str = "MAX_TOKENS";

/// Calls the model of the settings for the server of one call. The limits of the run apply.
pub(super) struct Sampler {
    config: Sampling,
    cx: CallContext,
    /// Number of requested messages.
    count: AtomicUsize,
}

impl Sampler {
    pub(super) fn new(config: &Sampling, cx: &CallContext) -> Self {
        Self { config: config.clone(), cx: cx.clone(), count: AtomicUsize::new(0) }
    }

    /// Returns the answer of the model.
    ///
    /// # Errors
    /// If the request is invalid, or the model fails. The text is for the server.
    pub(super) async fn create_message(
        &self,
        params: &CreateMessageRequestParams,
    ) -> Result<CreateMessageResult, String> {
        if params.tools.is_some() || params.tool_choice.is_some() {
            return Err("the model of this client has no tools".into());
        }
        if self.count.fetch_add(1, Ordering::Relaxed) >= MAX_MESSAGES {
            return Err(format!("a call may request at most {MAX_MESSAGES} messages of a model"));
        }
        let request = LlmRequest {
            model: self.config.model.clone(),
            contents: params
                .messages
                .iter()
                .map(|message| messages::to_content(message).map(Arc::new))
                .collect::<Result<_, _>>()?,
            system_instructions: params.system_prompt.iter().cloned().collect(),
            config: GenerateContentConfig {
                temperature: params.temperature.map(f64::from),
                max_output_tokens: Some(params.max_tokens.min(self.config.max_tokens).into()),
                stop_sequences: params.stop_sequences.clone(),
                ..GenerateContentConfig::default()
            },
            ..LlmRequest::default()
        };
        let response = self.generate(request).await.map_err(|error| error.client_message())?.unwrap_or_default();
        // An answer that was cut off at the limit of the request has a stop reason of its own.
        if let Some(code) = response.error_code.filter(|code| code != CUT_OFF) {
            return Err(format!("the model did not answer: {}", response.error_message.unwrap_or(code)));
        }
        let parts = response.content.map(|content| content.parts).unwrap_or_default();
        let message = messages::from_parts(Role::Assistant, parts).ok_or("the model answered without a text")?;
        let stop_reason = match response.finish_reason.as_deref() {
            Some(CUT_OFF) => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
            _ => CreateMessageResult::STOP_REASON_END_TURN,
        };
        Ok(CreateMessageResult::new(message, self.config.model.clone()).with_stop_reason(stop_reason))
    }

    /// Returns the last response of the model.
    async fn generate(&self, request: LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        let model = self.cx.invocation.services.models.model(&request.model)?;
        let mut responses = self.cx.generate(&*model, request, StreamingMode::Off).await?;
        let mut last = None;
        while let Some(response) = responses.next().await {
            last = Some(response?);
        }
        Ok(last)
    }
}
