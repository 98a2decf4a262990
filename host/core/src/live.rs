//! Live runs: requests that arrive while a run is in progress, their queue, and connections to live models.
//!
//! A [`LiveRequestQueue`] leads from a client to a run. An agent whose model is live ([`ModelCapabilities::live`])
//! sends the requests to a [`LiveConnection`]; any other model answers them turn by turn.
//!
//! [`ModelCapabilities::live`]: crate::ModelCapabilities::live

mod queue;
mod request;
mod streams;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::content::{Content, FunctionCall};
use crate::error::ModelError;
use crate::event::UsageMetadata;

pub use queue::{LiveQueueClosed, LiveRequestQueue, QueuedRequest, Reservation};
pub use request::LiveRequest;
pub use streams::{LiveResults, LiveStream, LiveStreams};

/// The settings of live connections in a run. Values of Gemini's `LiveConnectConfig` are passed through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LiveConnectConfig {
    /// The kinds of output: `TEXT`, `AUDIO`, `VIDEO`. Empty means `AUDIO`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub response_modalities: Vec<String>,
    /// Voice and language.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speech_config: Option<Value>,
    /// Settings of the transcription of audio input, which is always requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_audio_transcription: Option<Value>,
    /// Settings of the transcription of audio output, which is requested unless the output is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_audio_transcription: Option<Value>,
    /// Detection of activity, and the rule for interruptions of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realtime_input_config: Option<Value>,
    /// Whether the model may speak without input, or leave input unanswered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proactivity: Option<Value>,
    /// Whether the model adapts to the tone of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_affective_dialog: Option<bool>,
}

impl LiveConnectConfig {
    /// The default output.
    const AUDIO: &str = "AUDIO";

    /// Returns the kinds of output.
    pub fn modalities(&self) -> Vec<String> {
        if self.response_modalities.is_empty() { vec![Self::AUDIO.into()] } else { self.response_modalities.clone() }
    }

    /// Returns the settings with the defaults of a conversation: audio, with transcriptions of both sides.
    #[must_use]
    pub fn with_defaults(self) -> Self {
        let modalities = self.modalities();
        let speaks = modalities.iter().any(|modality| modality != "TEXT");
        let transcription = || Some(json!({}));
        Self {
            input_audio_transcription: self.input_audio_transcription.or_else(transcription),
            output_audio_transcription: self.output_audio_transcription.or(speaks.then(transcription).flatten()),
            response_modalities: modalities,
            ..self
        }
    }
}

/// A part of the transcription of speech.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transcription {
    /// The text; in a chunk, only the new text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
    /// Whether the utterance has ended.
    pub finished: bool,
}

/// A message of a live model.
#[derive(Debug, Clone, PartialEq)]
pub enum LiveResponse {
    /// A chunk of text or audio, with new content only.
    Content(Content),
    /// A chunk of the transcription of the user's speech.
    InputTranscription(Transcription),
    /// A chunk of the transcription of the model's speech.
    OutputTranscription(Transcription),
    /// Calls of tools, which [`LiveRequest::ToolResponses`] answers. Each has an id.
    ToolCalls(Vec<FunctionCall>),
    /// The ids of calls whose responses the model no longer expects.
    ToolCallsCancelled(Vec<String>),
    /// The user has interrupted the model.
    Interrupted,
    /// The model has finished its turn.
    TurnComplete,
    /// Tokens that were used since the last report.
    Usage(UsageMetadata),
}

/// A connection to a live model. Sending and receiving may overlap. Dropping it disconnects.
#[async_trait]
pub trait LiveConnection: Send + Sync {
    /// Sends a request, and waits while the connection has too many unsent ones. [`LiveRequest::Close`] is never sent.
    ///
    /// # Errors
    /// If the connection is broken, or the model does not take this kind of input.
    async fn send(&self, request: LiveRequest) -> Result<(), ModelError>;

    /// Returns the next message. `None` once the connection is closed. Implementations must be cancel safe.
    async fn receive(&self) -> Option<Result<LiveResponse, ModelError>>;

    /// Closes the connection.
    async fn close(&self);
}
