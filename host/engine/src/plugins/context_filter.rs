//! A plugin that limits the number of turns in prompts.

use std::collections::{HashSet, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, Event, LlmRequest, LlmResponse, Part, PartData, Plugin, RunError, USER_AUTHOR,
};
use imbl::Vector;

/// Sends models only the newest turns of the conversation. A turn is a message of the user and everything up to the
/// next. If a turn answers a function call of an older turn, that turn is sent too: no model accepts an answer without
/// its call.
///
/// Instructions among the contents are kept: files of a static instruction, and the instruction before the newest turn.
///
/// Messages of the user are recognized by the session's events, since a prompt also has other contents in the user's
/// role. A message that another plugin rewrote is not recognized as the start of a turn, so the turn before it is sent
/// too.
pub struct ContextFilter(NonZeroUsize);

impl ContextFilter {
    /// Creates a filter that keeps this many turns.
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
        let events = cx.invocation.events();
        let instructions = request.contents.iter().take_while(|content| content.is_instruction()).count();
        let conversation = request.contents.split_off(instructions);
        let start = first_kept(&conversation, UserMessages::new(events.iter().rev()), self.0);
        request.contents.append(conversation.skip(start));
        Ok(None)
    }
}

impl Plugin for ContextFilter {}

/// The user's messages without answers to calls, newest first. Events are read lazily.
struct UserMessages<'a, I> {
    /// The events that are older than the messages.
    events: I,
    messages: VecDeque<Vec<&'a Part>>,
}

impl<'a, I: Iterator<Item = &'a Arc<Event>>> UserMessages<'a, I> {
    /// Creates the messages of events that begin with the newest.
    fn new(events: I) -> Self {
        Self { events, messages: VecDeque::new() }
    }

    /// Removes the newest message that a prompt's content is, and all that are newer. Returns false if there is none.
    fn take(&mut self, content: &Content) -> bool {
        if !may_be_message(content) {
            return false;
        }
        if let Some(index) = self.messages.iter().position(|message| is_message(message, content)) {
            self.messages.drain(..=index);
            return true;
        }
        for event in self.events.by_ref().filter(|event| event.author == USER_AUTHOR) {
            let message = event.content.as_deref().map(message_parts).unwrap_or_default();
            if is_message(&message, content) {
                self.messages.clear();
                return true;
            }
            if !message.is_empty() {
                self.messages.push_back(message);
            }
        }
        false
    }
}

/// Returns the parts that are not answers to calls.
fn message_parts(content: &Content) -> Vec<&Part> {
    content.parts.iter().filter(|part| !matches!(part.data, PartData::FunctionResponse(_))).collect()
}

/// Returns the index of the first content to keep.
fn first_kept<'a>(
    contents: &Vector<Arc<Content>>,
    mut messages: UserMessages<'a, impl Iterator<Item = &'a Arc<Event>>>,
    turns: NonZeroUsize,
) -> usize {
    let mut turns_left = turns.get();
    // Answers whose calls are further up.
    let mut open_answers: HashSet<&str> = HashSet::new();
    let mut is_message_next = false;
    for (index, content) in contents.iter().enumerate().rev() {
        // An instruction belongs to the messages that it precedes.
        if content.is_instruction() {
            continue;
        }
        let is_message = messages.take(content);
        // Several messages in a row are one turn.
        if is_message_next && !is_message {
            turns_left = turns_left.saturating_sub(1);
            if turns_left == 0 && open_answers.is_empty() {
                return index + 1;
            }
        }
        is_message_next = is_message;
        for call in content.function_calls() {
            open_answers.remove(call.id.as_deref().unwrap_or_default());
        }
        open_answers.extend(content.function_responses().filter_map(|answer| answer.id.as_deref()));
    }
    0
}

/// Returns true if a prompt's content has the role and the kinds of parts of a user's message.
fn may_be_message(content: &Content) -> bool {
    let is_answer = |part: &Part| matches!(part.data, PartData::FunctionResponse(_));
    content.role.as_deref() != Some("model") && !content.parts.is_empty() && !content.parts.iter().any(is_answer)
}

