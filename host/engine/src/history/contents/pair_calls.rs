//! Pairs function calls with their responses. Models reject a call without a response in the middle of a conversation,
//! and a response without a call. So an unanswered call gets a placeholder response, and a response to an unknown call
//! is omitted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use hatchery_core::{Content, FunctionResponse, JsonMap, Part, PartData, ResponseGrouping};
use imbl::Vector;
use serde_json::json;

use super::visible::VisibleContent;

/// Contents in which each call, or each batch of calls, is followed by its responses.
#[derive(Clone)]
pub(super) struct PairedContents {
    pub(super) contents: Vector<Arc<Content>>,
    /// The index of the first content of the current turn.
    pub(super) turn_start: usize,
    pub(super) grouping: ResponseGrouping,
    /// The newest call with its batch. `None` once a content other than a response has followed.
    open: Option<OpenCalls>,
}

/// Calls that can still receive responses at the end of the contents.
#[derive(Clone, Default)]
struct OpenCalls {
    calls: Vec<Arc<Content>>,
    /// True if the last content has their responses.
    has_responses: bool,
}

/// Function responses by [`call_key`].
type Responses<'a> = HashMap<&'a str, &'a Part>;

impl PairedContents {
    pub(super) fn new(grouping: ResponseGrouping) -> Self {
        Self { contents: Vector::new(), turn_start: 0, grouping, open: None }
    }

    /// Adds the next content.
    ///
    /// # Errors
    /// Returns the content if it is a response to a call that is no longer open. Then all contents must be paired
    /// again.
    pub(super) fn push(&mut self, visible: VisibleContent) -> Result<(), VisibleContent> {
        if response_keys(&visible.content).next().is_none() {
            self.append(visible, &Responses::new());
            return Ok(());
        }
        let answers_open_calls = |open: &OpenCalls| {
            let keys: HashSet<_> = open.calls.iter().flat_map(|call| call_keys(call)).collect();
            response_keys(&visible.content).all(|key| keys.contains(key))
        };
        if without_responses(&visible).is_some() || !self.open.as_ref().is_some_and(answers_open_calls) {
            return Err(visible);
        }
        self.add_responses(&responses_in(&visible.content).collect());
        Ok(())
    }

    /// Adds a content that is not a response, followed by its `responses`.
    fn append(&mut self, visible: VisibleContent, responses: &Responses<'_>) {
        let is_call = call_keys(&visible.content).next().is_some();
        if !is_call || visible.starts_turn || self.grouping == ResponseGrouping::PerCall {
            self.close_calls();
        }
        if visible.starts_turn {
            self.turn_start = self.contents.len();
        }
        if !is_call {
            self.contents.push_back(visible.content);
            return;
        }
        let mut open = self.open.take().unwrap_or_default();
        let earlier = if std::mem::take(&mut open.has_responses) { self.contents.pop_back() } else { None };
        self.contents.push_back(visible.content.clone());
        open.calls.push(visible.content);
        self.open = Some(open);
        let all: Responses<'_> =
            earlier.iter().flat_map(|content| responses_in(content)).chain(responses.clone()).collect();
        if !all.is_empty() {
            self.add_responses(&all);
        }
    }

    /// Merges responses to the open calls into the last content.
    fn add_responses(&mut self, new: &Responses<'_>) {
        let Some(open) = &mut self.open else { return };
        let earlier = if std::mem::replace(&mut open.has_responses, true) { self.contents.pop_back() } else { None };
        let mut responses: Responses<'_> = earlier.iter().flat_map(|content| responses_in(content)).collect();
        responses.extend(new);
        self.contents.push_back(Arc::new(response_content(&open.calls, &responses)));
    }

    /// Ends the open calls. Adds placeholder responses if they have none.
    fn close_calls(&mut self) {
        if let Some(open) = self.open.take().filter(|open| !open.has_responses) {
            self.contents.push_back(Arc::new(response_content(&open.calls, &Responses::new())));
        }
    }
}

