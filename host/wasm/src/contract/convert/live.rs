//! Conversion of the requests and responses of live conversations.

use hatchery_core::{
    Blob, Content, FunctionCall, JsonMap, LiveConnectConfig, LiveRequest, LiveResponse, ModelError, Transcription,
};

use super::json::parse;
use super::{
    BadValue, EstimateSize, FromWit, ParsedSize, ToWit, all_from_wit, all_to_wit, to_json, to_model_error, wit,
};

/// Parses the settings of live connections.
pub(crate) fn live_config(json: Option<String>) -> Result<LiveConnectConfig, BadValue> {
    json.map_or_else(
        || Ok(LiveConnectConfig::default()),
        |json| parse(&json, "`config`", "an object of `LiveConnectConfig` keys"),
    )
}

impl FromWit<wit::LiveRequest> for LiveRequest {
    fn from_wit(request: wit::LiveRequest) -> Result<Self, BadValue> {
        Ok(match request {
            wit::LiveRequest::Content(wit::LiveMessage { content, partial }) => {
                Self::Content { content: Content::from_wit(content)?, partial, state_delta: JsonMap::new() }
            }
            wit::LiveRequest::Blob(blob) => Self::Blob(Blob::from_wit(blob)?),
            wit::LiveRequest::ActivityStart => Self::ActivityStart,
            wit::LiveRequest::ActivityEnd => Self::ActivityEnd,
            wit::LiveRequest::AudioStreamEnd => Self::AudioStreamEnd,
            wit::LiveRequest::ToolResponses(responses) => Self::ToolResponses(all_from_wit(responses)?),
        })
    }
}

/// Returns the request of a live model; `None` for the end of the requests, which ends their stream.
pub(crate) fn live_request_to_wit(request: &LiveRequest) -> Option<wit::LiveRequest> {
    Some(match request {
        LiveRequest::Content { content, partial, state_delta: _ } => {
            wit::LiveRequest::Content(wit::LiveMessage { content: content.to_wit(), partial: *partial })
        }
        LiveRequest::Blob(blob) => wit::LiveRequest::Blob(blob.to_wit()),
        LiveRequest::ActivityStart => wit::LiveRequest::ActivityStart,
        LiveRequest::ActivityEnd => wit::LiveRequest::ActivityEnd,
        LiveRequest::AudioStreamEnd => wit::LiveRequest::AudioStreamEnd,
        LiveRequest::ToolResponses(responses) => wit::LiveRequest::ToolResponses(all_to_wit(responses)),
        LiveRequest::Close => return None,
    })
}

/// Converts a response of a component's live model. The failure of a conversation is an error of `model`.
pub(crate) fn live_response(
    response: wit::LiveResponse,
    model: &str,
) -> Result<Result<LiveResponse, ModelError>, BadValue> {
    Ok(Ok(match response {
        wit::LiveResponse::Content(content) => LiveResponse::Content(Content::from_wit(content)?),
        wit::LiveResponse::InputTranscription(chunk) => LiveResponse::InputTranscription(transcription(chunk)),
        wit::LiveResponse::OutputTranscription(chunk) => LiveResponse::OutputTranscription(transcription(chunk)),
        wit::LiveResponse::ToolCalls(calls) => {
            let calls: Vec<FunctionCall> = all_from_wit(calls)?;
            if calls.iter().any(|call| call.id.as_deref().is_none_or(str::is_empty)) {
                return Err(BadValue::new(
                    "a tool call",
                    "one with an id",
                    "a live model names each of its calls".into(),
                ));
            }
            LiveResponse::ToolCalls(calls)
        }
        wit::LiveResponse::ToolCallsCancelled(ids) => LiveResponse::ToolCallsCancelled(ids),
        wit::LiveResponse::Interrupted => LiveResponse::Interrupted,
        wit::LiveResponse::TurnComplete => LiveResponse::TurnComplete,
        wit::LiveResponse::Usage(json) => {
            LiveResponse::Usage(parse(&json, "`usage`", "an object of `UsageMetadata` keys")?)
        }
        wit::LiveResponse::Failed(error) => return Ok(Err(to_model_error(error, model))),
    }))
}

fn transcription(wit::Transcription { text, finished }: wit::Transcription) -> Transcription {
    Transcription { text, finished }
}

/// Returns the settings of a connection as JSON.
pub(crate) fn live_config_to_json(config: Option<&LiveConnectConfig>) -> String {
    config.map_or_else(|| "{}".into(), to_json)
}

impl EstimateSize for wit::LiveRequest {
    fn estimated_size(&self) -> u64 {
        match self {
            Self::Content(message) => message.content.estimated_size(),
            Self::Blob(blob) => blob.estimated_size(),
            Self::ActivityStart | Self::ActivityEnd | Self::AudioStreamEnd => 0,
            Self::ToolResponses(responses) => responses.estimated_size(),
        }
    }
}

