//! JSON objects, and the length of a value's JSON.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value};

/// A JSON object.
pub type JsonMap = Map<String, Value>;

/// Returns the length of the value's JSON in bytes without creating the JSON; 0 for a value that JSON cannot represent.
pub(crate) fn json_len<T: Serialize + ?Sized>(value: &T) -> usize {
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, value).map_or(0, |()| counter.0)
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
    fn the_counted_length_is_that_of_the_text() {
        for value in [json!(null), json!("é\n\u{0}"), json!({"a": [1, 0.5, {"b": "c"}]})] {
            assert_eq!(json_len(&value), value.to_string().len());
        }
    }
}
