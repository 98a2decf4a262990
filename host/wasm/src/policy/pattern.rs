//! Wildcard patterns for names.

use std::fmt;

use serde::Deserialize;

/// Maximum length of a name, in bytes, that [`Pattern::exactly`] writes in full.
const MAX_EXACT_LENGTH: usize = 256;

/// Stands for a wildcard where a pattern is compared like a name. A private-use character, which no name contains.
const WILDCARD: &str = "\u{10fffd}";

/// A name or a wildcard pattern: `*` matches any text, including none. `\*` is a literal star and `\\` a backslash.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    text: String,
    /// The texts between the stars; never empty.
    pieces: Vec<String>,
}

impl Pattern {
    /// Returns true if the pattern matches `name`.
    pub fn matches(&self, name: &str) -> bool {
        let Some((first, rest)) = self.pieces.split_first() else { return false };
        let Some(mut name) = name.strip_prefix(first.as_str()) else { return false };
        let Some((last, middle)) = rest.split_last() else { return name.is_empty() };
        for piece in middle {
            match name.split_once(piece.as_str()) {
                Some((_, after)) => name = after,
                None => return false,
            }
        }
        name.ends_with(last.as_str())
    }

    /// Returns true if the pattern matches every name that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        // A literal star does not match the star of a wildcard.
        self == other || self.matches(&other.pieces.join(WILDCARD))
    }

    /// Returns the pattern as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the text of a pattern that matches only this name. For a very long name, it matches every name with the
    /// same beginning.
    pub(super) fn exactly(name: &str) -> String {
        let prefix = name.get(..name.floor_char_boundary(MAX_EXACT_LENGTH)).unwrap_or(name);
        let star = if prefix.len() < name.len() { "*" } else { "" };
        format!("{}{star}", prefix.replace('\\', "\\\\").replace('*', "\\*"))
    }
}

impl TryFrom<String> for Pattern {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() {
            return Err("a pattern must not be empty; `*` matches all names");
        }
        let (mut pieces, mut piece, mut letters) = (Vec::new(), String::new(), text.chars());
        while let Some(letter) = letters.next() {
            match letter {
                '*' => pieces.push(std::mem::take(&mut piece)),
                '\\' => match letters.next() {
                    Some(escaped @ ('*' | '\\')) => piece.push(escaped),
                    Some(_) | None => return Err("in a pattern, `\\` comes before `*` or `\\` only"),
                },
                letter => piece.push(letter),
            }
        }
        pieces.push(piece);
        Ok(Self { text, pieces })
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (text, name) in [
            ("gemini-*", "gemini-2.5-flash"),
            ("gemini-*", "gemini-"),
            ("*", ""),
            ("*", "a/b"),
            ("*-flash", "gemini-2.5-flash"),
            ("a*b*c", "a--b--bc"),
            ("exact", "exact"),
            ("user:\\*", "user:*"),
            ("a\\\\b", "a\\b"),
        ] {
            assert!(pattern(text).matches(name), "{text} {name}");
        }
        for (text, name) in [
            ("gemini-*", "Gemini-2"),
            ("gemini-*", "x-gemini-2"),
            ("exact", "exactly"),
            ("exact", "inexact"),
            ("aba*aba", "aba"),
            ("a*b*c", "acb"),
            ("user:\\*", "user:name"),
        ] {
            assert!(!pattern(text).matches(name), "{text} {name}");
        }
    }

    #[test]
    fn a_wider_pattern_covers_a_narrower_one() {
        assert!(pattern("*").covers(&pattern("gemini-*")));
        assert!(pattern("gemini-*").covers(&pattern("gemini-2.5-*")));
        assert!(pattern("gemini-*").covers(&pattern("gemini-*")));
        assert!(!pattern("gemini-2.5-*").covers(&pattern("gemini-*")));
        assert!(pattern("user:\\*").covers(&pattern("user:\\*")));
        assert!(pattern("user:*").covers(&pattern("user:\\*")) && pattern("a\\\\*").covers(&pattern("a\\\\b")));
        assert!(!pattern("search/\\*").covers(&pattern("search/*")), "a literal star is one name");
    }

    #[test]
    fn a_pattern_for_one_name_stands_for_no_other() {
        let one = Pattern::exactly("user:*\\");
        assert_eq!(one, "user:\\*\\\\");
        assert!(pattern(&one).matches("user:*\\") && !pattern(&one).matches("user:secret\\"));
        let long = "ü".repeat(1000);
        let one = Pattern::exactly(&long);
        assert!(one.len() <= MAX_EXACT_LENGTH + 1 && pattern(&one).matches(&long));
    }

    #[test]
    fn an_invalid_pattern_is_explained() {
        let error = |text: &str| Pattern::try_from(text.to_owned()).unwrap_err();
        assert_eq!(error(""), "a pattern must not be empty; `*` matches all names");
        assert_eq!(error("a\\b"), "in a pattern, `\\` comes before `*` or `\\` only");
        assert_eq!(error("a\\"), "in a pattern, `\\` comes before `*` or `\\` only");
    }
}
