//! Size estimation of guests' values, for `limits.result` and `limits.memory`. Counts all texts and bytes, and a
//! constant per list item, so that many small items count, too.

use super::wit;
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors::{CodeFile, CodeOutput};

/// Bytes that each list item counts in addition to its contents.
pub(crate) const ITEM_SIZE: u64 = 32;

pub(crate) trait EstimateSize {
    /// Returns the approximate number of bytes.
    fn estimated_size(&self) -> u64;
}

impl EstimateSize for String {
    fn estimated_size(&self) -> u64 {
        self.len() as u64
    }
}

impl<T: EstimateSize> EstimateSize for Option<T> {
    fn estimated_size(&self) -> u64 {
        self.as_ref().map_or(0, EstimateSize::estimated_size)
    }
}

impl<T: EstimateSize> EstimateSize for Vec<T> {
    fn estimated_size(&self) -> u64 {
        self.iter().map(|item| ITEM_SIZE + item.estimated_size()).sum()
    }
}

impl EstimateSize for wit::HttpRequest {
    fn estimated_size(&self) -> u64 {
        let headers: u64 = self.headers.iter().map(|(name, value)| ITEM_SIZE + (name.len() + value.len()) as u64).sum();
        self.method.estimated_size() + self.url.estimated_size() + headers + self.body.len() as u64
    }
}

impl EstimateSize for wit::Content {
    fn estimated_size(&self) -> u64 {
        self.role.estimated_size() + self.parts.estimated_size()
    }
}

impl EstimateSize for wit::Part {
    fn estimated_size(&self) -> u64 {
        let signature = self.thought_signature.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.data.estimated_size() + signature + self.extra.estimated_size()
    }
}

impl EstimateSize for wit::PartData {
    fn estimated_size(&self) -> u64 {
        match self {
            Self::Other => 0,
            Self::Text(text) => text.estimated_size(),
            Self::InlineData(blob) => blob.estimated_size(),
            Self::FileData(file) => {
                file.file_uri.estimated_size() + file.mime_type.estimated_size() + file.display_name.estimated_size()
            }
            Self::FunctionCall(call) => call.estimated_size(),
            Self::FunctionResponse(response) => response.estimated_size(),
            Self::ExecutableCode(code) => {
                code.language.estimated_size() + code.code.estimated_size() + code.extra.estimated_size()
            }
            Self::CodeExecutionResult(result) => {
                result.outcome.estimated_size() + result.output.estimated_size() + result.extra.estimated_size()
            }
        }
    }
}

impl EstimateSize for wit::Blob {
    fn estimated_size(&self) -> u64 {
        self.mime_type.estimated_size() + self.data.len() as u64 + self.display_name.estimated_size()
    }
}

impl EstimateSize for wit::FunctionCall {
    fn estimated_size(&self) -> u64 {
        self.id.estimated_size() + self.name.estimated_size() + self.args.estimated_size() + self.extra.estimated_size()
    }
}

impl EstimateSize for wit::FunctionResponse {
    fn estimated_size(&self) -> u64 {
        self.id.estimated_size()
            + self.name.estimated_size()
            + self.response.estimated_size()
            + self.extra.estimated_size()
    }
}

impl EstimateSize for wit::Event {
    fn estimated_size(&self) -> u64 {
        let names = self.id.estimated_size()
            + self.invocation_id.estimated_size()
            + self.author.estimated_size()
            + self.branch.estimated_size();
        let error = self.error_code.estimated_size() + self.error_message.estimated_size();
        let calls = self.long_running_tool_ids.estimated_size();
        names
            + self.content.estimated_size()
            + self.actions.estimated_size()
            + calls
            + error
            + self.extra.estimated_size()
    }
}

impl EstimateSize for wit::EventActions {
    fn estimated_size(&self) -> u64 {
        let state = self
            .state_delta
            .iter()
            .map(|(key, value)| ITEM_SIZE + key.estimated_size() + value.estimated_size())
            .sum::<u64>();
        let artifacts = self.artifact_delta.iter().map(|(name, _)| ITEM_SIZE + name.estimated_size()).sum::<u64>();
        state
            + artifacts
            + self.deleted_artifact_ids.estimated_size()
            + self.transfer_to_agent.estimated_size()
            + self.extra.estimated_size()
    }
}

