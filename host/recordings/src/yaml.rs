//! YAML format of recorded sessions. ADK's keys are written as ADK writes them. Unknown keys are ignored when reading.

mod live_call;
mod model_call;
mod request;
mod tool_call;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use hatchery_core::{Content, JsonMap};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::key_case::{to_camel_case, to_snake_case};
use crate::{RecordedCall, Recording, Recordings, UserMessage};
use live_call::LiveCallYaml;
pub(crate) use live_call::live_request_to_value;
use model_call::ModelCallYaml;
pub(crate) use request::request_to_value;
use tool_call::ToolCallYaml;

impl Recordings {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// If it is not YAML, or not in the format of recordings. The message contains the position.
    pub fn parse(yaml: &str) -> Result<Self, serde_yaml::Error> {
        let file: FileYaml = serde_yaml::from_str(yaml)?;
        file.try_into().map_err(serde::de::Error::custom)
    }

    /// Reads the text of a file from `reader`.
    ///
    /// # Errors
    /// As [`Recordings::parse`], and if reading fails.
    pub fn from_reader(mut reader: impl Read) -> io::Result<Self> {
        let mut yaml = String::new();
        reader.read_to_string(&mut yaml)?;
        Self::parse(&yaml).map_err(io::Error::other)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// As [`Recordings::from_reader`].
    pub fn from_path(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_reader(File::open(path)?)
    }

    /// Returns the text of the file.
    ///
    /// # Errors
    /// If a value cannot be represented in YAML.
    pub fn to_yaml(&self) -> Result<String, serde_yaml::Error> {
        serde_yaml::to_string(&FileYaml::from(self))
    }
}

#[derive(Serialize, Deserialize)]
struct FileYaml {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    initial_state: JsonMap,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    user_messages: Vec<MessageYaml>,
    #[serde(default)]
    recordings: Vec<RecordingYaml>,
}

#[derive(Serialize, Deserialize)]
struct MessageYaml {
    /// Short form of a content with one text part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<Value>,
    #[serde(default, skip_serializing_if = "JsonMap::is_empty")]
    state_delta: JsonMap,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct RecordingYaml {
    user_message_index: usize,
    /// The index among the agent's recordings of this message. It is not read, because it follows from the order.
    #[serde(default, skip_deserializing)]
    agent_index: usize,
    agent_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    llm_recording: Option<ModelCallYaml>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    live_recording: Option<LiveCallYaml>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_recording: Option<ToolCallYaml>,
}

impl From<&Recordings> for FileYaml {
    fn from(recordings: &Recordings) -> Self {
        let mut next_indices: HashMap<(usize, &str), usize> = HashMap::new();
        let numbered = recordings.recordings.iter().map(|recording| {
            let next = next_indices.entry((recording.user_message_index, &recording.agent)).or_default();
            let agent_index = *next;
            *next += 1;
            RecordingYaml { agent_index, ..recording.into() }
        });
        Self {
            recordings: numbered.collect(),
            app: recordings.app.clone(),
            initial_state: recordings.initial_state.clone(),
            user_messages: recordings.user_messages.iter().map(MessageYaml::from).collect(),
        }
    }
}

impl TryFrom<FileYaml> for Recordings {
    type Error = String;

    fn try_from(yaml: FileYaml) -> Result<Self, String> {
        let recordings =
            yaml.recordings.into_iter().enumerate().map(|(index, recording)| {
                recording.try_into().map_err(|error| format!("recordings[{index}]: {error}"))
            });
        let messages = yaml
            .user_messages
            .into_iter()
            .enumerate()
            .map(|(index, message)| message.try_into().map_err(|error| format!("user_messages[{index}]: {error}")));
        Ok(Self {
            app: yaml.app,
            initial_state: yaml.initial_state,
            user_messages: messages.collect::<Result<_, String>>()?,
            recordings: recordings.collect::<Result<_, String>>()?,
        })
    }
}

impl From<&UserMessage> for MessageYaml {
    fn from(message: &UserMessage) -> Self {
        let text = message.content.text();
        let is_text = message.content == Content::user(text.as_str());
        Self {
            content: (!is_text).then(|| to_yaml_value(&message.content)),
            text: is_text.then_some(text),
            state_delta: message.state_delta.clone(),
            error_code: message.error_code.clone(),
        }
    }
}

impl TryFrom<MessageYaml> for UserMessage {
    type Error = String;

    fn try_from(yaml: MessageYaml) -> Result<Self, String> {
        let content = match (yaml.content, yaml.text) {
            (Some(content), _) => from_yaml_value(content, "content")?,
            (None, Some(text)) => Content::user(text),
            (None, None) => return Err("missing field `text` or `content`".into()),
        };
        Ok(Self { content, state_delta: yaml.state_delta, error_code: yaml.error_code })
    }
}

impl From<&Recording> for RecordingYaml {
    fn from(recording: &Recording) -> Self {
        let (llm_recording, live_recording, tool_recording) = match &recording.call {
            RecordedCall::Model(call) => (Some(call.into()), None, None),
            RecordedCall::Live(call) => (None, Some(call.into()), None),
            RecordedCall::Tool(call) => (None, None, Some(call.into())),
        };
        Self {
            user_message_index: recording.user_message_index,
            agent_index: 0,
            agent_name: recording.agent.clone(),
            llm_recording,
            live_recording,
            tool_recording,
        }
    }
}

impl TryFrom<RecordingYaml> for Recording {
    type Error = String;

    fn try_from(yaml: RecordingYaml) -> Result<Self, String> {
        let call = match (yaml.llm_recording, yaml.live_recording, yaml.tool_recording) {
            (Some(call), None, None) => RecordedCall::Model(call.try_into()?),
            (None, Some(call), None) => RecordedCall::Live(call.try_into()?),
            (None, None, Some(call)) => RecordedCall::Tool(call.try_into()?),
            _ => return Err("expected either `llm_recording`, `live_recording` or `tool_recording`".into()),
        };
        Ok(Self { user_message_index: yaml.user_message_index, agent: yaml.agent_name, call })
    }
}

/// Serializes with the keys of recordings.
fn to_yaml_value<T: Serialize>(value: &T) -> Value {
    to_snake_case(serde_json::to_value(value).unwrap_or_default())
}

/// Deserializes a value with the keys of recordings. `key` is named in the error message.
fn from_yaml_value<T: DeserializeOwned>(yaml: Value, key: &str) -> Result<T, String> {
    serde_json::from_value(to_camel_case(yaml)).map_err(|error| format!("{key}: {error}"))
}
