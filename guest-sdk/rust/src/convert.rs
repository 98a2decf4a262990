//! Conversions between the types of the contract and the types of this crate. They are lossless. A conversion only
//! fails if the host sends invalid JSON text.

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::artifacts::ArtifactVersion;
use crate::bindings::wit::types as wit;
use crate::confirmation::ToolConfirmation;
use crate::content::{
    Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse, JsonMap, Part,
    PartData,
};
use crate::context::MemoryEntry;
use crate::error::{Error, ToolError};
use crate::event::{Event, EventActions};
use crate::examples::Example;
use crate::model::{FunctionDeclaration, LlmRequest, LlmResponse};

/// Parses JSON text from the host.
pub(crate) fn read<T: DeserializeOwned>(json: &str, what: &str) -> Result<T, Error> {
    serde_json::from_str(json).map_err(|error| Error::new("BAD_JSON", format!("{what}: {error}")))
}

fn read_extra(json: Option<String>) -> Result<JsonMap, Error> {
    json.map_or_else(|| Ok(JsonMap::new()), |json| read(&json, "`extra`"))
}

fn read_schema(json: Option<String>) -> Result<Option<Value>, Error> {
    json.map(|json| read(&json, "the schema")).transpose()
}

/// Serializes an object.
pub(crate) fn object(map: JsonMap) -> String {
    Value::Object(map).to_string()
}

/// Serializes an object. `None` if it is empty.
pub(crate) fn some_object(map: JsonMap) -> Option<String> {
    (!map.is_empty()).then(|| object(map))
}

fn all<A, B>(items: Vec<A>) -> Result<Vec<B>, B::Error>
where
    B: TryFrom<A>,
{
    items.into_iter().map(B::try_from).collect()
}

fn into_all<A: Into<B>, B>(items: Vec<A>) -> Vec<B> {
    items.into_iter().map(Into::into).collect()
}

impl From<wit::Error> for Error {
    fn from(error: wit::Error) -> Self {
        Self::new(error.code, error.message)
    }
}

impl From<Error> for wit::Error {
    fn from(error: Error) -> Self {
        Self { code: error.code, message: error.message }
    }
}

impl From<wit::ToolError> for ToolError {
    fn from(error: wit::ToolError) -> Self {
        match error {
            wit::ToolError::Recoverable(message) => Self::Recoverable(message),
            wit::ToolError::Fatal(error) => Self::Fatal(error.into()),
        }
    }
}

impl From<ToolError> for wit::ToolError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Recoverable(message) => Self::Recoverable(message),
            ToolError::Fatal(error) => Self::Fatal(error.into()),
        }
    }
}

impl TryFrom<wit::Content> for Content {
    type Error = Error;

    fn try_from(content: wit::Content) -> Result<Self, Error> {
        Ok(Self { role: content.role, parts: all(content.parts)? })
    }
}

impl From<Content> for wit::Content {
    fn from(content: Content) -> Self {
        Self { role: content.role, parts: into_all(content.parts) }
    }
}

impl TryFrom<wit::Part> for Part {
    type Error = Error;

    fn try_from(part: wit::Part) -> Result<Self, Error> {
        Ok(Self {
            data: part.data.try_into()?,
            thought: part.thought,
            thought_signature: part.thought_signature,
            extra: read_extra(part.extra)?,
        })
    }
}

impl From<Part> for wit::Part {
    fn from(part: Part) -> Self {
        Self {
            data: part.data.into(),
            thought: part.thought,
            thought_signature: part.thought_signature,
            extra: some_object(part.extra),
        }
    }
}

impl TryFrom<wit::PartData> for PartData {
    type Error = Error;

    fn try_from(data: wit::PartData) -> Result<Self, Error> {
        Ok(match data {
            wit::PartData::Other => Self::Other,
            wit::PartData::Text(text) => Self::Text(text),
            wit::PartData::InlineData(blob) => Self::InlineData(blob.into()),
            wit::PartData::FileData(wit::FileData { file_uri, mime_type, display_name }) => {
                Self::FileData(FileData { file_uri, mime_type, display_name })
            }
            wit::PartData::FunctionCall(wit::FunctionCall { id, name, args, extra }) => {
                let args = read(&args, "the arguments of a function call")?;
                Self::FunctionCall(FunctionCall { id, name, args, extra: read_extra(extra)? })
            }
            wit::PartData::FunctionResponse(response) => Self::FunctionResponse(response.try_into()?),
            wit::PartData::ExecutableCode(wit::ExecutableCode { language, code, extra }) => {
                Self::ExecutableCode(ExecutableCode { language, code, extra: read_extra(extra)? })
            }
            wit::PartData::CodeExecutionResult(wit::CodeExecutionResult { outcome, output, extra }) => {
                Self::CodeExecutionResult(CodeExecutionResult { outcome, output, extra: read_extra(extra)? })
            }
        })
    }
}

