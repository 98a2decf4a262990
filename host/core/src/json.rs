//! JSON objects, the JSON of a value, and its length.

use std::cell::Cell;
use std::io::{self, Write};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value};

/// A JSON object.
pub type JsonMap = Map<String, Value>;

/// Returns the length of the value's JSON in bytes without creating the JSON; 0 for a value that JSON cannot represent.
pub fn json_len<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(0, |()| counter.0)
}

/// Returns the value's JSON in an allocation of its length.
///
/// # Errors
/// If JSON cannot represent the value.
pub(crate) fn json_bytes<T: Serialize + ?Sized>(value: &T) -> serde_json::Result<Bytes> {
    let mut buffer = BUFFER.take();
    buffer.length = 0;
    let written = serde_json::to_writer(&mut buffer, value);
    let json = written.map(|()| Bytes::copy_from_slice(buffer.written()));
    if buffer.bytes.len() <= MAX_KEPT_BUFFER {
        BUFFER.set(buffer);
    }
    json
}

/// Maximum size in bytes of the buffer that a thread keeps.
const MAX_KEPT_BUFFER: usize = 64 << 10;

thread_local! {
    static BUFFER: Cell<Buffer> = const { Cell::new(Buffer { bytes: Vec::new(), length: 0 }) };
}

/// A buffer whose writes are inlined: most writes of a serializer are single bytes.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Buffer {
    fn written(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }

    #[cold]
    fn grow_to(&mut self, length: usize) {
        self.bytes.resize(length.next_power_of_two().max(1024), 0);
    }
}

impl Write for Buffer {
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.length + bytes.len();
        if end > self.bytes.len() {
            self.grow_to(end);
        }
        if let Some(room) = self.bytes.get_mut(self.length..end) {
            room.copy_from_slice(bytes);
            self.length = end;
        }
        Ok(())
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Merges two changes of a value that were made concurrently. Members of objects are merged one by one; of any other
/// value that both have changed, `theirs` wins.
pub(crate) fn merge_changes(before: Option<&Value>, ours: Value, theirs: Value) -> Value {
    if before == Some(&theirs) {
        return ours;
    }
    let (Value::Object(mut merged), Value::Object(theirs)) = (ours, &theirs) else { return theirs };
    let before = before.and_then(Value::as_object);
    merged.retain(|key, _| theirs.contains_key(key) || !before.is_some_and(|before| before.contains_key(key)));
    for (key, theirs) in theirs {
        let before = before.and_then(|before| before.get(key));
        match merged.get_mut(key) {
            Some(ours) => *ours = merge_changes(before, ours.take(), theirs.clone()),
            // Deleted by the one, unchanged by the other.
            None if before == Some(theirs) => {}
            None => {
                merged.insert(key.clone(), theirs.clone());
            }
        }
    }
    Value::Object(merged)
}

struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn concurrent_changes_of_an_object_keep_what_only_one_has_changed() {
        let merge = |before, ours, theirs| merge_changes(Some(&before), ours, theirs);
        let before = json!({"kept": 1, "mine": {"a": 1, "b": 1}, "gone": 1, "dropped": 1});
        let ours = json!({"kept": 1, "mine": {"a": 2, "b": 1}, "dropped": 1, "new": "ours"});
        let theirs = json!({"kept": 1, "mine": {"a": 1, "b": 2}, "gone": 1, "added": "theirs"});
        let merged = json!({"kept": 1, "mine": {"a": 2, "b": 2}, "new": "ours", "added": "theirs"});
        assert_eq!(merge(before.clone(), ours.clone(), theirs.clone()), merged);
        assert_eq!(merge(before.clone(), theirs.clone(), ours), merged, "in either order");
        assert_eq!(merge(json!(1), json!(2), json!(3)), json!(3));
        assert_eq!(merge(before.clone(), json!(null), before.clone()), json!(null), "unchanged by the second");
        assert_eq!(merge(before.clone(), before, json!("text")), json!("text"));
        assert_eq!(merge_changes(None, json!({"a": 1}), json!({"b": 2})), json!({"a": 1, "b": 2}));
    }

    #[test]
    fn the_json_of_a_value_does_not_depend_on_earlier_values() {
        let long = "x".repeat(2 * MAX_KEPT_BUFFER);
        for value in [json!({"a": [1, 0.5, "é\n"]}), json!(long), json!(null), json!("x".repeat(1500)), json!([])] {
            assert_eq!(json_bytes(&value).unwrap(), value.to_string());
        }
    }

    #[test]
    fn the_counted_length_is_the_length_of_the_text() {
        for value in [json!(null), json!("é\n\u{0}"), json!({"a": [1, 0.5, {"b": "c"}]})] {
            assert_eq!(json_len(&value), value.to_string().len());
        }
    }
}
