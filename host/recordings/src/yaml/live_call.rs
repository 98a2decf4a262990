//! `live_recording`: a live conversation with a model.

use hatchery_core::{
    Blob, Content, FunctionCall, FunctionResponse, JsonMap, LiveRequest, LiveResponse, Transcription, UsageMetadata,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::model_call::ModelErrorYaml;
use super::request::RequestYaml;
use super::{from_yaml_value, to_yaml_value};
use crate::{LiveCall, LiveStep};

#[derive(Serialize, Deserialize)]
pub(crate) struct LiveCallYaml {
    llm_request: RequestYaml,
    /// Each one is `sent`, `received` or `closed`.
    #[serde(default)]
    steps: Vec<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    llm_error: Option<ModelErrorYaml>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StepJson {
    Sent(SentJson),
    Received(ReceivedJson),
    Closed(bool),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum SentJson {
    Content(Content),
    /// A piece of a message.
    PartialContent(Content),
    Blob(MediaJson),
    ActivityStart(bool),
    ActivityEnd(bool),
    AudioStreamEnd(bool),
    ToolResponses(Vec<FunctionResponse>),
    Close(bool),
}

/// A sound or an image, without its bytes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MediaJson {
    mime_type: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ReceivedJson {
    Content(Content),
    InputTranscription(Transcription),
    OutputTranscription(Transcription),
    ToolCalls(Vec<FunctionCall>),
    ToolCallsCancelled(Vec<String>),
    Interrupted(bool),
    TurnComplete(bool),
    UsageMetadata(UsageMetadata),
}

impl From<&LiveRequest> for SentJson {
    fn from(request: &LiveRequest) -> Self {
        match request {
            LiveRequest::Content { content, partial: true, .. } => Self::PartialContent(content.clone()),
            LiveRequest::Content { content, .. } => Self::Content(content.clone()),
            LiveRequest::Blob(blob) => Self::Blob(MediaJson { mime_type: blob.mime_type.clone() }),
            LiveRequest::ActivityStart => Self::ActivityStart(true),
            LiveRequest::ActivityEnd => Self::ActivityEnd(true),
            LiveRequest::AudioStreamEnd => Self::AudioStreamEnd(true),
            LiveRequest::ToolResponses(responses) => Self::ToolResponses(responses.clone()),
            LiveRequest::Close => Self::Close(true),
        }
    }
}

impl From<SentJson> for LiveRequest {
    fn from(sent: SentJson) -> Self {
        let message = |content, partial| Self::Content { content, partial, state_delta: JsonMap::new() };
        match sent {
            SentJson::Content(content) => message(content, false),
            SentJson::PartialContent(content) => message(content, true),
            SentJson::Blob(MediaJson { mime_type }) => Self::Blob(Blob { mime_type, ..Blob::default() }),
            SentJson::ActivityStart(_) => Self::ActivityStart,
            SentJson::ActivityEnd(_) => Self::ActivityEnd,
            SentJson::AudioStreamEnd(_) => Self::AudioStreamEnd,
            SentJson::ToolResponses(responses) => Self::ToolResponses(responses),
            SentJson::Close(_) => Self::Close,
        }
    }
}

impl From<&LiveResponse> for ReceivedJson {
    fn from(response: &LiveResponse) -> Self {
        match response {
            LiveResponse::Content(content) => Self::Content(content.clone()),
            LiveResponse::InputTranscription(chunk) => Self::InputTranscription(chunk.clone()),
            LiveResponse::OutputTranscription(chunk) => Self::OutputTranscription(chunk.clone()),
            LiveResponse::ToolCalls(calls) => Self::ToolCalls(calls.clone()),
            LiveResponse::ToolCallsCancelled(ids) => Self::ToolCallsCancelled(ids.clone()),
            LiveResponse::Interrupted => Self::Interrupted(true),
            LiveResponse::TurnComplete => Self::TurnComplete(true),
            LiveResponse::Usage(usage) => Self::UsageMetadata(usage.clone()),
        }
    }
}

impl From<ReceivedJson> for LiveResponse {
    fn from(received: ReceivedJson) -> Self {
        match received {
            ReceivedJson::Content(content) => Self::Content(content),
            ReceivedJson::InputTranscription(chunk) => Self::InputTranscription(chunk),
            ReceivedJson::OutputTranscription(chunk) => Self::OutputTranscription(chunk),
            ReceivedJson::ToolCalls(calls) => Self::ToolCalls(calls),
            ReceivedJson::ToolCallsCancelled(ids) => Self::ToolCallsCancelled(ids),
            ReceivedJson::Interrupted(_) => Self::Interrupted,
            ReceivedJson::TurnComplete(_) => Self::TurnComplete,
            ReceivedJson::UsageMetadata(usage) => Self::Usage(usage),
        }
    }
}

/// Returns a request with the keys of recordings.
pub(crate) fn live_request_to_value(request: &LiveRequest) -> Value {
    to_yaml_value(&SentJson::from(request))
}

impl From<&LiveCall> for LiveCallYaml {
    fn from(call: &LiveCall) -> Self {
        let step = |step: &LiveStep| match step {
            LiveStep::Sent(request) => StepJson::Sent(request.into()),
            LiveStep::Received(response) => StepJson::Received(response.into()),
            LiveStep::Closed => StepJson::Closed(true),
        };
        Self {
            llm_request: (&call.request).into(),
            steps: call.steps.iter().map(|it| to_yaml_value(&step(it))).collect(),
            llm_error: call.error.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<LiveCallYaml> for LiveCall {
    type Error = String;

    fn try_from(yaml: LiveCallYaml) -> Result<Self, String> {
        let steps = yaml.steps.into_iter().map(|step| {
            Ok(match from_yaml_value(step, "steps")? {
                StepJson::Sent(request) => LiveStep::Sent(request.into()),
                StepJson::Received(response) => LiveStep::Received(response.into()),
                StepJson::Closed(_) => LiveStep::Closed,
            })
        });
        Ok(Self {
            request: yaml.llm_request.try_into()?,
            steps: steps.collect::<Result<_, String>>()?,
            error: yaml.llm_error.map(Into::into),
        })
    }
}