impl From<PartData> for wit::PartData {
    fn from(data: PartData) -> Self {
        match data {
            PartData::Other => Self::Other,
            PartData::Text(text) => Self::Text(text),
            PartData::InlineData(blob) => Self::InlineData(blob.into()),
            PartData::FileData(FileData { file_uri, mime_type, display_name }) => {
                Self::FileData(wit::FileData { file_uri, mime_type, display_name })
            }
            PartData::FunctionCall(call) => Self::FunctionCall(call.into()),
            PartData::FunctionResponse(response) => Self::FunctionResponse(response.into()),
            PartData::ExecutableCode(ExecutableCode { language, code, extra }) => {
                Self::ExecutableCode(wit::ExecutableCode { language, code, extra: some_object(extra) })
            }
            PartData::CodeExecutionResult(CodeExecutionResult { outcome, output, extra }) => {
                Self::CodeExecutionResult(wit::CodeExecutionResult { outcome, output, extra: some_object(extra) })
            }
        }
    }
}

impl From<wit::Blob> for Blob {
    fn from(wit::Blob { mime_type, data, display_name }: wit::Blob) -> Self {
        Self { mime_type, data, display_name }
    }
}

impl From<Blob> for wit::Blob {
    fn from(Blob { mime_type, data, display_name }: Blob) -> Self {
        Self { mime_type, data, display_name }
    }
}

impl From<FunctionCall> for wit::FunctionCall {
    fn from(FunctionCall { id, name, args, extra }: FunctionCall) -> Self {
        Self { id, name, args: object(args), extra: some_object(extra) }
    }
}

impl TryFrom<wit::FunctionResponse> for FunctionResponse {
    type Error = Error;

    fn try_from(wit::FunctionResponse { id, name, response, extra }: wit::FunctionResponse) -> Result<Self, Error> {
        Ok(Self { id, name, response: read(&response, "a function response")?, extra: read_extra(extra)? })
    }
}

impl From<FunctionResponse> for wit::FunctionResponse {
    fn from(FunctionResponse { id, name, response, extra }: FunctionResponse) -> Self {
        Self { id, name, response: object(response), extra: some_object(extra) }
    }
}

impl TryFrom<wit::Event> for Event {
    type Error = Error;

    fn try_from(event: wit::Event) -> Result<Self, Error> {
        Ok(Self {
            id: event.id,
            invocation_id: event.invocation_id,
            author: event.author,
            content: event.content.map(Content::try_from).transpose()?,
            actions: event.actions.try_into()?,
            partial: event.partial,
            turn_complete: event.turn_complete,
            interrupted: event.interrupted,
            branch: event.branch,
            long_running_tool_ids: event.long_running_tool_ids,
            error_code: event.error_code,
            error_message: event.error_message,
            timestamp_micros: event.timestamp,
            extra: read_extra(event.extra)?,
        })
    }
}

impl From<Event> for wit::Event {
    fn from(event: Event) -> Self {
        Self {
            id: event.id,
            invocation_id: event.invocation_id,
            author: event.author,
            content: event.content.map(Into::into),
            actions: event.actions.into(),
            partial: event.partial,
            turn_complete: event.turn_complete,
            interrupted: event.interrupted,
            branch: event.branch,
            long_running_tool_ids: event.long_running_tool_ids,
            error_code: event.error_code,
            error_message: event.error_message,
            timestamp: event.timestamp_micros,
            extra: some_object(event.extra),
        }
    }
}

impl TryFrom<wit::EventActions> for EventActions {
    type Error = Error;

    fn try_from(actions: wit::EventActions) -> Result<Self, Error> {
        Ok(Self {
            state_delta: read_state(actions.state_delta)?,
            artifact_delta: actions.artifact_delta,
            deleted_artifact_ids: actions.deleted_artifact_ids,
            skip_summarization: actions.skip_summarization,
            transfer_to_agent: actions.transfer_to_agent,
            escalate: actions.escalate,
            end_of_agent: actions.end_of_agent,
            end_invocation: actions.end_invocation,
            extra: read_extra(actions.extra)?,
        })
    }
}

/// Parses state values from the host.
pub(crate) fn read_state(state: Vec<(String, String)>) -> Result<JsonMap, Error> {
    state
        .into_iter()
        .map(|(key, json)| {
            let value = read(&json, &format!("the state key `{key}`"))?;
            Ok((key, value))
        })
        .collect()
}

