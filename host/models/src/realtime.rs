//! Provider for the Realtime API of OpenAI: models that hear and speak in live connections, and are not called
//! otherwise.

mod protocol;
mod resampler;

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    JsonMap, LiveConnection, LlmRequest, Model, ModelCapabilities, ModelError, ModelErrorKind, ResponseStream,
    StreamingMode,
};
use serde_json::json;

use self::protocol::RealtimeProtocol;
use crate::http::Endpoint;
use crate::live_socket::{SocketConnection, next_setup_frame, send_frame, within_setup_time};
use crate::prompt::parameters;

/// The model that transcribes the user's speech, unless the run names another one.
const TRANSCRIPTION_MODEL: &str = "gpt-4o-mini-transcribe";

/// The only format of audio.
const AUDIO_RATE: u32 = 24_000;

/// Keys of the session that `httpOptions.extraBody` may not set.
const RESERVED_KEYS: [&str; 5] = ["type", "model", "instructions", "tools", "output_modalities"];

/// Returns true for the models of the Realtime API.
pub(crate) fn serves(model: &str) -> bool {
    model.contains("realtime")
}

/// A model of the Realtime API.
pub(crate) struct RealtimeModel {
    model: String,
    capabilities: ModelCapabilities,
    endpoint: Endpoint,
}

impl RealtimeModel {
    /// Creates a model. Does not connect.
    pub(crate) fn create(model: &str, capabilities: ModelCapabilities, endpoint: Endpoint) -> Arc<dyn Model> {
        Arc::new(Self { model: model.to_owned(), capabilities, endpoint })
    }

    /// Returns the settings of the session.
    fn session(&self, request: &LlmRequest) -> Result<JsonMap, String> {
        let live = request.live_connect_config.clone().unwrap_or_default();
        let speaks = live.modalities().iter().any(|modality| modality == "AUDIO");
        let format = json!({"type": "audio/pcm", "rate": AUDIO_RATE});
        let transcription = live.input_audio_transcription.filter(|settings| settings.get("model").is_some());
        let mut output = JsonMap::from_iter([("format".to_owned(), format.clone())]);
        let voice = "/voiceConfig/prebuiltVoiceConfig/voiceName";
        let voice = live.speech_config.as_ref().and_then(|speech| speech.pointer(voice));
        output.extend(voice.map(|voice| ("voice".to_owned(), voice.clone())));
        let transcription = transcription.unwrap_or_else(|| json!({"model": TRANSCRIPTION_MODEL}));
        let audio = json!({"input": {"format": format, "transcription": transcription}, "output": output});
        let mut session = JsonMap::from_iter([
            ("type".to_owned(), "realtime".into()),
            ("model".to_owned(), self.model.as_str().into()),
            ("output_modalities".to_owned(), json!([if speaks { "audio" } else { "text" }])),
            ("audio".to_owned(), audio),
        ]);
        if !request.system_instructions.is_empty() {
            session.insert("instructions".into(), request.system_instructions.join("\n\n").into());
        }
        if let Some(tool) = request.model_tools.first() {
            return Err(format!("the Realtime API does not have the model tool {tool}; remove it"));
        }
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| {
                json!({
                    "type": "function", "name": tool.name, "description": tool.description,
                    "parameters": parameters(tool),
                })
            });
            session.insert("tools".into(), tools.collect());
        }
        if let Some(most) = request.config.max_output_tokens {
            session.insert("max_output_tokens".into(), most.into());
        }
        Ok(session)
    }
}

#[async_trait]
impl Model for RealtimeModel {
    async fn generate(&self, _: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        let message = "the model answers in live runs only; connect to `/run_live`, or choose another model";
        Err(self.endpoint.origin.error(ModelErrorKind::BadRequest, message))
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        let origin = &self.endpoint.origin;
        request.progress.set_provider(origin.service.provider);
        let refused = |message| origin.error(ModelErrorKind::BadRequest, message);
        let options = self.endpoint.options(&request.config)?;
        let mut session = self.session(&request).map_err(refused)?;
        for (key, value) in options.extra_body.iter().filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str())) {
            session.insert(key.clone(), value.clone());
        }
        let protocol = RealtimeProtocol::new(origin.clone());
        let history = protocol.history(&request).map_err(refused)?;
        let mut url = self.endpoint.url(["realtime"])?;
        url.query_pairs_mut().append_pair("model", &self.model);
        let setup = async {
            let mut socket = self.endpoint.connect(&url, &options).await?;
            send_frame(&mut socket, json!({"type": "session.update", "session": session}).to_string(), origin).await?;
            while !protocol.is_set_up(&next_setup_frame(&mut socket, origin).await?)? {}
            for frame in history {
                send_frame(&mut socket, frame, origin).await?;
            }
            Ok(socket)
        };
        let socket = within_setup_time(setup, origin).await?;
        Ok(SocketConnection::spawn(protocol, socket, origin.clone()))
    }

    fn capabilities(&self) -> ModelCapabilities {
        self.capabilities
    }
}
