//! Text in messages, paths and files: excerpts, escapes, truncation, lists of names, nouns after counts,
//! percent-encoding, byte order marks.

use std::borrow::Cow;
use std::fmt::Display;

/// Returns the beginning of a string from a client or a peer, at most `max` bytes, escaped for a message.
pub fn excerpt(text: &str, max: usize) -> String {
    truncate_bytes(text, max).escape_debug().to_string()
}

/// Escapes line ends and other control characters except tabs, so that a text from a component, a client or a peer
/// cannot look like a line of the log.
pub fn escape_control(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\t' || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(is_control) {
        return text.into();
    }
    let escape = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

/// Returns at most `max` bytes of a string, without splitting a character, and `…` if it is longer.
pub fn truncate_bytes(text: &str, max: usize) -> String {
    match text.get(..text.floor_char_boundary(max)) {
        Some(begin) if begin.len() < text.len() => format!("{begin}…"),
        _ => text.to_owned(),
    }
}

/// Returns at most `max` characters of a string, and `…` if it is longer.
pub fn truncate_chars(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Returns names in backticks, separated by commas. `none` if there are no names.
pub fn quoted_list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted: Vec<_> = names.into_iter().map(|name| format!("`{}`", name.as_ref())).collect();
    if quoted.is_empty() { "none".into() } else { quoted.join(", ") }
}

/// Returns a count and its noun, in the singular for 1.
pub fn pluralize<N: Display + PartialEq + From<u8>>(count: N, singular: &str, plural: &str) -> String {
    let noun = if count == N::from(1) { singular } else { plural };
    format!("{count} {noun}")
}

/// Returns a text without the byte order mark that some editors write before it.
pub fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Returns a name as a segment of the path of a URL, percent-encoded where necessary.
pub fn encode_segment(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_excerpt_is_escaped_and_ends_at_a_character() {
        assert_eq!(excerpt("a\nb", 10), "a\\nb");
        assert_eq!(excerpt("aüb", 2), "a…");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_control("a\tb ü"), "a\tb ü");
        assert_eq!(
            escape_control("ok\n2026 ERROR\r\u{1b}[2K\0\u{85}\u{2028}"),
            "ok\\n2026 ERROR\\r\\u{1b}[2K\\u{0}\\u{85}\\u{2028}"
        );
    }

    #[test]
    fn a_string_is_truncated_at_a_character() {
        assert_eq!((truncate_bytes("aüb", 4), truncate_bytes("aüb", 3)), ("aüb".into(), "aü…".into()));
        assert_eq!((truncate_bytes("aüb", 2), truncate_bytes("aüb", 0)), ("a…".into(), "…".into()));
        assert_eq!((truncate_chars("äöü", 3), truncate_chars("äöü", 2)), ("äöü".into(), "äö…".into()));
        assert_eq!((truncate_bytes("", 0), truncate_chars("", 0)), (String::new(), String::new()));
    }

    #[test]
    fn names_are_listed_in_backticks() {
        assert_eq!(quoted_list(["a", "b"]), "`a`, `b`");
        assert_eq!(quoted_list(Vec::<String>::new()), "none");
    }

    #[test]
    fn nouns_follow_their_count() {
        let files = |count: usize| pluralize(count, "file", "files");
        assert_eq!((files(0), files(1), files(2)), ("0 files".into(), "1 file".into(), "2 files".into()));
    }

    #[test]
    fn names_are_encoded_in_paths() {
        assert_eq!(encode_segment("trip planner/ü"), "trip%20planner%2F%C3%BC");
    }
}
