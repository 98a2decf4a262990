//! Function calls whose arguments come in pieces: `partialArgs`, each a value at a JSON path, and `willContinue` until the last.

use hatchery_core::{FunctionCall, JsonMap, Part, PartData};
use serde_json::Value;

const PARTIAL_ARGS: &str = "partialArgs";
const WILL_CONTINUE: &str = "willContinue";
/// The most items of a list in arguments, since an index comes from outside.
const MOST_ITEMS: usize = 10_000;

/// The call that is being put together.
#[derive(Debug, Default)]
pub(super) struct PartialCalls {
    open: Option<Part>,
}

impl PartialCalls {
    /// The parts with pieces of calls held back, and each call whole at the place where it ends.
    pub(super) fn complete(&mut self, parts: Vec<Part>) -> Vec<Part> {
        let mut whole = Vec::with_capacity(parts.len());
        for part in parts {
            match part {
                Part { data: PartData::FunctionCall(call), thought, thought_signature, extra } if is_piece(&call) => {
                    let names_a_call = !call.name.is_empty();
                    if names_a_call {
                        whole.extend(self.end());
                    }
                    let piece = Part { data: PartData::FunctionCall(call), thought, thought_signature, extra };
                    whole.extend(self.add(piece, names_a_call));
                }
                part => {
                    if matches!(part.data, PartData::FunctionCall(_)) {
                        whole.extend(self.end());
                    }
                    whole.push(part);
                }
            }
        }
        whole
    }

    /// The call that the stream left unfinished.
    pub(super) fn end(&mut self) -> Option<Part> {
        self.open.take()
    }

    /// Adds a piece; the call when this was its last. A piece without a name and without an open call belongs to nothing.
    fn add(&mut self, mut piece: Part, names_a_call: bool) -> Option<Part> {
        let PartData::FunctionCall(call) = &mut piece.data else { return Some(piece) };
        let pieces = call.extra.shift_remove(PARTIAL_ARGS);
        let goes_on = call.extra.shift_remove(WILL_CONTINUE).is_some_and(|flag| flag == true);
        if names_a_call {
            self.open = Some(piece);
        }
        let open = self.open.as_mut()?;
        if let PartData::FunctionCall(call) = &mut open.data {
            for piece in pieces.as_ref().and_then(Value::as_array).into_iter().flatten() {
                put(&mut call.args, piece);
            }
        }
        if goes_on { None } else { self.open.take() }
    }
}

fn is_piece(call: &FunctionCall) -> bool {
    call.name.is_empty() || call.extra.contains_key(PARTIAL_ARGS) || call.extra.contains_key(WILL_CONTINUE)
}

/// Sets one value; texts at the same path are joined.
fn put(args: &mut JsonMap, piece: &Value) {
    let path = piece.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
    let value = match piece {
        Value::Object(piece) => ["stringValue", "numberValue", "boolValue"].iter().find_map(|key| piece.get(*key)),
        _ => None,
    };
    let mut segments = segments(path).into_iter();
    let Some(first) = segments.next() else { return };
    let mut place = args.entry(first).or_insert(Value::Null);
    for segment in segments {
        let Some(next) = step(place, segment) else { return };
        place = next;
    }
    match (place, value) {
        (Value::String(text), Some(Value::String(more))) => text.push_str(more),
        (place, value) => *place = value.cloned().unwrap_or(Value::Null),
    }
}

fn step(place: &mut Value, segment: String) -> Option<&mut Value> {
    match (segment.parse::<usize>(), &*place) {
        (Ok(index), Value::Null | Value::Array(_)) => {
            if place.is_null() {
                *place = Value::Array(Vec::new());
            }
            let items = place.as_array_mut()?;
            if index >= MOST_ITEMS {
                return None;
            }
            if items.len() <= index {
                items.resize(index + 1, Value::Null);
            }
            items.get_mut(index)
        }
        _ => {
            if !place.is_object() {
                *place = Value::Object(JsonMap::new());
            }
            Some(place.as_object_mut()?.entry(segment).or_insert(Value::Null))
        }
    }
}

/// `$.a.b[0]['c d']` as `a`, `b`, `0`, `c d`.
fn segments(path: &str) -> Vec<String> {
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
