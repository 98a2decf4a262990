//! Puts each function call and its answers side by side. Models refuse a call without an answer as soon as something follows it, and an
//! answer without its call; so a call that was never answered gets an answer that says so, and an answer to no call is left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery_core::{Content, FunctionResponse, JsonMap, Part, PartData};
use imbl::Vector;
use serde_json::json;

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
    call: Arc<Content>,
    /// True when an answer to it is the last content.
    answered: bool,
}

impl Arranged {
    /// Adds what comes next.
    ///
    /// # Errors
    /// Gives it back when it answers a call that is not the newest: then the whole has to be arranged anew.
    pub(super) fn push(&mut self, visible: Visible) -> Result<(), Visible> {
        if answered_ids(&visible.content).next().is_none() {
            self.append(visible, None);
            return Ok(());
        }
        let answers_it = |open: &&mut OpenCall| {
            let ids: Vec<_> = call_ids(&open.call).collect();
            answered_ids(&visible.content).all(|id| ids.contains(&id))
        };
        let is_only_answers = beside_answers(&visible).is_none();
        let Some(open) = self.open.as_mut().filter(answers_it).filter(|_| is_only_answers) else { return Err(visible) };
        let earlier = if open.answered { self.contents.pop_back() } else { None };
        open.answered = true;
        let answer = answer_to(&open.call, earlier.iter().chain([&visible.content]));
        self.contents.push_back(Arc::new(answer));
        Ok(())
    }

    /// Adds something that is no answer, and the answer that belongs to it.
    fn append(&mut self, visible: Visible, answer: Option<Content>) {
        if let Some(open) = self.open.take().filter(|open| !open.answered) {
            self.contents.push_back(Arc::new(answer_to(&open.call, [].into_iter())));
        }
        if visible.from_others {
            self.turn_start = self.contents.len();
        }
        let calls = call_ids(&visible.content).next().is_some();
        self.open = calls.then(|| OpenCall { call: visible.content.clone(), answered: answer.is_some() });
        self.contents.push_back(visible.content);
        self.contents.extend(answer.map(Arc::new));
    }
}

/// Arranges all events: after each call one content with its newest answers.
pub(super) fn all(events: &[Visible]) -> Arranged {
    let mut answers: HashMap<&str, Vec<&Arc<Content>>> = HashMap::new();
    for event in events {
        for id in answered_ids(&event.content) {
            answers.entry(id).or_default().push(&event.content);
        }
    }
    let mut arranged = Arranged::default();
    for event in events.iter().filter_map(beside_answers) {
        let call = event.content.clone();
        let given: Vec<_> = call_ids(&call).filter_map(|id| answers.get(id)).flatten().copied().collect();
        let answer = (!given.is_empty()).then(|| answer_to(&call, given.into_iter()));
        arranged.append(event, answer);
    }
    arranged
}

/// True when the last of these answers a call that is not the newest.
pub(super) fn ends_in_late_answer(events: &[Visible]) -> bool {
    let Some((newest, earlier)) = events.split_last() else { return false };
    answered_ids(&newest.content).next().is_some() && all(earlier).push(newest.clone()).is_err()
}

/// What is shown while the newest event is a late answer: all up to the call that it answers, and the answers to that call. Nothing when
/// there is no such call.
pub(super) fn up_to_call(events: &[Visible]) -> Option<Arranged> {
    let ids: HashSet<_> = answered_ids(&events.last()?.content).collect();
    let call = events.iter().rposition(|event| call_ids(&event.content).any(|id| ids.contains(id)))?;
    let (before, after) = events.split_at_checked(call + 1)?;
    let call_ids: HashSet<_> = before.last().map(|event| call_ids(&event.content).collect()).unwrap_or_default();
    let kept = after.iter().filter(|event| {
        answered_ids(&event.content).next().is_some() && answered_ids(&event.content).all(|id| call_ids.contains(id))
    });
    let kept: Vec<_> = before.iter().chain(kept).cloned().collect();
    Some(all(&kept))
}

/// One content with the newest answer to each function call of `call`, in their order.
fn answer_to<'a>(call: &Content, answers: impl Iterator<Item = &'a Arc<Content>>) -> Content {
    let mut newest: HashMap<&str, &Part> = HashMap::new();
    for part in answers.flat_map(|content| &content.parts) {
        if let PartData::FunctionResponse(response) = &part.data
            && let Some(id) = &response.id
        {
            newest.insert(id, part);
        }
    }
    let calls = call.function_calls().filter_map(|call| Some((call.id.as_deref()?, call.name.as_str())));
    let parts = calls.map(|(id, name)| newest.get(id).map_or_else(|| no_answer(id, name), |part| (*part).clone()));
    Content::new("user", parts.collect())
}

/// What stands for an answer that has not come, or never will.
fn no_answer(id: &str, name: &str) -> Part {
    let response = JsonMap::from_iter([("status".into(), json!("no answer yet"))]);
    PartData::FunctionResponse(FunctionResponse {
        id: Some(id.into()),
        name: name.into(),
        response,
        ..Default::default()
    })
    .into()
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
