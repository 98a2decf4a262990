//! Conversion of contents, parts and examples.

use bytes::Bytes;
use hatchery_core::{
    Blob, CodeExecutionResult, Content, Example, ExecutableCode, FileData, FunctionCall, FunctionResponse, Part,
    PartData,
};

use super::json::{extra, from_extra};
use super::{BadValue, FromWit, ToWit, all_from_wit, all_to_wit, parse_object, to_json, wit};

impl ToWit for Content {
    type Wit = wit::Content;

    fn to_wit(&self) -> wit::Content {
        wit::Content { role: self.role.clone(), parts: all_to_wit(&self.parts) }
    }
}

impl FromWit<wit::Content> for Content {
    fn from_wit(content: wit::Content) -> Result<Self, BadValue> {
        Ok(Self { role: content.role, parts: all_from_wit(content.parts)? })
    }
}

impl ToWit for Part {
    type Wit = wit::Part;

    fn to_wit(&self) -> wit::Part {
        wit::Part {
            data: self.data.to_wit(),
            thought: self.thought,
            thought_signature: self.thought_signature.as_ref().map(|bytes| bytes.to_vec()),
            extra: extra(&self.extra),
        }
    }
}

impl FromWit<wit::Part> for Part {
    fn from_wit(part: wit::Part) -> Result<Self, BadValue> {
        Ok(Self {
            data: PartData::from_wit(part.data)?,
            thought: part.thought,
            thought_signature: part.thought_signature.map(Bytes::from),
            extra: from_extra::<Self>(part.extra, "`extra` of a part")?.without_nulls(),
        })
    }
}

impl ToWit for PartData {
    type Wit = wit::PartData;

    fn to_wit(&self) -> wit::PartData {
        match self {
            Self::Other => wit::PartData::Other,
            Self::Text(text) => wit::PartData::Text(text.clone()),
            Self::InlineData(blob) => wit::PartData::InlineData(blob.to_wit()),
            Self::FileData(file) => wit::PartData::FileData(wit::FileData {
                file_uri: file.file_uri.clone(),
                mime_type: file.mime_type.clone(),
                display_name: file.display_name.clone(),
            }),
            Self::FunctionCall(call) => wit::PartData::FunctionCall(call.to_wit()),
            Self::FunctionResponse(response) => wit::PartData::FunctionResponse(response.to_wit()),
            Self::ExecutableCode(code) => wit::PartData::ExecutableCode(wit::ExecutableCode {
                language: code.language.clone(),
                code: code.code.clone(),
                extra: extra(&code.extra),
            }),
            Self::CodeExecutionResult(result) => wit::PartData::CodeExecutionResult(wit::CodeExecutionResult {
                outcome: result.outcome.clone(),
                output: result.output.clone(),
                extra: extra(&result.extra),
            }),
        }
    }
}

impl FromWit<wit::PartData> for PartData {
    fn from_wit(data: wit::PartData) -> Result<Self, BadValue> {
        Ok(match data {
            wit::PartData::Other => Self::Other,
            wit::PartData::Text(text) => Self::Text(text),
            wit::PartData::InlineData(blob) => Self::InlineData(Blob::from_wit(blob)?),
            wit::PartData::FileData(file) => Self::FileData(FileData {
                file_uri: file.file_uri,
                mime_type: file.mime_type,
                display_name: file.display_name,
            }),
            wit::PartData::FunctionCall(call) => Self::FunctionCall(FunctionCall::from_wit(call)?),
            wit::PartData::FunctionResponse(response) => Self::FunctionResponse(FunctionResponse::from_wit(response)?),
            wit::PartData::ExecutableCode(code) => Self::ExecutableCode(ExecutableCode {
                language: code.language,
                code: code.code,
                extra: from_extra::<ExecutableCode>(code.extra, "`extra` of executable code")?,
            }),
            wit::PartData::CodeExecutionResult(result) => Self::CodeExecutionResult(CodeExecutionResult {
                outcome: result.outcome,
                output: result.output,
                extra: from_extra::<CodeExecutionResult>(result.extra, "`extra` of a code execution result")?,
            }),
        })
    }
}

impl ToWit for Blob {
    type Wit = wit::Blob;

    fn to_wit(&self) -> wit::Blob {
        wit::Blob {
            mime_type: self.mime_type.clone(),
            data: self.data.to_vec(),
            display_name: self.display_name.clone(),
        }
    }
}

impl FromWit<wit::Blob> for Blob {
    fn from_wit(blob: wit::Blob) -> Result<Self, BadValue> {
        Ok(Self { mime_type: blob.mime_type, data: blob.data.into(), display_name: blob.display_name })
    }
}

impl ToWit for FunctionCall {
    type Wit = wit::FunctionCall;

    fn to_wit(&self) -> wit::FunctionCall {
        wit::FunctionCall {
            id: self.id.clone(),
            name: self.name.clone(),
            args: to_json(&self.args),
            extra: extra(&self.extra),
        }
    }
}

impl FromWit<wit::FunctionCall> for FunctionCall {
    fn from_wit(call: wit::FunctionCall) -> Result<Self, BadValue> {
        Ok(Self {
            id: call.id,
            name: call.name,
            args: parse_object(&call.args, "`args` of a function call")?,
            extra: from_extra::<Self>(call.extra, "`extra` of a function call")?,
        })
    }
}

impl ToWit for FunctionResponse {
    type Wit = wit::FunctionResponse;

    fn to_wit(&self) -> wit::FunctionResponse {
        wit::FunctionResponse {
            id: self.id.clone(),
            name: self.name.clone(),
            response: to_json(&self.response),
            extra: extra(&self.extra),
        }
    }
}

impl FromWit<wit::FunctionResponse> for FunctionResponse {
    fn from_wit(response: wit::FunctionResponse) -> Result<Self, BadValue> {
        Ok(Self {
            id: response.id,
            name: response.name,
            response: parse_object(&response.response, "`response` of a function response")?,
            extra: from_extra::<Self>(response.extra, "`extra` of a function response")?,
        })
    }
}

impl ToWit for Example {
    type Wit = wit::Example;

    fn to_wit(&self) -> wit::Example {
        wit::Example { input: self.input.to_wit(), output: all_to_wit(&self.output) }
    }
}

impl FromWit<wit::Example> for Example {
    fn from_wit(example: wit::Example) -> Result<Self, BadValue> {
        Ok(Self { input: Content::from_wit(example.input)?, output: all_from_wit(example.output)? })
    }
}
