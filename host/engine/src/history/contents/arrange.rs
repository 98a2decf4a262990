//! Puts each function call and its answers side by side. Models refuse a call without an answer as soon as something follows it, and an
//! answer without its call; so a call that was never answered gets an answer that says so, and an answer to no call is left out.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery_core::{Content, FunctionResponse, JsonMap, Part, PartData};
use imbl::Vector;
use serde_json::json;

use super::Grouping;
use super::visible::Visible;

/// Contents in the order in which a model wants them.
#[derive(Clone)]
pub(super) struct Arranged {
    pub(super) contents: Vector<Arc<Content>>,
    /// Where the current turn begins.
    pub(super) turn_start: usize,
    pub(super) grouping: Grouping,
    /// The newest call, with those right before it that it is grouped with, while nothing but answers has come since.
    open: Option<OpenCalls>,
}

/// Calls whose answers may still be added at the end.
#[derive(Clone, Default)]
struct OpenCalls {
    calls: Vec<Arc<Content>>,
    /// True when answers to them are the last content.
    answered: bool,
}

/// Answers by the ids of their calls.
type Answers<'a> = HashMap<&'a str, &'a Part>;

impl Arranged {
    pub(super) fn new(grouping: Grouping) -> Self {
        Self { contents: Vector::new(), turn_start: 0, grouping, open: None }
    }

    /// Adds what comes next.
    ///
    /// # Errors
    /// Gives it back when it answers a call that is no longer open: then the whole has to be arranged anew.
    pub(super) fn push(&mut self, visible: Visible) -> Result<(), Visible> {
        if answered_ids(&visible.content).next().is_none() {
            self.append(visible, &Answers::new());
            return Ok(());
        }
        let takes = |open: &OpenCalls| {
            let ids: HashSet<_> = open.calls.iter().flat_map(|call| call_ids(call)).collect();
            answered_ids(&visible.content).all(|id| ids.contains(id))
        };
        if beside_answers(&visible).is_some() || !self.open.as_ref().is_some_and(takes) {
            return Err(visible);
        }
        self.answer(&answers_in(&visible.content).collect());
        Ok(())
    }

    /// Adds something that is no answer, and the answers that belong to it.
    fn append(&mut self, visible: Visible, answers: &Answers<'_>) {
        let is_call = call_ids(&visible.content).next().is_some();
        if !is_call || visible.from_others || self.grouping == Grouping::ByCall {
            self.close();
        }
        if visible.from_others {
            self.turn_start = self.contents.len();
        }
        if !is_call {
            self.contents.push_back(visible.content);
            return;
        }
        let mut open = self.open.take().unwrap_or_default();
        let earlier = if std::mem::take(&mut open.answered) { self.contents.pop_back() } else { None };
        self.contents.push_back(visible.content.clone());
        open.calls.push(visible.content);
        self.open = Some(open);
        let given: Answers<'_> =
            earlier.iter().flat_map(|content| answers_in(content)).chain(answers.clone()).collect();
        if !given.is_empty() {
            self.answer(&given);
        }
    }

    /// Adds answers to the open calls, to those that are there already.
    fn answer(&mut self, new: &Answers<'_>) {
        let Some(open) = &mut self.open else { return };
        let earlier = if std::mem::replace(&mut open.answered, true) { self.contents.pop_back() } else { None };
        let mut answers: Answers<'_> = earlier.iter().flat_map(|content| answers_in(content)).collect();
        answers.extend(new);
        self.contents.push_back(Arc::new(answer_to(&open.calls, &answers)));
    }

    /// Takes no more answers to the open calls.
    fn close(&mut self) {
        if let Some(open) = self.open.take().filter(|open| !open.answered) {
            self.contents.push_back(Arc::new(answer_to(&open.calls, &Answers::new())));
        }
    }
}

/// Arranges all events: after each call, or each row of calls, one content with their newest answers.
pub(super) fn all(events: &[Visible], grouping: Grouping) -> Arranged {
    // An answer belongs to the newest call before it that has its id.
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let mut answers: HashMap<usize, Answers<'_>> = HashMap::new();
    for (place, event) in events.iter().enumerate() {
        calls.extend(call_ids(&event.content).map(|id| (id, place)));
        for (id, answer) in answers_in(&event.content) {
            if let Some(call) = calls.get(id) {
                answers.entry(*call).or_default().insert(id, answer);
            }
        }
    }
    let mut arranged = Arranged::new(grouping);
    for (place, event) in events.iter().enumerate() {
        if let Some(event) = beside_answers(event) {
            arranged.append(event, &answers.remove(&place).unwrap_or_default());
        }
    }
    arranged
}

/// True when the last of these answers a call that is no longer open.
pub(super) fn ends_in_late_answer(events: &[Visible], grouping: Grouping) -> bool {
    let Some((newest, earlier)) = events.split_last() else { return false };
    answered_ids(&newest.content).next().is_some() && all(earlier, grouping).push(newest.clone()).is_err()
}

/// What is shown while the newest event is a late answer: all up to the call that it answers, and the answers to that call. Nothing when
/// there is no such call.
pub(super) fn up_to_call(events: &[Visible], grouping: Grouping) -> Option<Arranged> {
    let ids: HashSet<_> = answered_ids(&events.last()?.content).collect();
    let call = events.iter().rposition(|event| call_ids(&event.content).any(|id| ids.contains(id)))?;
    let (before, after) = events.split_at_checked(call + 1)?;
    let call_ids: HashSet<_> = before.last().map(|event| call_ids(&event.content).collect()).unwrap_or_default();
    let answers = after.iter().filter(|event| answered_ids(&event.content).any(|id| call_ids.contains(id)));
    let kept: Vec<_> = before.iter().chain(answers).cloned().collect();
    Some(all(&kept, grouping))
}

/// One content with an answer to each function call, in their order.
fn answer_to(calls: &[Arc<Content>], answers: &Answers<'_>) -> Content {
    let calls = calls.iter().flat_map(|content| content.function_calls());
    let parts = calls.map(|call| {
        let given = answers.get(key(call.id.as_deref(), &call.name));
        given.map_or_else(|| no_answer(call.id.as_ref(), &call.name), |part| (*part).clone())
    });
    Content::new("user", parts.collect())
}

/// What stands for an answer that has not come, or never will.
fn no_answer(id: Option<&String>, name: &str) -> Part {
    let response = JsonMap::from_iter([("status".into(), json!("no answer yet"))]);
    PartData::FunctionResponse(FunctionResponse { id: id.cloned(), name: name.into(), response, ..Default::default() })
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

/// What a call and its answers have in common: the id; where there is none, the name.
fn key<'a>(id: Option<&'a str>, name: &'a str) -> &'a str {
    id.filter(|id| !id.is_empty()).unwrap_or(name)
}

fn call_ids(content: &Content) -> impl Iterator<Item = &str> {
    content.function_calls().map(|call| key(call.id.as_deref(), &call.name))
}

fn answered_ids(content: &Content) -> impl Iterator<Item = &str> {
    answers_in(content).map(|(id, _)| id)
}

fn answers_in(content: &Content) -> impl Iterator<Item = (&str, &Part)> {
    content.parts.iter().filter_map(|part| match &part.data {
        PartData::FunctionResponse(response) => Some((key(response.id.as_deref(), &response.name), part)),
        _ => None,
    })
}
