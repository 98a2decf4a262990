//! How many bytes a guest's answer has, for the limit on results. Counts what can be large: texts, bytes and JSON.

use super::wit;

/// Something with a size.
pub(crate) trait Weigh {
    /// Its bytes, roughly.
    fn weigh(&self) -> u64;
}

impl Weigh for String {
    fn weigh(&self) -> u64 {
        self.len() as u64
    }
}

impl<T: Weigh> Weigh for Option<T> {
    fn weigh(&self) -> u64 {
        self.as_ref().map_or(0, Weigh::weigh)
    }
}

impl<T: Weigh> Weigh for Vec<T> {
    fn weigh(&self) -> u64 {
        self.iter().map(Weigh::weigh).sum()
    }
}

impl Weigh for wit::Content {
    fn weigh(&self) -> u64 {
        self.parts.weigh()
    }
}

impl Weigh for wit::Part {
    fn weigh(&self) -> u64 {
        let data = match &self.data {
            wit::PartData::Other => 0,
            wit::PartData::Text(text) => text.weigh(),
            wit::PartData::InlineData(blob) => blob.data.len() as u64,
            wit::PartData::FileData(file) => file.file_uri.weigh(),
            wit::PartData::FunctionCall(call) => call.args.weigh() + call.extra.weigh(),
            wit::PartData::FunctionResponse(response) => response.response.weigh() + response.extra.weigh(),
            wit::PartData::ExecutableCode(code) => code.code.weigh() + code.extra.weigh(),
            wit::PartData::CodeExecutionResult(result) => result.output.weigh() + result.extra.weigh(),
        };
        data + self.thought_signature.as_ref().map_or(0, |bytes| bytes.len() as u64) + self.extra.weigh()
    }
}

impl Weigh for wit::Event {
    fn weigh(&self) -> u64 {
        let state = self.actions.state_delta.iter().map(|(key, value)| key.weigh() + value.weigh()).sum::<u64>();
        self.content.weigh() + state + self.actions.extra.weigh() + self.error_message.weigh() + self.extra.weigh()
    }
}

impl Weigh for wit::LlmRequest {
    fn weigh(&self) -> u64 {
        self.contents.weigh() + self.system_instructions.weigh() + self.model_tools.weigh() + self.config.weigh()
    }
}

impl Weigh for wit::LlmResponse {
    fn weigh(&self) -> u64 {
        self.content.weigh() + self.error_message.weigh() + self.extra.weigh()
    }
}
