//! Events as clients see them, and what must hold for each.

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};

/// Checks what ADK clients rely on: ids, an author, a time in float seconds, camelCase keys, and no `null` for what is not there.
///
/// # Errors
/// When something does not hold.
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
    let time = event.get("timestamp").context("`timestamp` is missing")?;
    ensure!(time.is_f64(), "`timestamp` is not a float");
    let seconds = time.as_f64().unwrap_or_default();
    ensure!((1.7e9..4e9).contains(&seconds), "`timestamp` is not in seconds");
    let actions = object(event.get("actions").context("`actions` is missing")?)?;
    check_keys(actions)?;
    for key in ["stateDelta", "artifactDelta"] {
        ensure!(actions.get(key).is_some_and(Value::is_object), "`actions.{key}` is not an object");
    }
    ensure!(
        event.get("partial").is_none_or(|partial| *partial == Value::Bool(true)),
        "`partial` is there and not true"
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

/// Keys are camelCase, and what is not there is left out.
fn check_keys(object: &Map<String, Value>) -> anyhow::Result<()> {
    for (key, value) in object {
        ensure!(!value.is_null(), "`{key}` is null");
        let camel_case = key.starts_with(|c: char| c.is_ascii_lowercase()) && !key.contains(['_', '-']);
        ensure!(camel_case, "`{key}` is not camelCase");
    }
    Ok(())
}

/// A text of an event, `""` when it is not there; `pointer` as in RFC 6901.
pub fn text_at<'a>(event: &'a Value, pointer: &str) -> &'a str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// True for a piece of a streamed answer.
pub fn is_partial(event: &Value) -> bool {
    event.get("partial").is_some()
}

/// The parts of an event.
pub fn parts(event: &Value) -> impl Iterator<Item = &Value> {
    event.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten()
}

/// What an event says, its thoughts apart.
pub fn text(event: &Value) -> String {
    parts(event).filter(|part| part.get("thought").is_none()).map(|part| text_at(part, "/text")).collect()
}

/// What whole events say, empty ones apart.
pub fn texts(events: &[Value]) -> Vec<String> {
    events.iter().filter(|event| !is_partial(event)).map(text).filter(|text| !text.is_empty()).collect()
}

/// The answer of a tool in these events.
///
/// # Errors
/// When the tool has not answered.
pub fn tool_response<'a>(events: &'a [Value], tool: &str) -> anyhow::Result<&'a Value> {
    let mut responses = events.iter().flat_map(parts).filter_map(|part| part.get("functionResponse"));
    let found = responses.find(|response| text_at(response, "/name") == tool);
    found.and_then(|found| found.get("response")).with_context(|| format!("no answer of `{tool}` in {events:?}"))
}

/// Checks how streamed answers come: pieces first, then one whole event of the same id whose text is that of all pieces. Code that the host
/// runs has a part of its own in the whole, and its text ends there. Gives how many pieces there were.
///
/// # Errors
/// When something is missing, doubled or out of order.
pub fn check_pieces(events: &[Value]) -> anyhow::Result<usize> {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut pieces = 0;
    for event in events {
        let id = text_at(event, "/id");
        let position = open.iter().position(|(open, _)| open == id);
        match (is_partial(event), position) {
            (true, found) => {
                pieces += 1;
                let index = found.unwrap_or_else(|| {
                    open.push((id.to_owned(), String::new()));
                    open.len() - 1
                });
                if let Some((_, said)) = open.get_mut(index) {
                    said.push_str(&text(event));
                }
            }
            (false, Some(index)) => {
                let (_, said) = open.swap_remove(index);
                let whole = text(event);
                let ends_in_code = parts(event).any(|part| part.get("executableCode").is_some());
                let fits = if ends_in_code { said.starts_with(&whole) } else { said == whole };
                ensure!(fits, "the pieces of {id} say {said:?}, the whole says {whole:?}");
            }
            (false, None) => {}
        }
    }
    match open.first() {
        Some((id, said)) => bail!("the pieces of {id}, {said:?}, are not followed by the whole"),
        None => Ok(pieces),
    }
}