/// Returns true if a prompt's content is this message. A file may be replaced by text about it.
fn is_message(message: &[&Part], content: &Content) -> bool {
    let is_same = |(part, sent): (&&Part, &Part)| {
        *part == sent || matches!((&part.data, &sent.data), (PartData::InlineData(_), PartData::Text(_)))
    };
    message.len() == content.parts.len() && message.iter().zip(&content.parts).all(is_same)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use hatchery_core::{EventData, FunctionCall, FunctionResponse, PartData};

    use super::*;

    fn first(words: &[&str], turns: usize) -> usize {
        first_and_reads(words, turns).0
    }

    /// Returns the index of the first content to keep, and the number of events that were read.
    fn first_and_reads(words: &[&str], turns: usize) -> (usize, usize) {
        let contents: Vector<_> = words.iter().map(|word| Arc::new(content(word))).collect();
        let events: Vec<_> = words.iter().zip(&contents).map(|(word, content)| event(word, content.clone())).collect();
        let reads = Cell::new(0);
        let newest_first = events.iter().rev().inspect(|_| reads.set(reads.get() + 1));
        let first = first_kept(&contents, UserMessages::new(newest_first), NonZeroUsize::new(turns).unwrap());
        (first, reads.get())
    }

    fn event(word: &str, content: Arc<Content>) -> Arc<Event> {
        let author = if word.starts_with(['u', 'r']) { USER_AUTHOR } else { "agent" };
        Event::new(EventData { author: author.into(), content: Some(content), ..EventData::default() })
    }

    /// `u` is a message of the user, `m` of the model, `c1` a call, `r1` its answer, `i` an instruction, `t` another
    /// text in the user's role.
    fn content(word: &str) -> Content {
        let id = Some(word[1..].to_owned());
        match &word[..1] {
            "u" => Content::user("hi"),
            "m" => Content::model("hi"),
            "i" => Content::instruction("Be brief."),
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
        assert_eq!(first(&words, 1), 6);
        assert_eq!(first(&words, 2), 2);
        assert_eq!(first(&words, 3), 0);
        assert_eq!(first(&words, 9), 0);
    }

    #[test]
    fn only_the_events_of_the_newest_turns_are_read() {
        let words: Vec<_> = ["u", "c1", "r1", "m"].into_iter().cycle().take(400).collect();
        assert_eq!(first_and_reads(&words, 1), (396, 4));
        assert_eq!(first_and_reads(&words, 3), (388, 12));
    }

    #[test]
    fn several_messages_in_a_row_are_one_turn() {
        assert_eq!(first(&["u", "m", "u", "u", "m"], 1), 2);
    }

    #[test]
    fn an_answer_keeps_its_call() {
        assert_eq!(first(&["u", "c1", "u", "r1", "m"], 1), 0);
    }

    #[test]
    fn other_texts_in_the_users_role_start_no_turn() {
        assert_eq!(first(&["u", "m", "u", "m", "t", "m", "t"], 1), 2);
        assert_eq!(first(&["u", "t", "u", "m"], 1), 2);
    }

    #[test]
    fn an_instruction_is_part_of_the_turn_that_it_precedes() {
        assert_eq!(first(&["u", "m", "i", "u"], 1), 2);
        assert_eq!(first(&["u", "m", "i", "u", "c1", "r1"], 1), 2);
        assert_eq!(first(&["u", "m", "i", "u"], 2), 0);
    }

    #[test]
    fn a_message_is_recognized_by_the_text_about_its_file() {
        let file = |data| Content::new("user", vec![Part::text("Look:"), data]);
        let csv = Part::from(PartData::InlineData(hatchery_core::Blob::default()));
        assert!(is_message(&message_parts(&file(csv.clone())), &file(Part::text("Available file: data.csv"))));
        assert!(!is_message(&message_parts(&file(Part::text("a"))), &file(Part::text("b"))));
        assert!(!is_message(&message_parts(&file(csv)), &Content::user("Look:")));
    }

    #[test]
    fn no_contents_stay_empty() {
        assert_eq!(first(&[], 1), 0);
    }
}
