//! How many bytes a guest's answer has, for the limit on results. Counts every text and all
//! bytes, and something for each item of a list, so that many small ones have a weight too.

use super::wit;
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors::{CodeFile, CodeOutput};

/// What an item of a list weighs beside what is in it, bytes.
pub(crate) const ITEM: u64 = 32;

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
        self.iter().map(|item| ITEM + item.weigh()).sum()
    }
}

impl Weigh for wit::Content {
    fn weigh(&self) -> u64 {
        self.role.weigh() + self.parts.weigh()
    }
}

impl Weigh for wit::Part {
    fn weigh(&self) -> u64 {
        let signature = self.thought_signature.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.data.weigh() + signature + self.extra.weigh()
    }
}

impl Weigh for wit::PartData {
    fn weigh(&self) -> u64 {
        match self {
            Self::Other => 0,
            Self::Text(text) => text.weigh(),
            Self::InlineData(blob) => blob.mime_type.weigh() + blob.data.len() as u64 + blob.display_name.weigh(),
            Self::FileData(file) => file.file_uri.weigh() + file.mime_type.weigh() + file.display_name.weigh(),
            Self::FunctionCall(call) => call.id.weigh() + call.name.weigh() + call.args.weigh() + call.extra.weigh(),
            Self::FunctionResponse(response) => {
                response.id.weigh() + response.name.weigh() + response.response.weigh() + response.extra.weigh()
            }
            Self::ExecutableCode(code) => code.language.weigh() + code.code.weigh() + code.extra.weigh(),
            Self::CodeExecutionResult(result) => result.outcome.weigh() + result.output.weigh() + result.extra.weigh(),
        }
    }
}

impl Weigh for wit::Event {
    fn weigh(&self) -> u64 {
        let names = self.id.weigh() + self.invocation_id.weigh() + self.author.weigh() + self.branch.weigh();
        let error = self.error_code.weigh() + self.error_message.weigh();
        let calls = self.long_running_tool_ids.weigh();
        names + self.content.weigh() + self.actions.weigh() + calls + error + self.extra.weigh()
    }
}

impl Weigh for wit::EventActions {
    fn weigh(&self) -> u64 {
        let state = self.state_delta.iter().map(|(key, value)| ITEM + key.weigh() + value.weigh()).sum::<u64>();
        let artifacts = self.artifact_delta.iter().map(|(name, _)| ITEM + name.weigh()).sum::<u64>();
        state + artifacts + self.transfer_to_agent.weigh() + self.extra.weigh()
    }
}

impl Weigh for wit::FunctionDeclaration {
    fn weigh(&self) -> u64 {
        self.name.weigh() + self.description.weigh() + self.parameters.weigh() + self.response.weigh()
    }
}

impl Weigh for wit::LlmRequest {
    fn weigh(&self) -> u64 {
        let tools = self.tools.weigh() + self.model_tools.weigh();
        self.model.weigh() + self.contents.weigh() + self.system_instructions.weigh() + tools + self.config.weigh()
    }
}

impl Weigh for wit::LlmResponse {
    fn weigh(&self) -> u64 {
        let error = self.error_code.weigh() + self.error_message.weigh();
        self.content.weigh() + self.finish_reason.weigh() + error + self.extra.weigh()
    }
}

impl Weigh for wit::Example {
    fn weigh(&self) -> u64 {
        self.input.weigh() + self.output.weigh()
    }
}

impl Weigh for CodeOutput {
    fn weigh(&self) -> u64 {
        self.stdout.weigh() + self.stderr.weigh() + self.output_files.weigh()
    }
}

impl Weigh for CodeFile {
    fn weigh(&self) -> u64 {
        self.name.weigh() + self.mime_type.weigh() + self.content.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Content, EventActions, EventData, Example, FunctionDeclaration, LlmRequest, LlmResponse};

    use super::*;
    use crate::contract::convert::ToWit;

    #[test]
    fn every_text_of_an_event_counts() {
        let empty = EventData::default().to_wit().weigh();
        let long = || "x".repeat(1000);
        let actions = EventActions { transfer_to_agent: Some(long()), ..EventActions::default() };
        for event in [
            EventData { author: long(), ..EventData::default() },
            EventData { branch: Some(long()), ..EventData::default() },
            EventData { error_code: Some(long()), ..EventData::default() },
            EventData { actions, ..EventData::default() },
        ] {
            assert_eq!(event.to_wit().weigh(), empty + 1000, "{event:?}");
        }
    }

    #[test]
    fn many_empty_items_have_a_weight() {
        let parts = Content::new("", vec![hatchery_core::Part::text(""); 1000]);
        assert_eq!(parts.to_wit().weigh(), 1000 * ITEM);
        let mut actions = EventActions::default().to_wit();
        actions.artifact_delta = vec![(String::new(), 0); 1000];
        assert_eq!(actions.weigh(), 1000 * ITEM);
    }

    #[test]
    fn examples_and_what_code_writes_count() {
        let example = Example { input: Content::user("12345"), output: vec![Content::model("123")] };
        let roles = ("user".len() + "model".len()) as u64;
        assert_eq!(example.to_wit().weigh(), roles + 5 + 3 + 3 * ITEM);
        let file = CodeFile { name: "a".into(), mime_type: "b/c".into(), content: vec![0; 100] };
        let output = CodeOutput { stdout: "12".into(), stderr: "1".into(), output_files: vec![file] };
        assert_eq!(output.weigh(), 3 + (1 + 3 + 100) + ITEM);
    }

    #[test]
    fn the_tools_of_a_request_and_the_codes_of_a_response_count() {
        let tool =
            FunctionDeclaration { name: "n".repeat(10), description: "d".repeat(10), parameters: None, response: None };
        let request = LlmRequest { tools: vec![tool.into()], ..LlmRequest::default() };
        assert_eq!(request.to_wit().weigh(), LlmRequest::default().to_wit().weigh() + 20 + ITEM);
        let response = LlmResponse { finish_reason: Some("STOP".into()), ..LlmResponse::default() };
        assert_eq!(response.to_wit().weigh(), 4);
    }
}