impl EstimateSize for wit::FunctionDeclaration {
    fn estimated_size(&self) -> u64 {
        self.name.estimated_size()
            + self.description.estimated_size()
            + self.parameters.estimated_size()
            + self.response.estimated_size()
    }
}

impl EstimateSize for wit::LlmRequest {
    fn estimated_size(&self) -> u64 {
        let tools = self.tools.estimated_size() + self.model_tools.estimated_size();
        self.model.estimated_size()
            + self.contents.estimated_size()
            + self.system_instructions.estimated_size()
            + tools
            + self.config.estimated_size()
    }
}

impl EstimateSize for wit::LlmResponse {
    fn estimated_size(&self) -> u64 {
        let error = self.error_code.estimated_size() + self.error_message.estimated_size();
        self.content.estimated_size() + self.finish_reason.estimated_size() + error + self.extra.estimated_size()
    }
}

impl EstimateSize for wit::Example {
    fn estimated_size(&self) -> u64 {
        self.input.estimated_size() + self.output.estimated_size()
    }
}

impl EstimateSize for CodeOutput {
    fn estimated_size(&self) -> u64 {
        self.stdout.estimated_size() + self.stderr.estimated_size() + self.output_files.estimated_size()
    }
}

impl EstimateSize for CodeFile {
    fn estimated_size(&self) -> u64 {
        self.name.estimated_size() + self.mime_type.estimated_size() + self.content.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventActions, EventData, Example, FunctionDeclaration, LlmRequest, LlmResponse};

    use super::*;
    use crate::contract::convert::ToWit;

    #[test]
    fn every_text_of_an_event_counts() {
        let empty = EventData::default().to_wit().estimated_size();
        let long = || "x".repeat(1000);
        let actions = EventActions { transfer_to_agent: Some(long()), ..EventActions::default() };
        for event in [
            EventData { author: long(), ..EventData::default() },
            EventData { branch: Some(long()), ..EventData::default() },
            EventData { error_code: Some(long()), ..EventData::default() },
            EventData { actions, ..EventData::default() },
        ] {
            assert_eq!(event.to_wit().estimated_size(), empty + 1000, "{event:?}");
        }
    }

    #[test]
    fn many_empty_items_have_a_size() {
        let parts = Content::new("", vec![hatchery_core::Part::text(""); 1000]);
        assert_eq!(parts.to_wit().estimated_size(), 1000 * ITEM_SIZE);
        let mut actions = EventActions::default().to_wit();
        actions.artifact_delta = vec![(String::new(), 0); 1000];
        assert_eq!(actions.estimated_size(), 1000 * ITEM_SIZE);
    }

    #[test]
    fn examples_and_output_of_code_count() {
        let example = Example { input: Content::user("12345"), output: vec![Content::model("123")] };
        let roles = ("user".len() + "model".len()) as u64;
        assert_eq!(example.to_wit().estimated_size(), roles + 5 + 3 + 3 * ITEM_SIZE);
        let file = CodeFile { name: "a".into(), mime_type: "b/c".into(), content: vec![0; 100] };
        let output = CodeOutput { stdout: "12".into(), stderr: "1".into(), output_files: vec![file] };
        assert_eq!(output.estimated_size(), 3 + (1 + 3 + 100) + ITEM_SIZE);
    }

    #[test]
    fn the_tools_of_a_request_and_the_codes_of_a_response_count() {
        let tool =
            FunctionDeclaration { name: "n".repeat(10), description: "d".repeat(10), parameters: None, response: None };
        let request = LlmRequest { tools: vec![tool.into()], ..LlmRequest::default() };
        assert_eq!(request.to_wit().estimated_size(), LlmRequest::default().to_wit().estimated_size() + 20 + ITEM_SIZE);
        let response = LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::default() };
        assert_eq!(response.to_wit().estimated_size(), 4);
    }
}
