//! How much memory JSON takes once it is parsed, from one look at its bytes.

use axum::http::StatusCode;

use crate::error::ApiError;

/// Most values in one body. Two bytes (`0,`) can become more than a hundred, so the number of bytes alone bounds little.
const MAX_VALUES: usize = 1_000_000;

/// Bytes that a value takes beside its text, at worst: an array of one number has room for four.
const VALUE_BYTES: usize = 256;

/// Bytes that a body takes when it is parsed, at worst. What is not JSON gets a number, too.
///
/// # Errors
/// 413 when it holds too many values.
pub(super) fn parsed_size(json: &[u8]) -> Result<usize, ApiError> {
    let values = count_values(json);
    if values > MAX_VALUES {
        let detail = format!("the body holds more than {MAX_VALUES} JSON values; send less at one time");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_MANY_VALUES", detail));
    }
    Ok(json.len() + values * VALUE_BYTES)
}

/// The number of values, at least: empty arrays and objects count twice. Nesting needs no limit here, since the parser has one.
fn count_values(json: &[u8]) -> usize {
    let (mut values, mut rest) = (usize::from(!json.is_empty()), json);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b',' | b'[' | b'{' => values += 1,
            b'"' => rest = after_text(rest),
            _ => {}
        }
    }
    values
}

/// What follows the closing quotation mark.
fn after_text(mut rest: &[u8]) -> &[u8] {
    while let Some(place) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        let skipped = if rest.get(place) == Some(&b'\\') { 2 } else { 1 };
        rest = rest.get(place + skipped..).unwrap_or_default();
        if skipped == 1 {
            return rest;
        }
    }
    &[]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_counts_and_texts_are_one_whatever_they_hold() {
        for (json, values) in [
            ("", 0),
            ("1", 1),
            ("[1,2,3]", 4),
            (r#"{"a":{"b":1},"c":[2]}"#, 5),
            (r#""a,b[{\",\\""#, 1),
            (r#"["\"",",",1]"#, 4),
            (r#""never closed , [ \"#, 1),
        ] {
            assert_eq!(count_values(json.as_bytes()), values, "{json}");
        }
    }

    #[test]
    fn too_many_values_are_refused_however_few_their_bytes() {
        let error = parsed_size("0,".repeat(MAX_VALUES + 1).as_bytes()).unwrap_err();
        assert_eq!((error.status.as_u16(), &*error.code), (413, "TOO_MANY_VALUES"));
        assert_eq!(error.detail, "the body holds more than 1000000 JSON values; send less at one time");
        let text = format!("\"{}\"", ",".repeat(MAX_VALUES + 1));
        assert_eq!(parsed_size(text.as_bytes()).unwrap(), text.len() + VALUE_BYTES);
    }
}
