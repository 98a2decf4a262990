//! Puts each function call and its answers side by side.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery_core::{Content, Part, PartData};
use imbl::Vector;

use super::visible::Visible;

/// Contents in the order in which a model wants them.
#[derive(Clone, Default)]
pub(super) struct Arranged {
    pub(super) contents: Vector<Arc<Content>>,
    /// Where the current turn begins.
    pub(super) turn_start: usize,
    /// The newest call, while nothing but answers to it has come since.
    open: Option<OpenCall>,
}

/// A call whose answers may still be added at the end.
#[derive(Clone)]
struct OpenCall {
    /// Its ids, in order.
    ids: Vec<String>,
    /// True when an answer to it is the last content.
    answered: bool,
}

impl Arranged {
    /// Adds what comes next.
    ///
    /// # Errors
    /// Gives it back when it answers a call that is not the newest: then the whole has to be arranged anew.
    pub(super) fn push(&mut self, visible: Visible) -> Result<(), Visible> {
        let answers: Vec<_> = answered_ids(&visible.content).collect();
        if !answers.is_empty() && beside_answers(&visible).is_some() {
            return Err(visible);
        }
        if answers.is_empty() {
            let ids: Vec<_> = call_ids(&visible.content).map(Into::into).collect();
            self.append(visible);
            self.open = (!ids.is_empty()).then_some(OpenCall { ids, answered: false });
            return Ok(());
        }
        let open = self.open.as_mut().filter(|open| answers.iter().all(|id| open.ids.iter().any(|known| known == id)));
        let Some(open) = open else { return Err(visible) };
        if open.answered {
            let earlier = self.contents.pop_back();
            let answer = merged(&open.ids, earlier.iter().chain([&visible.content]));
            self.contents.push_back(Arc::new(answer));
        } else {
            open.answered = true;
            self.contents.push_back(visible.content);
        }
        Ok(())
    }

    fn append(&mut self, visible: Visible) {
        if visible.from_others {
            self.turn_start = self.contents.len();
        }
        self.contents.push_back(visible.content);
    }
}

/// Arranges all events: after each call one content with its newest answers. Answers to no call are left out, since no model accepts
/// them.
pub(super) fn all(events: &[Visible]) -> Arranged {
    let mut answers: HashMap<&str, Vec<&Arc<Content>>> = HashMap::new();
    for event in events {
        for id in answered_ids(&event.content) {
            answers.entry(id).or_default().push(&event.content);
        }
    }
    let mut arranged = Arranged::default();
    for event in events.iter().filter_map(beside_answers) {
        let ids: Vec<String> = call_ids(&event.content).map(Into::into).collect();
        arranged.append(event);
        let answer = merged(&ids, ids.iter().filter_map(|id| answers.get(id.as_str())).flatten().copied());
        let answered = !answer.parts.is_empty();
        if answered {
            arranged.contents.push_back(Arc::new(answer));
        }
        arranged.open = (!ids.is_empty()).then_some(OpenCall { ids, answered });
    }
    arranged
}

/// What is shown while the newest event is a late answer: all up to the call that it answers, and the answers to that call. Nothing when
/// there is no such call.
pub(super) fn up_to_call(events: &[Visible], answer: &Visible) -> Option<Arranged> {
    let ids: HashSet<_> = answered_ids(&answer.content).collect();
    let call = events.iter().rposition(|event| call_ids(&event.content).any(|id| ids.contains(id)))?;
    let (before, after) = events.split_at_checked(call + 1)?;
    let call_ids: HashSet<_> = before.last().map(|event| call_ids(&event.content).collect()).unwrap_or_default();
    let kept = after.iter().filter(|event| {
        answered_ids(&event.content).next().is_some() && answered_ids(&event.content).all(|id| call_ids.contains(id))
    });
    let kept: Vec<_> = before.iter().chain(kept).cloned().collect();
    Some(all(&kept))
}

/// One content with the newest answer to each call, in the order of the calls.
fn merged<'a>(ids: &[String], answers: impl Iterator<Item = &'a Arc<Content>>) -> Content {
    let mut newest: HashMap<&str, &Part> = HashMap::new();
    for part in answers.flat_map(|content| &content.parts) {
        if let PartData::FunctionResponse(response) = &part.data
            && let Some(id) = &response.id
        {
            newest.insert(id, part);
        }
    }
    let parts = ids.iter().filter_map(|id| newest.get(id.as_str())).map(|part| (*part).clone()).collect();
    Content::new("user", parts)
}

/// What a content holds beside answers; nothing when it holds only answers.
fn beside_answers(visible: &Visible) -> Option<Visible> {
    if answered_ids(&visible.content).next().is_none() {
        return Some(visible.clone());
    }
    let is_answer = |part: &&Part| matches!(part.data, PartData::FunctionResponse(_));
    let parts: Vec<_> = visible.content.parts.iter().filter(|part| !is_answer(part)).cloned().collect();
    let content = Arc::new(Content { role: visible.content.role.clone(), parts });
    (!content.parts.is_empty()).then_some(Visible { content, ..*visible })
}

fn call_ids(content: &Content) -> impl Iterator<Item = &str> {
    content.function_calls().filter_map(|call| call.id.as_deref())
}

fn answered_ids(content: &Content) -> impl Iterator<Item = &str> {
    content.function_responses().filter_map(|response| response.id.as_deref())
}
