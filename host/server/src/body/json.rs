//! An upper bound for the memory of parsed JSON, computed from its bytes without parsing.

use axum::http::StatusCode;

use crate::error::ApiError;

/// Maximum number of values in a body. Two bytes (`0,`) can need more than a hundred when parsed, so a limit of bytes
/// is not enough.
const MAX_VALUES: usize = 1_000_000;

/// Maximum size of a parsed value without its text. An array of one number is allocated with space for four.
const VALUE_BYTES: usize = 256;

/// Returns an upper bound for the size of the parsed body. Also defined for text that is not JSON.
///
/// # Errors
/// 413 if it has too many values.
pub(super) fn parsed_size(json: &[u8]) -> Result<usize, ApiError> {
    let values = count_values(json);
    if values > MAX_VALUES {
        let detail = format!("the body has more than {MAX_VALUES} JSON values; send fewer per request");
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_MANY_VALUES", detail));
    }
    Ok(json.len() + values * VALUE_BYTES)
}

/// Returns at least the number of values: empty arrays and objects count twice. The parser limits the nesting.
fn count_values(json: &[u8]) -> usize {
    let (mut values, mut rest) = (usize::from(!json.is_empty()), json);
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b',' | b'[' | b'{' => values += 1,
            b'"' => rest = skip_string(rest),
            _ => {}
        }
    }
    values
}

/// Returns the text after the closing quotation mark.
fn skip_string(mut rest: &[u8]) -> &[u8] {
    while let Some(index) = rest.iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        let skipped = if rest.get(index) == Some(&b'\\') { 2 } else { 1 };
        rest = rest.get(index + skipped..).unwrap_or_default();
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
    fn every_value_counts_and_a_string_counts_once() {
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
    fn too_many_values_are_rejected_however_small_they_are() {
        let error = parsed_size("0,".repeat(MAX_VALUES + 1).as_bytes()).unwrap_err();
        assert_eq!((error.status.as_u16(), &*error.code), (413, "TOO_MANY_VALUES"));
        assert_eq!(error.detail, "the body has more than 1000000 JSON values; send fewer per request");
        let text = format!("\"{}\"", ",".repeat(MAX_VALUES + 1));
        assert_eq!(parsed_size(text.as_bytes()).unwrap(), text.len() + VALUE_BYTES);
    }
}