/// Pairs all contents. Each call, or each batch of calls, is followed by one content with the newest responses.
pub(super) fn pair_all(contents: &[VisibleContent], grouping: ResponseGrouping) -> PairedContents {
    // A response belongs to the newest earlier call with its key.
    let mut calls: HashMap<&str, usize> = HashMap::new();
    let mut responses: HashMap<usize, Responses<'_>> = HashMap::new();
    for (index, visible) in contents.iter().enumerate() {
        calls.extend(call_keys(&visible.content).map(|key| (key, index)));
        for (key, response) in responses_in(&visible.content) {
            if let Some(call) = calls.get(key) {
                responses.entry(*call).or_default().insert(key, response);
            }
        }
    }
    let mut paired = PairedContents::new(grouping);
    for (index, visible) in contents.iter().enumerate() {
        if let Some(visible) = without_responses(visible) {
            paired.append(visible, &responses.remove(&index).unwrap_or_default());
        }
    }
    paired
}

/// Returns true if the last content is a response to a call that is no longer open.
pub(super) fn ends_in_late_response(contents: &[VisibleContent], grouping: ResponseGrouping) -> bool {
    let Some((newest, earlier)) = contents.split_last() else { return false };
    response_keys(&newest.content).next().is_some() && pair_all(earlier, grouping).push(newest.clone()).is_err()
}

/// Returns the contents up to the call that the last content answers, and all responses to that call. Returns `None` if
/// there is no such call.
pub(super) fn pair_up_to_answered_call(
    contents: &[VisibleContent],
    grouping: ResponseGrouping,
) -> Option<PairedContents> {
    let newest_keys: HashSet<_> = response_keys(&contents.last()?.content).collect();
    let call = contents.iter().rposition(|visible| call_keys(&visible.content).any(|key| newest_keys.contains(key)))?;
    let (before, after) = contents.split_at_checked(call + 1)?;
    let keys: HashSet<_> = before.last().map(|visible| call_keys(&visible.content).collect()).unwrap_or_default();
    let responses = after.iter().filter(|visible| response_keys(&visible.content).any(|key| keys.contains(key)));
    let visible: Vec<_> = before.iter().chain(responses).cloned().collect();
    Some(pair_all(&visible, grouping))
}

/// Returns one content with a response to each function call, in the order of the calls.
fn response_content(calls: &[Arc<Content>], responses: &Responses<'_>) -> Content {
    let calls = calls.iter().flat_map(|content| content.function_calls());
    let parts = calls.map(|call| match responses.get(call_key(call.id.as_deref(), &call.name)) {
        Some(response) => (*response).clone(),
        None => placeholder_response(call.id.as_ref(), &call.name),
    });
    Content::new("user", parts.collect())
}

fn placeholder_response(id: Option<&String>, name: &str) -> Part {
    let response = JsonMap::from_iter([("status".into(), json!("no answer yet"))]);
    PartData::FunctionResponse(FunctionResponse { id: id.cloned(), name: name.into(), response, ..Default::default() })
        .into()
}

/// Returns the content without its function responses, or `None` if it has no other parts.
fn without_responses(visible: &VisibleContent) -> Option<VisibleContent> {
    if response_keys(&visible.content).next().is_none() {
        return Some(visible.clone());
    }
    let is_response = |part: &&Part| matches!(part.data, PartData::FunctionResponse(_));
    let parts: Vec<_> = visible.content.parts.iter().filter(|part| !is_response(part)).cloned().collect();
    let content = Arc::new(Content { role: visible.content.role.clone(), parts });
    (!content.parts.is_empty()).then_some(VisibleContent { content, ..*visible })
}

/// Returns the key that a call and its responses have in common: the id, or the name if there is no id.
fn call_key<'a>(id: Option<&'a str>, name: &'a str) -> &'a str {
    id.filter(|id| !id.is_empty()).unwrap_or(name)
}

fn call_keys(content: &Content) -> impl Iterator<Item = &str> {
    content.function_calls().map(|call| call_key(call.id.as_deref(), &call.name))
}

fn response_keys(content: &Content) -> impl Iterator<Item = &str> {
    responses_in(content).map(|(key, _)| key)
}

fn responses_in(content: &Content) -> impl Iterator<Item = (&str, &Part)> {
    content.parts.iter().filter_map(|part| match &part.data {
        PartData::FunctionResponse(response) => Some((call_key(response.id.as_deref(), &response.name), part)),
        _ => None,
    })
}
