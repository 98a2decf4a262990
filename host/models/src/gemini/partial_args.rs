//! Streamed function call arguments: `partialArgs`, each a value at a JSON path, and `willContinue` until the last one.

use hatchery_core::{FunctionCall, JsonMap, Part, PartData};
use serde_json::Value;

const PARTIAL_ARGS: &str = "partialArgs";
const WILL_CONTINUE: &str = "willContinue";
/// Maximum length of a list in arguments. The index in a path is untrusted input.
const MAX_ITEMS: usize = 10_000;

/// Assembles function calls. At most one call is open at a time.
#[derive(Debug, Default)]
pub(super) struct PartialCalls {
    open: Option<Part>,
}

impl PartialCalls {
    /// Buffers fragments of calls and returns the other parts. A call is returned at the position of its last fragment.
    pub(super) fn assemble(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut assembled = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part { data: PartData::FunctionCall(call), thought, thought_signature, extra }
                    if is_fragment(&call) =>
                {
                    let starts_call = !call.name.is_empty();
                    if starts_call {
                        assembled.extend(self.take_open());
                    }
                    let fragment = Part { data: PartData::FunctionCall(call), thought, thought_signature, extra };
                    assembled.extend(self.add(fragment, starts_call));
                }
                part => {
                    if matches!(part.data, PartData::FunctionCall(_)) {
                        assembled.extend(self.take_open());
                    }
                    assembled.push(part);
                }
            }
        }
        assembled
    }

    /// Returns the open call, which the stream left unfinished.
    pub(super) fn take_open(&mut self) -> Option<Part> {
        self.open.take()
    }

    /// Adds a fragment. Returns the call if this was its last fragment. A fragment without a name is dropped if no call
    /// is open.
    fn add(&mut self, mut fragment: Part, starts_call: bool) -> Option<Part> {
        let PartData::FunctionCall(call) = &mut fragment.data else { return Some(fragment) };
        let partial_args = call.extra.shift_remove(PARTIAL_ARGS);
        let will_continue = call.extra.shift_remove(WILL_CONTINUE).is_some_and(|flag| flag == true);
        if starts_call {
            self.open = Some(fragment);
        }
        let open = self.open.as_mut()?;
        if let PartData::FunctionCall(call) = &mut open.data {
            for partial_arg in partial_args.as_ref().and_then(Value::as_array).into_iter().flatten() {
                apply(&mut call.args, partial_arg);
            }
        }
        if will_continue { None } else { self.open.take() }
    }
}

fn is_fragment(call: &FunctionCall) -> bool {
    call.name.is_empty() || call.extra.contains_key(PARTIAL_ARGS) || call.extra.contains_key(WILL_CONTINUE)
}

/// Sets the value at a path. A string is appended to an existing string. Without a value, nothing is changed.
fn apply(args: &mut JsonMap, partial_arg: &Value) {
    let path = partial_arg.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
    let Some(value) = value_of(partial_arg) else { return };
    let mut segments = parse_path(path).into_iter();
    let Some(first) = segments.next() else { return };
    let mut target = args.entry(first).or_insert(Value::Null);
    for segment in segments {
        let Some(child) = child_of(target, segment) else { return };
        target = child;
    }
    match (target, value) {
        (Value::String(text), Value::String(more)) => text.push_str(more),
        (target, value) => *target = value.clone(),
    }
}

/// Returns the value of a partial argument. `None` if it has none, which differs from an explicit `nullValue`.
fn value_of(partial_arg: &Value) -> Option<&Value> {
    let map = partial_arg.as_object()?;
    let set = |key: &str| map.get(key).filter(|value| !value.is_null());
    let value = ["stringValue", "numberValue", "boolValue"].into_iter().find_map(set);
    value.or_else(|| map.contains_key("nullValue").then_some(&Value::Null))
}

/// Returns the child of a list or object, and creates it if it does not exist. `None` if the index is out of range.
fn child_of(value: &mut Value, segment: String) -> Option<&mut Value> {
    match (segment.parse::<usize>(), &*value) {
        (Ok(index), Value::Null | Value::Array(_)) => {
            if value.is_null() {
                *value = Value::Array(Vec::new());
            }
            let items = value.as_array_mut()?;
            if index >= MAX_ITEMS {
                return None;
            }
            if items.len() <= index {
                items.resize(index + 1, Value::Null);
            }
            items.get_mut(index)
        }
        _ => {
            if !value.is_object() {
                *value = Value::Object(JsonMap::new());
            }
            Some(value.as_object_mut()?.entry(segment).or_insert(Value::Null))
        }
    }
}

/// Splits a JSON path into segments: `$.a.b[0]['c d']` becomes `a`, `b`, `0`, `c d`.
fn parse_path(path: &str) -> Vec<String> {
    let mut segments = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        let (segment, after) = if let Some(bracket) = rest.strip_prefix('[') {
            match bracket.strip_prefix(['\'', '"']) {
                Some(quoted) => {
                    let (segment, after) = quoted.split_once(['\'', '"']).unwrap_or((quoted, ""));
                    (segment, after.strip_prefix(']').unwrap_or(after))
                }
                None => bracket.split_once(']').unwrap_or((bracket, "")),
            }
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            name.split_at(name.find(['.', '[']).unwrap_or(name.len()))
        };
        if !segment.is_empty() {
            segments.push(segment.to_owned());
        }
        rest = after;
    }
    segments
}
