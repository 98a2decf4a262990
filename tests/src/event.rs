//! Access to events in JSON, and checks of their format.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};

/// Checks what ADK clients rely on: ids, an author, a timestamp in float seconds, camelCase keys, and absent keys
/// instead of `null`.
///
/// # Errors
/// If the event violates one of these rules.
pub fn check(event: &Value) -> anyhow::Result<()> {
    check_shape(event).with_context(|| format!("event {event}"))
}

fn check_shape(event: &Value) -> anyhow::Result<()> {
    let event = object(event)?;
    check_keys(event)?;
    for key in ["id", "invocationId", "author"] {
        let text = event.get(key).and_then(Value::as_str).unwrap_or_default();
        ensure!(!text.is_empty(), "`{key}` is missing");
    }
    let timestamp = event.get("timestamp").context("`timestamp` is missing")?;
    ensure!(timestamp.is_f64(), "`timestamp` is not a float");
    let seconds = timestamp.as_f64().unwrap_or_default();
    ensure!((1.7e9..4e9).contains(&seconds), "`timestamp` is not in seconds");
    let actions = object(event.get("actions").context("`actions` is missing")?)?;
    check_keys(actions)?;
    for key in ["stateDelta", "artifactDelta"] {
        ensure!(actions.get(key).is_some_and(Value::is_object), "`actions.{key}` is not an object");
    }
    ensure!(
        event.get("partial").is_none_or(|partial| *partial == Value::Bool(true)),
        "`partial` is present but not true"
    );
    if let Some(content) = event.get("content") {
        check_keys(object(content)?)?;
        let parts = content.get("parts").and_then(Value::as_array).context("`content.parts` is not an array")?;
        for part in parts {
            let part = object(part)?;
            check_keys(part)?;
            for value in part.values().filter_map(Value::as_object) {
                check_keys(value)?;
            }
        }
    }
    Ok(())
}

fn object(value: &Value) -> anyhow::Result<&Map<String, Value>> {
    value.as_object().with_context(|| format!("{value} is not an object"))
}

/// Checks that keys are camelCase and values are not `null`.
fn check_keys(object: &Map<String, Value>) -> anyhow::Result<()> {
    for (key, value) in object {
        ensure!(!value.is_null(), "`{key}` is null");
        let camel_case = key.starts_with(|c: char| c.is_ascii_lowercase()) && !key.contains(['_', '-']);
        ensure!(camel_case, "`{key}` is not camelCase");
    }
    Ok(())
}

/// Returns the string at a JSON pointer (RFC 6901), or `""` if there is none.
pub fn text_at<'a>(event: &'a Value, pointer: &str) -> &'a str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true for a partial event.
pub fn is_partial(event: &Value) -> bool {
    event.get("partial").is_some()
}

/// Returns the parts of an event.
pub fn parts(event: &Value) -> impl Iterator<Item = &Value> {
    event.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten()
}

/// Returns the text of an event, without thoughts.
pub fn text(event: &Value) -> String {
    parts(event).filter(|part| part.get("thought").is_none()).map(|part| text_at(part, "/text")).collect()
}

/// Returns the texts of events that are not partial and have a text.
pub fn texts(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| !is_partial(event)).map(text).filter(|text| !text.is_empty()).collect()
}

/// Returns the response of a tool.
///
/// # Errors
/// If there is none.
pub fn tool_response<'a>(events: &'a [Value], tool: &str) -> anyhow::Result<&'a Value> {
    let mut responses = events.iter().flat_map(parts).filter_map(|part| part.get("functionResponse"));
    let response = responses.find(|response| text_at(response, "/name") == tool);
    response
        .and_then(|response| response.get("response"))
        .with_context(|| format!("no response of `{tool}` in {events:?}"))
}

/// Checks that partial events are followed by a complete event with the same id and their concatenated text. If the
/// host runs code of the response, the text of the complete event ends before the code. Returns the number of partial
/// events.
///
/// # Errors
/// If an event is missing, duplicated or out of order.
pub fn check_partial_events(events: &[Value]) -> anyhow::Result<usize> {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut count = 0;
    for event in events {
        let id = text_at(event, "/id");
        let position = open.iter().position(|(open, _)| open == id);
        match (is_partial(event), position) {
            (true, position) => {
                count += 1;
                let index = position.unwrap_or_else(|| {
                    open.push((id.to_owned(), String::new()));
                    open.len() - 1
                });
                if let Some((_, streamed)) = open.get_mut(index) {
                    streamed.push_str(&text(event));
                }
            }
            (false, Some(index)) => {
                let (_, streamed) = open.swap_remove(index);
                let complete = text(event);
                let ends_in_code = parts(event).any(|part| part.get("executableCode").is_some());
                let is_equal = if ends_in_code { streamed.starts_with(&complete) } else { streamed == complete };
                ensure!(is_equal, "the partial events of {id} have {streamed:?}, the complete one has {complete:?}");
            }
            (false, None) => {}
        }
    }
    match open.first() {
        Some((id, streamed)) => bail!("no complete event follows the partial events of {id}: {streamed:?}"),
        None => Ok(count),
    }
}
