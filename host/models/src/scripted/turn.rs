//! One turn of a script: when it fits, and what it replies.

use hatchery_core::FunctionResponse;

use super::reply::Reply;
use super::tail::{Fit, Tail};

/// Conditions and the reply when all of them fit. A condition given several times offers alternatives.
#[derive(Debug, Clone)]
pub struct Turn {
    user: Vec<Phrase>,
    tool: Vec<String>,
    result: Vec<Phrase>,
    system: Vec<Phrase>,
    context: Vec<Phrase>,
    step: Option<usize>,
    pub(super) reply: Reply,
}

impl Turn {
    /// A turn that fits always.
    pub fn new(reply: impl Into<Reply>) -> Self {
        Self {
            user: Vec::new(),
            tool: Vec::new(),
            result: Vec::new(),
            system: Vec::new(),
            context: Vec::new(),
            step: None,
            reply: reply.into(),
        }
    }

    /// The last user text holds `text`, whatever the case.
    #[must_use]
    pub fn user(mut self, text: impl Into<String>) -> Self {
        self.user.push(Phrase(text.into()));
        self
    }

    /// The last message is the answer of the tool `name`.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool.push(name.into());
        self
    }

    /// The JSON of the tool's answer holds `text`.
    #[must_use]
    pub fn result(mut self, text: impl Into<String>) -> Self {
        self.result.push(Phrase(text.into()));
        self
    }

    /// One of the system instructions holds `text`.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system.push(Phrase(text.into()));
        self
    }

    /// Another agent has said `text` since the user spoke.
    #[must_use]
    pub fn context(mut self, text: impl Into<String>) -> Self {
        self.context.push(Phrase(text.into()));
        self
    }

    /// This is the n-th model call since the user spoke, from 1.
    #[must_use]
    pub fn step(mut self, step: usize) -> Self {
        self.step = Some(step);
        self
    }

    /// What a reply needs to know, when every condition fits.
    pub(super) fn fits<'a>(&self, tail: &'a Tail<'a>) -> Option<Fit<'a>> {
        if self.step.is_some_and(|step| step != tail.step())
            || !any(&self.system, tail.system().iter().map(String::as_str))
            || !any(&self.context, tail.contexts())
        {
            return None;
        }
        let tool = self.fitting_answer(tail)?;
        let rest = self.fitting_rest(tail)?;
        Some(Fit { tail, rest, tool })
    }

    /// The answer that `tool` and `result` ask for; without them the last answer, if there is one.
    fn fitting_answer<'a>(&self, tail: &'a Tail<'a>) -> Option<Option<&'a FunctionResponse>> {
        if self.tool.is_empty() && self.result.is_empty() {
            return Some(tail.tools().last());
        }
        let fitting = |response: &&FunctionResponse| {
            (self.tool.is_empty() || self.tool.contains(&response.name))
                && (self.result.is_empty()
                    || serde_json::to_string(&response.response)
                        .is_ok_and(|json| any(&self.result, std::iter::once(json.as_str()))))
        };
        tail.tools().find(fitting).map(Some)
    }

    /// What follows the phrase that `user` found; the whole text without one.
    fn fitting_rest<'a>(&self, tail: &'a Tail<'a>) -> Option<&'a str> {
        let text = tail.user();
        if self.user.is_empty() {
            return Some(text);
        }
        let answers_a_tool = !self.tool.is_empty() || !self.result.is_empty() || self.step.is_some();
        if !answers_a_tool && tail.tools().next().is_some() {
            return None;
        }
        self.user.iter().find_map(|phrase| phrase.rest_of(text))
    }
}

/// True when there are no phrases, or one of them is in one of the texts.
fn any<'a>(phrases: &[Phrase], mut texts: impl Iterator<Item = &'a str>) -> bool {
    phrases.is_empty() || texts.any(|text| phrases.iter().any(|phrase| phrase.rest_of(text).is_some()))
}

/// A text to look for, whatever the case.
#[derive(Debug, Clone)]
struct Phrase(String);

impl Phrase {
    /// What follows its first appearance in `text`.
    fn rest_of<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.char_indices().find_map(|(start, _)| self.rest_at_start(text.get(start..)?))
    }

    fn rest_at_start<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut rest = text.chars();
        for wanted in self.0.chars() {
            let found = rest.next()?;
            if found != wanted && !found.to_lowercase().eq(wanted.to_lowercase()) {
                return None;
            }
        }
        Some(rest.as_str())
    }
}
