//! The conversation since the last user text, which is all that a script reads. Built in one backward pass that stops
//! there.

use std::borrow::Cow;

use hatchery_core::{Content, FunctionResponse, JsonMap, LlmRequest, PartData};
use serde_json::Value;

/// First part of a message in which the engine quotes another agent.
const CONTEXT_MARK: &str = "For context:";

/// The contents of a request from the last user text on.
#[derive(Debug)]
pub(super) struct RecentHistory<'a> {
    request: &'a LlmRequest,
    user: Cow<'a, str>,
    step: usize,
    bytes: usize,
}

impl<'a> RecentHistory<'a> {
    pub(super) fn new(request: &'a LlmRequest) -> Self {
        let mut history = Self {
            request,
            user: Cow::Borrowed(""),
            step: 1,
            bytes: request.system_instructions.iter().map(String::len).sum(),
        };
        for content in request.contents.iter().rev() {
            history.bytes += bytes_of(content);
            if content.role.as_deref() == Some("model") {
                history.step += 1;
            } else if !is_of_engine(content) && content.function_responses().next().is_none() {
                let text = text_of(content);
                if !text.is_empty() {
                    history.user = text;
                    break;
                }
            }
        }
        history
    }

    pub(super) fn model(&self) -> &'a str {
        &self.request.model
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Returns the number of this model call since the last user text, from 1.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    pub(super) fn system(&self) -> &'a [String] {
        &self.request.system_instructions
    }

    /// Returns the tokens of the system instructions and of the recent history, at four bytes each.
    pub(super) fn tokens(&self) -> u64 {
        tokens(self.bytes)
    }

    /// Returns the tool results in the last message.
    pub(super) fn tool_results(&self) -> impl Iterator<Item = &'a FunctionResponse> + use<'a> {
        let last = self.request.contents.iter().rev().find(|content| !content.is_instruction());
        last.into_iter().flat_map(|content| content.function_responses())
    }

    /// Returns the texts of other agents since the last user text, newest first.
    pub(super) fn contexts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.request
            .contents
            .iter()
            .rev()
            .take_while(|content| {
                content.role.as_deref() == Some("model")
                    || is_of_engine(content)
                    || content.function_responses().next().is_some()
            })
            .filter(|content| is_context(content))
            .flat_map(|content| content.parts.iter().skip(1).rev())
            .filter_map(|part| part.as_text())
    }

    /// Describes the end of the conversation for an error message.
    pub(super) fn describe(&self) -> String {
        match self.tool_results().last() {
            Some(response) => {
                format!(
                    "the last message is the answer of tool `{}`, the last user text {:?}",
                    response.name, self.user
                )
            }
            None => format!("the last user text is {:?}", self.user),
        }
    }

    /// Returns the match of a turn without conditions.
    pub(super) fn unconditional_match(&self) -> TurnMatch<'_> {
        TurnMatch { history: self, rest: self.user(), tool_result: self.tool_results().last() }
    }
}

/// A history with the values that a turn's conditions matched.
#[derive(Debug)]
pub(super) struct TurnMatch<'a> {
    pub(super) history: &'a RecentHistory<'a>,
    /// The user's text after the phrase that matched `user`.
    pub(super) rest: &'a str,
    /// The result that matched `tool` and `result`.
    pub(super) tool_result: Option<&'a FunctionResponse>,
}

impl<'a> TurnMatch<'a> {
    pub(super) fn user(&self) -> &'a str {
        self.history.user()
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest.trim().trim_end_matches(['.', '?', '!']).trim_end()
    }

    pub(super) fn tool_results(&self) -> impl Iterator<Item = &'a FunctionResponse> + use<'a> {
        self.history.tool_results()
    }

    /// Returns the last text of another agent, without the engine's introduction.
    pub(super) fn context(&self) -> Option<&'a str> {
        let text = self.history.contexts().next()?;
        Some(text.split_once("] said: ").map_or(text, |(_, quote)| quote))
    }
}

/// Returns true for a content in the user's role that is no message of the user.
fn is_of_engine(content: &Content) -> bool {
    is_context(content) || content.is_instruction()
}

fn is_context(content: &Content) -> bool {
    content.parts.first().and_then(|part| part.as_text()) == Some(CONTEXT_MARK)
}

fn text_of(content: &Content) -> Cow<'_, str> {
    let mut texts = content.parts.iter().filter(|part| !part.thought).filter_map(|part| part.as_text());
    match (texts.next(), texts.next()) {
        (None, _) => Cow::Borrowed(""),
        (Some(only), None) => Cow::Borrowed(only),
        (Some(_), Some(_)) => Cow::Owned(content.text()),
    }
}

pub(super) fn tokens(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX)
}

fn bytes_of(content: &Content) -> usize {
    content.parts.iter().map(|part| bytes_of_part(&part.data)).sum()
}

pub(super) fn bytes_of_part(data: &PartData) -> usize {
    match data {
        PartData::Other => 0,
        PartData::Text(text) => text.len(),
        PartData::InlineData(blob) => blob.data.len(),
        PartData::FileData(file) => file.file_uri.len(),
        PartData::FunctionCall(call) => call.name.len() + bytes_of_map(&call.args),
        PartData::FunctionResponse(response) => response.name.len() + bytes_of_map(&response.response),
        PartData::ExecutableCode(code) => code.code.len(),
        PartData::CodeExecutionResult(result) => result.output.as_ref().map_or(0, String::len),
    }
}

fn bytes_of_map(map: &JsonMap) -> usize {
    map.iter().map(|(key, value)| key.len() + bytes_of_value(value)).sum()
}

fn bytes_of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes_of_value).sum(),
        Value::Object(map) => bytes_of_map(map),
    }
}
