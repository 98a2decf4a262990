//! Tests of the view: events in, contents out. The cases follow the tests of ADK's contents processor.

mod cases;
mod compactions;
mod properties;
mod rewinds;

use std::sync::Arc;

use hatchery_core::{
    Compaction, Content, Event, EventActions, EventData, FunctionCall, FunctionResponse, JsonMap, Part, PartData,
    ResponseGrouping, Timestamp,
};
use serde_json::json;

use super::PromptView;

const ME: &str = "agent";

fn event(author: &str, content: Content) -> Arc<Event> {
    Event::new(EventData { author: author.into(), content: Some(Arc::new(content)), ..EventData::default() })
}

fn user(text: &str) -> Arc<Event> {
    event("user", Content::user(text))
}

fn model(text: &str) -> Arc<Event> {
    event(ME, Content::model(text))
}

fn call(ids: &[&str]) -> Arc<Event> {
    event(ME, Content::new("model", ids.iter().map(|id| call_part(id)).collect()))
}

fn call_part(id: &str) -> Part {
    PartData::FunctionCall(FunctionCall { id: Some(id.into()), name: format!("tool{id}"), ..FunctionCall::default() })
        .into()
}

fn answer(id: &str, text: &str) -> Arc<Event> {
    event(ME, Content::new("user", vec![answer_part(id, text)]))
}

fn answer_part(id: &str, text: &str) -> Part {
    let response = JsonMap::from_iter([("result".to_owned(), json!(text))]);
    PartData::FunctionResponse(FunctionResponse {
        id: Some(id.into()),
        name: format!("tool{id}"),
        response,
        ..Default::default()
    })
    .into()
}

/// Formats a content: `u:hi`, `m:hi`, `call(1,2)`, `answer(1=done)`.
fn brief(content: &Content) -> String {
    let calls: Vec<_> = content.function_calls().map(|call| call.id.clone().unwrap_or_default()).collect();
    let answers: Vec<_> = content
        .function_responses()
        .map(|response| {
            format!(
                "{}={}",
                response.id.as_deref().unwrap_or("?"),
                response.response.values().next().and_then(|value| value.as_str()).unwrap_or("")
            )
        })
        .collect();
    if !calls.is_empty() {
        return format!("call({})", calls.join(","));
    }
    if !answers.is_empty() {
        return format!("answer({})", answers.join(","));
    }
    let role = if content.role.as_deref() == Some("user") { "u" } else { "m" };
    let texts: Vec<_> = content.parts.iter().filter_map(Part::as_text).collect();
    format!("{role}:{}", texts.join("|"))
}

/// Returns the contents after all events have been read.
fn contents_with(grouping: ResponseGrouping, events: &[Arc<Event>]) -> Vec<String> {
    let mut view = PromptView::new(ME.into(), None, grouping);
    view.read(&events.iter().cloned().collect());
    briefs(&view)
}

fn contents(events: &[Arc<Event>]) -> Vec<String> {
    contents_with(ResponseGrouping::PerCall, events)
}

fn current_turn(events: &[Arc<Event>]) -> Vec<String> {
    let mut view = PromptView::new(ME.into(), None, ResponseGrouping::PerCall);
    view.read(&events.iter().cloned().collect());
    view.current_turn().iter().map(|content| brief(content)).collect()
}

fn briefs(view: &PromptView) -> Vec<String> {
    view.contents().iter().map(|content| brief(content)).collect()
}

/// An event with a timestamp.
fn event_at(time: i64, author: &str, content: Content) -> Arc<Event> {
    let timestamp = Timestamp::from_micros(time);
    Event::new(EventData { author: author.into(), content: Some(Arc::new(content)), timestamp, ..EventData::default() })
}

/// An event with the summary `C<start>-<end>` of that time range.
fn compaction(start: i64, end: i64) -> Arc<Event> {
    let compaction = Compaction {
        start_timestamp: Timestamp::from_micros(start),
        end_timestamp: Timestamp::from_micros(end),
        compacted_content: Content::model(format!("C{start}-{end}")),
        ..Compaction::default()
    };
    let actions = EventActions { compaction: Some(Box::new(compaction)), ..EventActions::default() };
    Event::new(EventData { author: "user".into(), actions, ..EventData::default() })
}
