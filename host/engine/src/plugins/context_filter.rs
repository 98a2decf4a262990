//! A plugin that keeps what models are sent short.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, Event, LlmRequest, LlmResponse, Part, PartData, Plugin, RunError, USER_AUTHOR,
};
use imbl::Vector;

/// Sends models only the newest turns of the conversation: what the user said and all that followed, so many times. A turn that answers a
/// function call of an older one brings that one along, since no model accepts an answer without its call.
///
/// What the user said is known from the session, since a prompt tells models much else in the user's role. A message that another plugin
/// has put in other words before does not begin a turn: the one before it is sent too.
pub struct ContextFilter(NonZeroUsize);

impl ContextFilter {
    /// Keeps this many turns.
    pub fn new(turns: NonZeroUsize) -> Self {
        Self(turns)
    }
}

#[async_trait]
impl Callback for ContextFilter {
    fn name(&self) -> &str {
        "context_filter_plugin"
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        let start = start(&request.contents, &said(&cx.invocation.events()), self.0);
        request.contents = request.contents.skip(start);
        Ok(None)
    }
}

impl Plugin for ContextFilter {}

/// What the user said beside answers to calls, a message each, oldest first.
fn said(events: &Vector<Arc<Event>>) -> Vec<Vec<&Part>> {
    let by_user = events.iter().filter(|event| event.author == USER_AUTHOR);
    let messages = by_user.filter_map(|event| event.content.as_deref()).map(spoken);
    messages.filter(|message| !message.is_empty()).collect()
}

fn spoken(content: &Content) -> Vec<&Part> {
    content.parts.iter().filter(|part| !matches!(part.data, PartData::FunctionResponse(_))).collect()
}

/// Where the kept contents begin.
fn start(contents: &Vector<Arc<Content>>, said: &[Vec<&Part>], turns: NonZeroUsize) -> usize {
    let (mut left, mut said) = (turns.get(), said);
    let mut unanswered: HashSet<&str> = HashSet::new();
    let mut is_said_after = false;
    for (index, content) in contents.iter().enumerate().rev() {
        let place = said.iter().rposition(|message| is_told_as(message, content));
        if is_said_after && place.is_none() {
            left = left.saturating_sub(1);
            if left == 0 && unanswered.is_empty() {
                return index + 1;
            }
        }
        is_said_after = place.is_some();
        said = said.get(..place.unwrap_or(said.len())).unwrap_or_default();
        for call in content.function_calls() {
            unanswered.remove(call.id.as_deref().unwrap_or_default());
        }
        unanswered.extend(content.function_responses().filter_map(|answer| answer.id.as_deref()));
    }
    0
}

/// True when a prompt's content is this message; in the place of a file there may be a text about it.
fn is_told_as(message: &[&Part], content: &Content) -> bool {
    let is_told_as = |(said, told): (&&Part, &Part)| {
        *said == told || matches!((&said.data, &told.data), (PartData::InlineData(_), PartData::Text(_)))
    };
    content.role.as_deref() != Some("model")
        && message.len() == content.parts.len()
        && message.iter().zip(&content.parts).all(is_told_as)
}

#[cfg(test)]
mod tests {
    use hatchery_core::{FunctionCall, FunctionResponse, PartData};

    use super::*;

    fn kept(words: &[&str], turns: usize) -> usize {
        let contents: Vector<_> = words.iter().map(|word| Arc::new(content(word))).collect();
        let users = words.iter().zip(&contents).filter(|(word, _)| word.starts_with('u'));
        let said: Vec<_> = users.map(|(_, content)| spoken(content)).collect();
        start(&contents, &said, NonZeroUsize::new(turns).unwrap())
    }

    /// `u` and `m` speak, `c1` is a call, `r1` its answer, `t` is told in the user's role.
    fn content(word: &str) -> Content {
        let id = Some(word[1..].to_owned());
        match &word[..1] {
            "u" => Content::user("hi"),
            "m" => Content::model("hi"),
            "t" => Content::user("For context:"),
            "c" => {
                let call = FunctionCall { id, name: "t".into(), ..FunctionCall::default() };
                Content::new("model", vec![PartData::FunctionCall(call).into()])
            }
            _ => {
                let answer = FunctionResponse { id, name: "t".into(), ..FunctionResponse::default() };
                Content::new("user", vec![PartData::FunctionResponse(answer).into()])
            }
        }
    }

    #[test]
    fn the_newest_turns_are_kept_whole() {
        let words = ["u", "m", "u", "c1", "r1", "m", "u"];
        assert_eq!(kept(&words, 1), 6);
        assert_eq!(kept(&words, 2), 2);
        assert_eq!(kept(&words, 3), 0);
        assert_eq!(kept(&words, 9), 0);
    }

    #[test]
    fn what_the_user_says_in_one_go_is_one_turn() {
        assert_eq!(kept(&["u", "m", "u", "u", "m"], 1), 2);
    }

    #[test]
    fn an_answer_brings_its_call_along() {
        assert_eq!(kept(&["u", "c1", "u", "r1", "m"], 1), 0);
    }

    #[test]
    fn what_is_only_told_in_the_user_s_role_begins_no_turn() {
        assert_eq!(kept(&["u", "m", "u", "m", "t", "m", "t"], 1), 2);
        assert_eq!(kept(&["u", "t", "u", "m"], 1), 2);
    }

    #[test]
    fn a_message_is_known_by_the_text_about_its_file() {
        let file = |data| Content::new("user", vec![Part::text("Look:"), data]);
        let csv = Part::from(PartData::InlineData(hatchery_core::Blob::default()));
        assert!(is_told_as(&spoken(&file(csv.clone())), &file(Part::text("Available file: data.csv"))));
        assert!(!is_told_as(&spoken(&file(Part::text("a"))), &file(Part::text("b"))));
        assert!(!is_told_as(&spoken(&file(csv)), &Content::user("Look:")));
    }

    #[test]
    fn nothing_is_kept_of_nothing() {
        assert_eq!(kept(&[], 1), 0);
    }
}
