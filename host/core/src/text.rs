//! Texts of others in messages and paths.

/// Returns the beginning of a text of a client or a peer, at most `max` bytes, escaped for a message.
pub fn excerpt(text: &str, max: usize) -> String {
    let begin = text.get(..text.floor_char_boundary(max)).unwrap_or(text);
    let dots = if begin.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", begin.escape_debug())
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
    fn names_are_encoded_in_paths() {
        assert_eq!(encode_segment("trip planner/ü"), "trip%20planner%2F%C3%BC");
    }
}