impl From<EventActions> for wit::EventActions {
    fn from(actions: EventActions) -> Self {
        Self {
            state_delta: actions.state_delta.into_iter().map(|(key, value)| (key, value.to_string())).collect(),
            artifact_delta: actions.artifact_delta,
            deleted_artifact_ids: actions.deleted_artifact_ids,
            skip_summarization: actions.skip_summarization,
            transfer_to_agent: actions.transfer_to_agent,
            escalate: actions.escalate,
            end_of_agent: actions.end_of_agent,
            end_invocation: actions.end_invocation,
            extra: some_object(actions.extra),
        }
    }
}

impl TryFrom<wit::FunctionDeclaration> for FunctionDeclaration {
    type Error = Error;

    fn try_from(declaration: wit::FunctionDeclaration) -> Result<Self, Error> {
        Ok(Self {
            name: declaration.name,
            description: declaration.description,
            parameters: read_schema(declaration.parameters)?,
            response: read_schema(declaration.response)?,
        })
    }
}

impl From<FunctionDeclaration> for wit::FunctionDeclaration {
    fn from(declaration: FunctionDeclaration) -> Self {
        Self {
            name: declaration.name,
            description: declaration.description,
            parameters: declaration.parameters.map(|schema| schema.to_string()),
            response: declaration.response.map(|schema| schema.to_string()),
        }
    }
}

impl TryFrom<wit::LlmRequest> for LlmRequest {
    type Error = Error;

    fn try_from(request: wit::LlmRequest) -> Result<Self, Error> {
        let model_tools =
            request.model_tools.iter().map(|json| read(json, "a model tool")).collect::<Result<_, _>>()?;
        Ok(Self {
            model: request.model,
            contents: all(request.contents)?,
            system_instructions: request.system_instructions,
            tools: all(request.tools)?,
            model_tools,
            config: request.config.map_or_else(|| Ok(JsonMap::new()), |json| read(&json, "the model settings"))?,
        })
    }
}

impl From<LlmRequest> for wit::LlmRequest {
    fn from(request: LlmRequest) -> Self {
        Self {
            model: request.model,
            contents: into_all(request.contents),
            system_instructions: request.system_instructions,
            tools: into_all(request.tools),
            model_tools: request.model_tools.iter().map(Value::to_string).collect(),
            config: some_object(request.config),
        }
    }
}

impl TryFrom<wit::LlmResponse> for LlmResponse {
    type Error = Error;

    fn try_from(response: wit::LlmResponse) -> Result<Self, Error> {
        Ok(Self {
            content: response.content.map(Content::try_from).transpose()?,
            partial: response.partial,
            turn_complete: response.turn_complete,
            interrupted: response.interrupted,
            finish_reason: response.finish_reason,
            error_code: response.error_code,
            error_message: response.error_message,
            extra: read_extra(response.extra)?,
        })
    }
}

impl From<LlmResponse> for wit::LlmResponse {
    fn from(response: LlmResponse) -> Self {
        Self {
            content: response.content.map(Into::into),
            partial: response.partial,
            turn_complete: response.turn_complete,
            interrupted: response.interrupted,
            finish_reason: response.finish_reason,
            error_code: response.error_code,
            error_message: response.error_message,
            extra: some_object(response.extra),
        }
    }
}

impl TryFrom<wit::ArtifactVersion> for ArtifactVersion {
    type Error = Error;

    fn try_from(version: wit::ArtifactVersion) -> Result<Self, Error> {
        let wit::ArtifactVersion { version, mime_type, size, created, custom_metadata } = version;
        let custom_metadata = read(&custom_metadata, "the custom metadata")?;
        Ok(Self { version, mime_type, size, created_micros: created, custom_metadata })
    }
}

impl TryFrom<wit::MemoryEntry> for MemoryEntry {
    type Error = Error;

    fn try_from(entry: wit::MemoryEntry) -> Result<Self, Error> {
        Ok(Self { content: entry.content.try_into()?, author: entry.author, timestamp_micros: entry.timestamp })
    }
}

impl From<Example> for wit::Example {
    fn from(example: Example) -> Self {
        Self { input: example.input.into(), output: into_all(example.output) }
    }
}

impl TryFrom<wit::ToolConfirmation> for ToolConfirmation {
    type Error = Error;

    fn try_from(confirmation: wit::ToolConfirmation) -> Result<Self, Error> {
        let payload = confirmation.payload.map(|json| read(&json, "the payload of a confirmation")).transpose()?;
        Ok(Self { hint: confirmation.hint, confirmed: confirmation.confirmed, payload })
    }
}

#[cfg(test)]
mod tests;
