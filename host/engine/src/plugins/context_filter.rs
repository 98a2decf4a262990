//! A plugin that keeps what models are sent short.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Callback, Content, LlmRequest, LlmResponse, Plugin, RunError};
use imbl::Vector;

/// Sends models only the newest turns of the conversation: what the user said and all that followed, so many times. A turn that answers a
/// function call of an older one brings that one along, since no model accepts an answer without its call.
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

    async fn before_model(&self, _: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        let start = start(&request.contents, self.0);
        request.contents = request.contents.skip(start);
        Ok(None)
    }
}

impl Plugin for ContextFilter {}

/// Where the kept contents begin.
fn start(contents: &Vector<Arc<Content>>, turns: NonZeroUsize) -> usize {
    let mut left = turns.get();
    let mut unanswered: HashSet<&str> = HashSet::new();
    for (from_end, content) in contents.iter().rev().enumerate() {
        for call in content.function_calls() {
            unanswered.remove(call.id.as_deref().unwrap_or_default());
        }
        unanswered.extend(content.function_responses().filter_map(|answer| answer.id.as_deref()));
        let index = contents.len() - 1 - from_end;
        if !begins_turn(contents, index) {
            continue;
        }
        left = left.saturating_sub(1);
        if left == 0 && unanswered.is_empty() {
            return index;
        }
    }
    0
}

/// True where the user begins to speak: a user's content, not an answer to a call, that follows no other.
fn begins_turn(contents: &Vector<Arc<Content>>, index: usize) -> bool {
    let speaks = |index: usize| {
        contents.get(index).is_some_and(|content| {
            content.role.as_deref() != Some("model") && content.function_responses().next().is_none()
        })
    };
    speaks(index) && !index.checked_sub(1).is_some_and(speaks)
}

#[cfg(test)]
mod tests {
    use hatchery_core::{FunctionCall, FunctionResponse, PartData};

    use super::*;

    fn kept(words: &[&str], turns: usize) -> usize {
        let contents = words.iter().map(|word| Arc::new(content(word))).collect();
        start(&contents, NonZeroUsize::new(turns).unwrap())
    }

    /// `u` and `m` speak, `c1` is a call, `r1` its answer.
    fn content(word: &str) -> Content {
        let id = Some(word[1..].to_owned());
        match &word[..1] {
            "u" => Content::user("hi"),
            "m" => Content::model("hi"),
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
    fn nothing_is_kept_of_nothing() {
        assert_eq!(kept(&[], 1), 0);
    }
}