impl EstimateSize for wit::LiveResponse {
    fn estimated_size(&self) -> u64 {
        match self {
            Self::Content(content) => content.estimated_size(),
            Self::InputTranscription(chunk) | Self::OutputTranscription(chunk) => chunk.text.estimated_size(),
            Self::ToolCalls(calls) => calls.estimated_size(),
            Self::ToolCallsCancelled(ids) => ids.estimated_size(),
            Self::Interrupted | Self::TurnComplete => 0,
            Self::Usage(json) => json.estimated_size(),
            Self::Failed(error) => error.code.estimated_size() + error.message.estimated_size(),
        }
    }
}

impl ParsedSize for wit::LiveRequest {
    fn parsed_size(&self) -> u64 {
        match self {
            Self::Content(message) => message.content.parsed_size(),
            Self::ToolResponses(responses) => responses.parsed_size(),
            Self::Blob(_) | Self::ActivityStart | Self::ActivityEnd | Self::AudioStreamEnd => 0,
        }
    }
}

impl ParsedSize for wit::LiveResponse {
    fn parsed_size(&self) -> u64 {
        match self {
            Self::Content(content) => content.parsed_size(),
            Self::ToolCalls(calls) => calls.parsed_size(),
            Self::Usage(json) => json.parsed_size(),
            Self::InputTranscription(_)
            | Self::OutputTranscription(_)
            | Self::ToolCallsCancelled(_)
            | Self::Interrupted
            | Self::TurnComplete
            | Self::Failed(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{FunctionResponse, ModelErrorKind};
    use serde_json::json;

    use super::*;

    #[test]
    fn requests_are_converted_without_loss() {
        let response = FunctionResponse { id: Some("c".into()), name: "f".into(), ..FunctionResponse::default() };
        let audio = Blob { mime_type: "audio/pcm".into(), data: vec![1, 2].into(), display_name: Some("a".into()) };
        for request in [
            LiveRequest::Content { content: Content::user("hi"), partial: true, state_delta: JsonMap::new() },
            LiveRequest::Blob(audio),
            LiveRequest::ActivityStart,
            LiveRequest::ActivityEnd,
            LiveRequest::AudioStreamEnd,
            LiveRequest::ToolResponses(vec![response]),
        ] {
            assert_eq!(LiveRequest::from_wit(live_request_to_wit(&request).unwrap()), Ok(request));
        }
        assert!(live_request_to_wit(&LiveRequest::Close).is_none());
    }

    #[test]
    fn responses_are_converted_and_checked() {
        let converted = |response| live_response(response, "component:x/y");
        let call = FunctionCall { id: Some("c1".into()), name: "f".into(), ..FunctionCall::default() };
        let chunk = wit::Transcription { text: "he".into(), finished: true };
        let spoken = Transcription { text: "he".into(), finished: true };
        for (response, expected) in [
            (wit::LiveResponse::Content(Content::model("a").to_wit()), LiveResponse::Content(Content::model("a"))),
            (wit::LiveResponse::InputTranscription(chunk.clone()), LiveResponse::InputTranscription(spoken.clone())),
            (wit::LiveResponse::OutputTranscription(chunk), LiveResponse::OutputTranscription(spoken)),
            (wit::LiveResponse::ToolCalls(vec![call.to_wit()]), LiveResponse::ToolCalls(vec![call])),
            (
                wit::LiveResponse::ToolCallsCancelled(vec!["c".into()]),
                LiveResponse::ToolCallsCancelled(vec!["c".into()]),
            ),
            (wit::LiveResponse::Interrupted, LiveResponse::Interrupted),
            (wit::LiveResponse::TurnComplete, LiveResponse::TurnComplete),
        ] {
            assert_eq!(converted(response).unwrap().unwrap(), expected);
        }
        let usage = wit::LiveResponse::Usage(json!({"totalTokenCount": 3}).to_string());
        assert!(matches!(converted(usage), Ok(Ok(LiveResponse::Usage(usage))) if usage.total_token_count == Some(3)));
        let busy = wit::Error { code: "MODEL_RATE_LIMITED".into(), message: "later".into() };
        let failure = converted(wit::LiveResponse::Failed(busy)).unwrap().unwrap_err();
        assert_eq!((failure.kind, failure.message.as_str()), (ModelErrorKind::RateLimited, "later"));
        let nameless = FunctionCall { name: "f".into(), ..FunctionCall::default() };
        let error = converted(wit::LiveResponse::ToolCalls(vec![nameless.to_wit()])).unwrap_err();
        assert_eq!(error.to_string(), "a tool call is not one with an id: a live model names each of its calls");
    }
}
