//! Turns of a session as records, to compare them or to make a case of them.

use std::sync::Arc;

use hatchery_core::{Content, Event, Part, PartData, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL, USER_AUTHOR};

use crate::eval_set::{IntermediateData, InvocationRecord};

/// Returns the turns of a session: one record per run that began with a message of the user. Events that only change
/// state are no turns.
pub(crate) fn extract_records<'a>(events: impl IntoIterator<Item = &'a Arc<Event>>) -> Vec<InvocationRecord> {
    let mut records: Vec<InvocationRecord> = Vec::new();
    // The agent that gave the final response so far.
    let mut responder = String::new();
    for event in events.into_iter().filter(|event| !event.partial) {
        let content = event.content.as_deref().filter(|content| !content.parts.is_empty());
        if event.author == USER_AUTHOR {
            if let Some(content) = content {
                records.push(begin(event, content.clone()));
            }
        } else if let (Some(record), Some(content)) = (records.last_mut(), content) {
            extend(record, event, content, &mut responder);
        }
    }
    records
}

/// Returns the turn of a message, from the events of its run.
pub(crate) fn extract_record(user_content: Content, events: &[Arc<Event>]) -> InvocationRecord {
    let mut record = match events.first() {
        Some(event) => begin(event, user_content),
        None => InvocationRecord { user_content, ..InvocationRecord::default() },
    };
    let mut responder = String::new();
    for event in events.iter().filter(|event| !event.partial && event.author != USER_AUTHOR) {
        if let Some(content) = event.content.as_deref() {
            extend(&mut record, event, content, &mut responder);
        }
    }
    record
}

fn begin(event: &Event, user_content: Content) -> InvocationRecord {
    InvocationRecord {
        invocation_id: event.invocation_id.clone(),
        user_content,
        intermediate_data: Some(IntermediateData::default()),
        creation_timestamp: event.timestamp,
        ..InvocationRecord::default()
    }
}

/// Adds the texts and calls of an agent's event. The last final response is the response of the turn.
fn extend(record: &mut InvocationRecord, event: &Event, content: &Content, responder: &mut String) {
    let data = record.intermediate_data.get_or_insert_default();
    // Requests to a person come from the host, with ids that differ in each run.
    let is_request = |name: &str| [REQUEST_CONFIRMATION, REQUEST_CREDENTIAL].contains(&name);
    data.tool_uses.extend(content.function_calls().filter(|call| !is_request(&call.name)).cloned());
    data.tool_responses.extend(content.function_responses().cloned());
    let has_text = content.parts.iter().any(|part| !part.thought && matches!(part.data, PartData::Text(_)));
    if !has_text {
        return;
    }
    if !event.is_final_response() {
        data.intermediate_responses.push((event.author.clone(), texts(content)));
        return;
    }
    let earlier_responder = std::mem::replace(responder, event.author.clone());
    if let Some(earlier) = record.final_response.replace(content.clone()) {
        data.intermediate_responses.push((earlier_responder, texts(&earlier)));
    }
}

fn texts(content: &Content) -> Vec<Part> {
    content.parts.iter().filter(|part| matches!(part.data, PartData::Text(_)) && !part.thought).cloned().collect()
}

#[cfg(test)]
mod tests {
    use hatchery_core::{EventActions, EventData, FunctionCall, FunctionResponse};

    use super::*;

    fn event(author: &str, parts: Vec<Part>) -> Arc<Event> {
        let content = Some(Arc::new(Content::new(if author == USER_AUTHOR { "user" } else { "model" }, parts)));
        Event::new(EventData { author: author.into(), invocation_id: "i".into(), content, ..EventData::default() })
    }

    fn call(name: &str) -> Part {
        PartData::FunctionCall(FunctionCall { name: name.into(), ..FunctionCall::default() }).into()
    }

    fn response(name: &str) -> Part {
        PartData::FunctionResponse(FunctionResponse { name: name.into(), ..FunctionResponse::default() }).into()
    }

    #[test]
    fn a_turn_has_its_calls_its_texts_and_its_last_response() {
        let events = [
            event("user", vec![Part::text("Roll")]),
            event("dice", vec![Part::text("Let me roll."), call("roll"), call(REQUEST_CONFIRMATION)]),
            event("dice", vec![call(REQUEST_CREDENTIAL)]),
            event("dice", vec![response("roll")]),
            event("dice", vec![Part::text("Rolled.")]),
            event("dice", vec![Part { thought: true, ..Part::text("hm") }, Part::text("You rolled 3.")]),
            event("user", vec![Part::text("Bye")]),
        ];
        let records = extract_records(&events);
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].response_text().as_deref(), Some("You rolled 3."));
        let data = records[0].intermediate_data.as_ref().unwrap();
        assert_eq!(data.tool_uses.iter().map(|call| &*call.name).collect::<Vec<_>>(), ["roll"]);
        assert_eq!(data.tool_responses.len(), 1);
        let texts =
            [("dice".to_owned(), vec![Part::text("Let me roll.")]), ("dice".into(), vec![Part::text("Rolled.")])];
        assert_eq!(data.intermediate_responses, texts);
        assert_eq!((&records[1].final_response, records[1].tool_calls().len()), (&None, 0));
    }

    #[test]
    fn a_change_of_state_is_no_turn() {
        let mut actions = EventActions::default();
        actions.state_delta.insert("__session_metadata__".into(), "x".into());
        let change = Event::new(EventData { author: USER_AUTHOR.into(), actions, ..EventData::default() });
        assert_eq!(extract_records(&[change]), []);
    }
}
