//! Size of guests' values after parsing, for `limits.memory`: their JSON can take many times its text.

use super::wit;
use crate::contract::bindings::exports::hatchery::agent::guest_code_executors::CodeOutput;
use crate::contract::bindings::hatchery::agent::specs;
use crate::runtime::store::meter;

pub(crate) trait ParsedSize {
    /// Returns an upper bound for the bytes that the JSON in the value takes after parsing; 0 if it has no JSON.
    fn parsed_size(&self) -> u64;
}

/// A string is JSON here. The types below leave out their strings that are not.
impl ParsedSize for String {
    fn parsed_size(&self) -> u64 {
        meter::parsed_size(self)
    }
}

impl<T: ParsedSize> ParsedSize for Option<T> {
    fn parsed_size(&self) -> u64 {
        self.as_ref().map_or(0, ParsedSize::parsed_size)
    }
}

impl<T: ParsedSize> ParsedSize for Vec<T> {
    fn parsed_size(&self) -> u64 {
        self.iter().map(ParsedSize::parsed_size).sum()
    }
}

impl ParsedSize for wit::Content {
    fn parsed_size(&self) -> u64 {
        self.parts.parsed_size()
    }
}

impl ParsedSize for wit::Part {
    fn parsed_size(&self) -> u64 {
        self.data.parsed_size() + self.extra.parsed_size()
    }
}

impl ParsedSize for wit::PartData {
    fn parsed_size(&self) -> u64 {
        match self {
            Self::Other | Self::Text(_) | Self::InlineData(_) | Self::FileData(_) => 0,
            Self::FunctionCall(call) => call.parsed_size(),
            Self::FunctionResponse(response) => response.parsed_size(),
            Self::ExecutableCode(code) => code.extra.parsed_size(),
            Self::CodeExecutionResult(result) => result.extra.parsed_size(),
        }
    }
}

impl ParsedSize for wit::FunctionCall {
    fn parsed_size(&self) -> u64 {
        self.args.parsed_size() + self.extra.parsed_size()
    }
}

impl ParsedSize for wit::FunctionResponse {
    fn parsed_size(&self) -> u64 {
        self.response.parsed_size() + self.extra.parsed_size()
    }
}

impl ParsedSize for wit::Event {
    fn parsed_size(&self) -> u64 {
        self.content.parsed_size() + self.actions.parsed_size() + self.extra.parsed_size()
    }
}

impl ParsedSize for wit::EventActions {
    fn parsed_size(&self) -> u64 {
        let state: u64 = self.state_delta.iter().map(|(_, value)| value.parsed_size()).sum();
        state + self.extra.parsed_size()
    }
}

impl ParsedSize for wit::FunctionDeclaration {
    fn parsed_size(&self) -> u64 {
        self.parameters.parsed_size() + self.response.parsed_size()
    }
}

impl ParsedSize for specs::ToolSpec {
    fn parsed_size(&self) -> u64 {
        self.declaration.parsed_size()
    }
}

impl ParsedSize for wit::LlmRequest {
    fn parsed_size(&self) -> u64 {
        let tools = self.tools.parsed_size() + self.model_tools.parsed_size();
        self.contents.parsed_size() + tools + self.config.parsed_size()
    }
}

impl ParsedSize for wit::LlmResponse {
    fn parsed_size(&self) -> u64 {
        self.content.parsed_size() + self.extra.parsed_size()
    }
}

impl ParsedSize for wit::Example {
    fn parsed_size(&self) -> u64 {
        self.input.parsed_size() + self.output.parsed_size()
    }
}

impl ParsedSize for CodeOutput {
    fn parsed_size(&self) -> u64 {
        0
    }
}
