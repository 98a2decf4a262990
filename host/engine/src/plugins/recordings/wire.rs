//! The file of a recorded session, as YAML. ADK's keys are written as ADK writes them; unknown ones are ignored when read.

use std::collections::HashMap;
use std::sync::Arc;

use hatchery_core::{
    Content, EventActions, FunctionCall, FunctionDeclaration, FunctionResponse, JsonMap, LlmRequest, LlmResponse,
    ModelError, ModelErrorKind, ToolError,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::keys::{map_to_camel, to_camel, to_snake};
use super::{ModelCall, RecordedCall, Recording, Recordings, ToolCall, ToolOutcome, UserMessage};

impl Recordings {
    /// Reads a file's text.
    ///
    /// # Errors
    /// When it is not YAML, or not of recordings; the message says where.
    pub fn parse(yaml: &str) -> Result<Self, serde_yaml::Error> {
        let file: FileYaml = serde_yaml::from_str(yaml)?;
        file.try_into().map_err(serde::de::Error::custom)
    }

    /// The file's text.
    ///
    /// # Errors
    /// When something in it has no form in YAML.
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
    /// Short for a content of one text.
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
    /// The place among the agent's recordings of the message. It follows from the order, so it is not read.
    #[serde(default, skip_deserializing)]
    agent_index: usize,
    agent_name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    llm_recording: Option<ModelCallYaml>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_recording: Option<ToolCallYaml>,
}

#[derive(Serialize, Deserialize)]
struct ModelCallYaml {
    llm_request: RequestYaml,
    #[serde(default)]
    llm_responses: Vec<Value>,
    /// What older versions wrote: the only response.
    #[serde(default, skip_serializing)]
    llm_response: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    llm_error: Option<ModelErrorYaml>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct RequestYaml {
    model: Option<String>,
    contents: Vec<Value>,
    config: JsonMap,
}

#[derive(Serialize, Deserialize)]
struct ModelErrorYaml {
    code: String,
    model: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

#[derive(Serialize, Deserialize)]
struct ToolCallYaml {
    tool_call: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_response: Option<Value>,
    /// The tool's result is no object, but the value of `result` in the response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    bare_result: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_error: Option<ToolErrorYaml>,
    /// It was stopped before it answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stopped: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actions: Option<Value>,
}

#[derive(Serialize, Deserialize)]
struct ToolErrorYaml {
    /// That of an error that ends the run, with the tool that says so; the model is told the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fatal: Option<FatalYaml>,
    message: String,
}

#[derive(Serialize, Deserialize)]
struct FatalYaml {
    tool: String,
    code: String,
}

impl From<&Recordings> for FileYaml {
    fn from(recordings: &Recordings) -> Self {
        let mut indices: HashMap<(usize, &str), usize> = HashMap::new();
        let numbered = recordings.recordings.iter().map(|recording| {
            let next = indices.entry((recording.user_message_index, &recording.agent)).or_default();
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
            content: (!is_text).then(|| snake(&message.content)),
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
            (Some(content), _) => read(content, "content")?,
            (None, Some(text)) => Content::user(text),
            (None, None) => return Err("it has neither `text` nor `content`".into()),
        };
        Ok(Self { content, state_delta: yaml.state_delta, error_code: yaml.error_code })
    }
}

impl From<&Recording> for RecordingYaml {
    fn from(recording: &Recording) -> Self {
        let (llm_recording, tool_recording) = match &recording.call {
            RecordedCall::Model(call) => (Some(call.into()), None),
            RecordedCall::Tool(call) => (None, Some(call.into())),
        };
        Self {
            user_message_index: recording.user_message_index,
            agent_index: 0,
            agent_name: recording.agent.clone(),
            llm_recording,
            tool_recording,
        }
    }
}

impl TryFrom<RecordingYaml> for Recording {
    type Error = String;

    fn try_from(yaml: RecordingYaml) -> Result<Self, String> {
        let call = match (yaml.llm_recording, yaml.tool_recording) {
            (Some(call), None) => RecordedCall::Model(call.try_into()?),
            (None, Some(call)) => RecordedCall::Tool(call.try_into()?),
            _ => return Err("it has to have one of `llm_recording` and `tool_recording`".into()),
        };
        Ok(Self { user_message_index: yaml.user_message_index, agent: yaml.agent_name, call })
    }
}

impl From<&ModelCall> for ModelCallYaml {
    fn from(call: &ModelCall) -> Self {
        let error = call.error.as_ref().map(|error| ModelErrorYaml {
            code: error.kind.code().into(),
            model: error.model.clone(),
            message: error.message.clone(),
            status: error.status,
        });
        Self {
            llm_request: (&call.request).into(),
            llm_responses: call.responses.iter().map(snake).collect(),
            llm_response: None,
            llm_error: error,
        }
    }
}

impl TryFrom<ModelCallYaml> for ModelCall {
    type Error = String;

    fn try_from(yaml: ModelCallYaml) -> Result<Self, String> {
        let responses = yaml.llm_responses.into_iter().chain(yaml.llm_response.filter(|it| !it.is_null()));
        let error = yaml.llm_error.map(|error| {
            // A code that a later version writes: the run would fail all the same.
            let kind = ModelErrorKind::from_code(&error.code).unwrap_or(ModelErrorKind::Server);
            ModelError { status: error.status, ..ModelError::new(kind, error.model, error.message) }
        });
        Ok(Self {
            request: yaml.llm_request.try_into()?,
            responses: responses.map(|it| read::<LlmResponse>(it, "llm_responses")).collect::<Result<_, String>>()?,
            error,
        })
    }
}

impl From<&LlmRequest> for RequestYaml {
    fn from(request: &LlmRequest) -> Self {
        let mut config = match snake(&request.config) {
            Value::Object(config) => config,
            _ => JsonMap::new(),
        };
        if let Some(schema) = config.remove("response_schema") {
            config.insert("response_json_schema".into(), schema);
        }
        if !request.system_instructions.is_empty() {
            config.insert("system_instruction".into(), request.system_instructions.join("\n\n").into());
        }
        let mut tools: Vec<_> = request.model_tools.iter().map(snake).collect();
        if !request.tools.is_empty() {
            let declarations: Vec<_> = request.tools.iter().map(|tool| declaration(tool)).collect();
            tools.insert(0, json!({ "function_declarations": declarations }));
        }
        if !tools.is_empty() {
            config.insert("tools".into(), tools.into());
        }
        let contents = request.contents.iter().map(|content| snake(content.as_ref())).collect();
        Self { model: Some(request.model.clone()), contents, config }
    }
}

impl TryFrom<RequestYaml> for LlmRequest {
    type Error = String;

    fn try_from(yaml: RequestYaml) -> Result<Self, String> {
        let RequestYaml { model, contents, mut config } = yaml;
        let instruction = config.remove("system_instruction").map(instruction).transpose()?.flatten();
        let (tools, model_tools) = tools(config.remove("tools"))?;
        let schema = config.remove("response_json_schema").or(config.remove("response_schema").map(json_schema));
        if let Some(schema) = schema {
            config.insert("response_schema".into(), schema);
        }
        let contents = contents.into_iter().map(|it| read(it, "contents").map(Arc::new));
        Ok(Self {
            model: model.unwrap_or_default(),
            contents: contents.collect::<Result<_, String>>()?,
            system_instructions: instruction.into_iter().collect(),
            tools,
            model_tools,
            config: read(Value::Object(config), "config")?,
        })
    }
}

fn declaration(tool: &FunctionDeclaration) -> Value {
    let mut json = JsonMap::from_iter([("name".to_owned(), tool.name.clone().into())]);
    if !tool.description.is_empty() {
        json.insert("description".into(), tool.description.clone().into());
    }
    json.extend(tool.parameters.clone().map(|schema| ("parameters_json_schema".to_owned(), schema)));
    json.extend(tool.response.clone().map(|schema| ("response_json_schema".to_owned(), schema)));
    json.into()
}

/// A system instruction: a text, a content, or a list of either.
fn instruction(yaml: Value) -> Result<Option<String>, String> {
    let texts = match yaml {
        Value::Null => return Ok(None),
        Value::String(text) => return Ok(Some(text)),
        Value::Array(items) => items.into_iter().map(instruction).collect::<Result<Vec<_>, _>>()?,
        part @ Value::Object(_) if part.get("text").is_some() => {
            return Ok(part.get("text").and_then(Value::as_str).map(Into::into));
        }
        content => {
            let content: Content = read(content, "system_instruction")?;
            content.parts.iter().map(|part| part.as_text().map(Into::into)).collect()
        }
    };
    let texts: Vec<_> = texts.into_iter().flatten().collect();
    Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
}

type Tools = (Vec<Arc<FunctionDeclaration>>, Vec<Value>);

/// Functions, and the tools that run inside the model.
fn tools(yaml: Option<Value>) -> Result<Tools, String> {
    let (mut functions, mut model_tools) = (Vec::new(), Vec::new());
    let Some(Value::Array(tools)) = yaml else { return Ok((functions, model_tools)) };
    for tool in tools {
        let Value::Object(mut tool) = tool else { continue };
        if let Some(Value::Array(declarations)) = tool.remove("function_declarations") {
            functions.extend(declarations.into_iter().map(function).collect::<Result<Vec<_>, _>>()?);
        }
        let tool = map_to_camel(tool);
        if !tool.is_empty() {
            model_tools.push(tool.into());
        }
    }
    Ok((functions, model_tools))
}

fn function(yaml: Value) -> Result<Arc<FunctionDeclaration>, String> {
    let Value::Object(mut yaml) = yaml else { return Err("a function declaration is a mapping".into()) };
    let mut schema = |key: &str| {
        let as_json = yaml.remove(&format!("{key}_json_schema")).filter(|schema| !schema.is_null());
        let as_adk = yaml.remove(key).filter(|schema| !schema.is_null());
        as_json.or(as_adk.map(json_schema))
    };
    let (parameters, response) = (schema("parameters"), schema("response"));
    let declared: FunctionDeclaration = read(yaml.into(), "function_declarations")?;
    Ok(Arc::new(FunctionDeclaration { parameters, response, ..declared }))
}

/// ADK's own kind of schema as a JSON Schema: types in lower case, keys in camel case, names of properties as they are.
fn json_schema(schema: Value) -> Value {
    match schema {
        Value::Array(items) => items.into_iter().map(json_schema).collect(),
        Value::Object(map) => {
            let told = map_to_camel_shallow(map);
            told.map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    ("type", Value::String(name)) => name.to_lowercase().into(),
                    ("properties", Value::Object(properties)) => {
                        properties.into_iter().map(|(name, schema)| (name, json_schema(schema))).collect()
                    }
                    ("items" | "anyOf" | "additionalProperties", value) => json_schema(value),
                    (_, value) => value,
                };
                (key, value)
            })
            .collect()
        }
        other => other,
    }
}

fn map_to_camel_shallow(map: JsonMap) -> impl Iterator<Item = (String, Value)> {
    let told = map.into_iter().filter(|(_, value)| !value.is_null());
    told.map(|(key, value)| (super::keys::camel(&key), value))
}

impl From<&ToolCall> for ToolCallYaml {
    fn from(call: &ToolCall) -> Self {
        let (response, error) = match &call.outcome {
            ToolOutcome::Answered(response) | ToolOutcome::AnsweredBare(response) => (Some(snake(response)), None),
            ToolOutcome::Failed(error) => (Some(snake(&told(&call.call, error))), Some(error.into())),
            ToolOutcome::NothingYet | ToolOutcome::Stopped => (None, None),
        };
        Self {
            tool_call: snake(&call.call),
            tool_response: response,
            bare_result: matches!(call.outcome, ToolOutcome::AnsweredBare(_)),
            tool_error: error,
            stopped: call.outcome == ToolOutcome::Stopped,
            actions: call.actions.as_ref().map(actions),
        }
    }
}

/// What a model would be told of a failure, for readers that know answers only.
fn told(call: &FunctionCall, error: &ToolError) -> FunctionResponse {
    let response = JsonMap::from_iter([("error".into(), error.to_string().into())]);
    FunctionResponse { id: call.id.clone(), name: call.name.clone(), response, ..FunctionResponse::default() }
}

/// Actions without the maps that hold nothing.
fn actions(actions: &EventActions) -> Value {
    let mut yaml = snake(actions);
    if let Value::Object(map) = &mut yaml {
        map.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    yaml
}

impl TryFrom<ToolCallYaml> for ToolCall {
    type Error = String;

    fn try_from(yaml: ToolCallYaml) -> Result<Self, String> {
        let response = yaml.tool_response.filter(|response| !response.is_null());
        let outcome = match (yaml.tool_error, response, yaml.stopped) {
            (Some(error), _, _) => ToolOutcome::Failed(error.into()),
            (None, Some(response), _) if yaml.bare_result => {
                ToolOutcome::AnsweredBare(read(response, "tool_response")?)
            }
            (None, Some(response), _) => ToolOutcome::Answered(read(response, "tool_response")?),
            (None, None, true) => ToolOutcome::Stopped,
            (None, None, false) => ToolOutcome::NothingYet,
        };
        let actions = yaml.actions.map(|actions| read(actions, "actions")).transpose()?;
        Ok(Self { call: read(yaml.tool_call, "tool_call")?, outcome, actions })
    }
}

impl From<&ToolError> for ToolErrorYaml {
    fn from(error: &ToolError) -> Self {
        match error {
            ToolError::Recoverable(message) => Self { fatal: None, message: message.clone() },
            ToolError::Fatal { tool, code, message } => {
                let fatal = FatalYaml { tool: tool.clone(), code: code.clone().into_owned() };
                Self { fatal: Some(fatal), message: message.clone() }
            }
        }
    }
}

impl From<ToolErrorYaml> for ToolError {
    fn from(ToolErrorYaml { fatal, message }: ToolErrorYaml) -> Self {
        match fatal {
            Some(FatalYaml { tool, code }) => Self::Fatal { tool, code: code.into(), message },
            None => Self::Recoverable(message),
        }
    }
}

/// A request as recordings show it.
pub(super) fn request(request: &LlmRequest) -> Value {
    // Of strings, numbers and maps with string keys: this cannot fail.
    serde_json::to_value(RequestYaml::from(request)).unwrap_or_default()
}

fn snake<T: Serialize>(value: &T) -> Value {
    to_snake(serde_json::to_value(value).unwrap_or_default())
}

fn read<T: DeserializeOwned>(yaml: Value, key: &str) -> Result<T, String> {
    serde_json::from_value(to_camel(yaml)).map_err(|error| format!("{key}: {error}"))
}
