//! Sampling: messages that a model of the host writes for a server, during a call.

#![expect(deprecated, reason = "revision 2026-07-28 deprecates sampling, and servers use it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt;
use hatchery_core::{
    CallContext, Content, GenerateContentConfig, LlmRequest, LlmResponse, Part, PartData, RunError, StreamingMode,
};
use rmcp::model::{
    AudioContent, CreateMessageRequestParams, CreateMessageResult, ImageContent, Role, SamplingMessage,
    SamplingMessageContentBlock,
};

use super::content::file;
use crate::config::Sampling;

/// Maximum number of messages of one call.
const MAX_MESSAGES: usize = 8;

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
            contents: params.messages.iter().map(content).collect::<Result<_, _>>()?,
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
        if let Some(code) = response.error_code {
            return Err(format!("the model did not answer: {}", response.error_message.unwrap_or(code)));
        }
        let parts = response.content.map(|content| content.parts).unwrap_or_default();
        let blocks: Vec<_> = parts.into_iter().filter_map(block).collect();
        if blocks.is_empty() {
            return Err("the model answered without a text".into());
        }
        let stop_reason = match response.finish_reason.as_deref() {
            Some("MAX_TOKENS") => CreateMessageResult::STOP_REASON_END_MAX_TOKEN,
            _ => CreateMessageResult::STOP_REASON_END_TURN,
        };
        Ok(CreateMessageResult::new(message(blocks), self.config.model.clone()).with_stop_reason(stop_reason))
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

/// Returns the model's message. A single content is in no list, as revisions before 2025-11-25 require.
fn message(mut blocks: Vec<SamplingMessageContentBlock>) -> SamplingMessage {
    match (blocks.len(), blocks.pop()) {
        (1, Some(block)) => SamplingMessage::new(Role::Assistant, block),
        (_, last) => {
            blocks.extend(last);
            SamplingMessage::new_multiple(Role::Assistant, blocks)
        }
    }
}

fn content(message: &SamplingMessage) -> Result<Arc<Content>, String> {
    let role = if message.role == Role::Assistant { "model" } else { "user" };
    let parts = message.content.iter().map(part).collect::<Result<_, _>>()?;
    Ok(Arc::new(Content::new(role, parts)))
}

fn part(block: &SamplingMessageContentBlock) -> Result<Part, String> {
    match block {
        SamplingMessageContentBlock::Text(text) => Ok(Part::text(text.text.as_str())),
        SamplingMessageContentBlock::Image(image) => Ok(file(None, image.mime_type.clone(), &image.data)?.into_part()),
        SamplingMessageContentBlock::Audio(audio) => Ok(file(None, audio.mime_type.clone(), &audio.data)?.into_part()),
        _ => Err("the model of this client gets texts, images and audio only".into()),
    }
}

/// Returns a text, an image or audio. `None` for thoughts and other parts.
fn block(part: Part) -> Option<SamplingMessageContentBlock> {
    match part.data {
        PartData::Text(text) if !part.thought => Some(SamplingMessageContentBlock::text(text)),
        PartData::InlineData(blob) => {
            let data = STANDARD.encode(&blob.data);
            match blob.mime_type.split('/').next() {
                Some("image") => Some(SamplingMessageContentBlock::Image(ImageContent::new(data, blob.mime_type))),
                Some("audio") => Some(SamplingMessageContentBlock::Audio(AudioContent::new(data, blob.mime_type))),
                _ => None,
            }
        }
        _ => None,
    }
}
