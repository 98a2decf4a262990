//! Texts in which U+0000 is written as in JSON, because PostgreSQL cannot store it.

use std::borrow::Cow;

/// Returns a string as in JSON, without the quotes.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(|character: char| character.is_control() || character == '"' || character == '\\') {
        return Cow::Borrowed(text);
    }
    // A string can always be written.
    let json = serde_json::to_string(text).unwrap_or_default();
    let inner = json.strip_prefix('"').and_then(|json| json.strip_suffix('"'));
    Cow::Owned(inner.unwrap_or_default().to_owned())
}

/// Returns the string that was escaped.
pub(crate) fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    // A text that was not escaped is one that another program has written.
    serde_json::from_str(&format!("\"{text}\"")).map_or(Cow::Borrowed(text), Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_read_back_and_without_u_0000_in_between() {
        for text in ["", "plain é 猫", "a\0b", "\"quoted\"", "back\\slash\\u0000", "new\nline\u{7f}"] {
            assert!(!escape(text).contains('\0'), "{text:?}");
            assert_eq!(unescape(&escape(text)), text);
        }
        assert_eq!(escape("a\0b"), "a\\u0000b");
    }
}
