//! The end of a conversation: what a script looks at. Made in one walk back to the user's last text, never further.

use std::borrow::Cow;

use hatchery_core::{Content, FunctionResponse, JsonMap, LlmRequest, PartData};
use serde_json::Value;

/// How the engine begins a message that tells what another agent did.
const CONTEXT_MARK: &str = "For context:";

/// What happened since the user last said something.
#[derive(Debug)]
pub(super) struct Tail<'a> {
    request: &'a LlmRequest,
    user: Cow<'a, str>,
    step: usize,
    bytes: usize,
}

impl<'a> Tail<'a> {
    pub(super) fn of(request: &'a LlmRequest) -> Self {
        let mut tail = Self {
            request,
            user: Cow::Borrowed(""),
            step: 1,
            bytes: request.system_instructions.iter().map(String::len).sum(),
        };
        for content in request.contents.iter().rev() {
            tail.bytes += bytes_of(content);
            if content.role.as_deref() == Some("model") {
                tail.step += 1;
            } else if !is_context(content) && content.function_responses().next().is_none() {
                let text = text_of(content);
                if !text.is_empty() {
                    tail.user = text;
                    break;
                }
            }
        }
        tail
    }

    pub(super) fn model(&self) -> &'a str {
        &self.request.model
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }

    /// Which model call since the user spoke this is, from 1.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    pub(super) fn system(&self) -> &'a [String] {
        &self.request.system_instructions
    }

    /// Tokens of the system instructions and of what came since the user's last text, at four bytes each.
    pub(super) fn tokens(&self) -> u64 {
        tokens(self.bytes)
    }

    /// The tools' answers, when they are the last message.
    pub(super) fn tools(&self) -> impl Iterator<Item = &'a FunctionResponse> + use<'a> {
        self.request.contents.last().into_iter().flat_map(|content| content.function_responses())
    }

    /// What other agents did since the user spoke, newest first.
    pub(super) fn contexts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.request
            .contents
            .iter()
            .rev()
            .take_while(|content| {
                content.role.as_deref() == Some("model")
                    || is_context(content)
                    || content.function_responses().next().is_some()
            })
            .filter(|content| is_context(content))
            .flat_map(|content| content.parts.iter().skip(1).rev())
            .filter_map(|part| part.as_text())
    }

    /// What the conversation ends with, for a person.
    pub(super) fn describe(&self) -> String {
        match self.tools().last() {
            Some(response) => {
                format!(
                    "the last message is the answer of tool `{}`, the last user text {:?}",
                    response.name, self.user
                )
            }
            None => format!("the last user text is {:?}", self.user),
        }
    }

    /// The view of a reply that has no conditions.
    pub(super) fn fit(&self) -> Fit<'_> {
        Fit { tail: self, rest: self.user(), tool: self.tools().last() }
    }
}

/// A tail as the turn that fits it sees it.
#[derive(Debug)]
pub(super) struct Fit<'a> {
    pub(super) tail: &'a Tail<'a>,
    /// What follows the phrase that `user` found.
    pub(super) rest: &'a str,
    /// The answer that `tool` found.
    pub(super) tool: Option<&'a FunctionResponse>,
}

impl<'a> Fit<'a> {
    pub(super) fn user(&self) -> &'a str {
        self.tail.user()
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest.trim().trim_end_matches(['.', '?', '!']).trim_end()
    }

    pub(super) fn tool(&self) -> Option<&'a FunctionResponse> {
        self.tool
    }

    pub(super) fn tools(&self) -> impl Iterator<Item = &'a FunctionResponse> + use<'a> {
        self.tail.tools()
    }

    /// What another agent said last, without the words that introduce it.
    pub(super) fn context(&self) -> Option<&'a str> {
        let text = self.tail.contexts().next()?;
        Some(text.split_once("] said: ").map_or(text, |(_, said)| said))
    }
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
