//! One turn of a script: its conditions and its reply.

use hatchery_core::FunctionResponse;

use super::recent_history::{RecentHistory, TurnMatch};
use super::reply::Reply;

/// Conditions, and the reply if all of them match. Repeated calls of one method add alternatives.
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
    /// Creates a turn that always matches.
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

    /// Requires that the last user text contains `text`, ignoring case.
    #[must_use]
    pub fn user(mut self, text: impl Into<String>) -> Self {
        self.user.push(Phrase(text.into()));
        self
    }

    /// Requires that the last message is a result of the tool `name`.
    #[must_use]
    pub fn tool(mut self, name: impl Into<String>) -> Self {
        self.tool.push(name.into());
        self
    }

    /// Requires that the JSON of the tool result contains `text`.
    #[must_use]
    pub fn result(mut self, text: impl Into<String>) -> Self {
        self.result.push(Phrase(text.into()));
        self
    }

    /// Requires that one of the system instructions contains `text`.
    #[must_use]
    pub fn system(mut self, text: impl Into<String>) -> Self {
        self.system.push(Phrase(text.into()));
        self
    }

    /// Requires that a text of another agent since the last user message contains `text`.
    #[must_use]
    pub fn context(mut self, text: impl Into<String>) -> Self {
        self.context.push(Phrase(text.into()));
        self
    }

    /// Requires that this is the n-th model call since the last user message, from 1.
    #[must_use]
    pub fn step(mut self, step: usize) -> Self {
        self.step = Some(step);
        self
    }

    /// Returns the values for the reply's placeholders. `None` if a condition does not match.
    pub(super) fn find_match<'a>(&self, history: &'a RecentHistory<'a>) -> Option<TurnMatch<'a>> {
        if self.step.is_some_and(|step| step != history.step())
            || !contains_any(&self.system, history.system().iter().map(String::as_str))
            || !contains_any(&self.context, history.contexts())
        {
            return None;
        }
        let tool_result = self.match_tool_result(history)?;
        let rest = self.match_user_text(history)?;
        Some(TurnMatch { history, rest, tool_result })
    }

    /// Returns the tool result that matches `tool` and `result`. Without these conditions, the last one, if any.
    fn match_tool_result<'a>(&self, history: &'a RecentHistory<'a>) -> Option<Option<&'a FunctionResponse>> {
        if self.tool.is_empty() && self.result.is_empty() {
            return Some(history.tool_results().last());
        }
        let is_match = |response: &&FunctionResponse| {
            (self.tool.is_empty() || self.tool.contains(&response.name))
                && (self.result.is_empty()
                    || serde_json::to_string(&response.response)
                        .is_ok_and(|json| contains_any(&self.result, std::iter::once(json.as_str()))))
        };
        history.tool_results().find(is_match).map(Some)
    }

    /// Returns the user's text after the phrase that matches `user`. Without this condition, the whole text.
    fn match_user_text<'a>(&self, history: &'a RecentHistory<'a>) -> Option<&'a str> {
        let text = history.user();
        if self.user.is_empty() {
            return Some(text);
        }
        let expects_tool_result = !self.tool.is_empty() || !self.result.is_empty() || self.step.is_some();
        if !expects_tool_result && history.tool_results().next().is_some() {
            return None;
        }
        self.user.iter().find_map(|phrase| phrase.find_rest(text))
    }
}

/// Returns true if one of the texts contains one of the phrases, or if there are no phrases.
fn contains_any<'a>(phrases: &[Phrase], mut texts: impl Iterator<Item = &'a str>) -> bool {
    phrases.is_empty() || texts.any(|text| phrases.iter().any(|phrase| phrase.find_rest(text).is_some()))
}

/// A text to search for, ignoring case.
#[derive(Debug, Clone)]
struct Phrase(String);

impl Phrase {
    /// Returns the text after the first occurrence.
    fn find_rest<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.char_indices().find_map(|(start, _)| self.strip_prefix(text.get(start..)?))
    }

    fn strip_prefix<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut rest = text.chars();
        for expected in self.0.chars() {
            let actual = rest.next()?;
            if actual != expected && !actual.to_lowercase().eq(expected.to_lowercase()) {
                return None;
            }
        }
        Some(rest.as_str())
    }
}
