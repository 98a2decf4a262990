//! Names with wildcards.

use std::fmt;

use serde::Deserialize;

/// Longest name, in bytes, that a pattern for exactly this name spells out.
const LONGEST: usize = 256;

/// A name, or many: `*` stands for any text, also none. `\*` is a star, and `\\` a backslash.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern {
    text: String,
    /// What is between the stars; never empty.
    pieces: Vec<String>,
}

impl Pattern {
    /// True for a name that it stands for.
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

    /// True when it stands for all that the other does.
    pub fn covers(&self, other: &Self) -> bool {
        self == other || self.matches(&other.text)
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text of a pattern for this name alone; for all that begin like it, when it is very long.
    pub(super) fn exactly(name: &str) -> String {
        let begin = name.get(..name.floor_char_boundary(LONGEST)).unwrap_or(name);
        let star = if begin.len() < name.len() { "*" } else { "" };
        format!("{}{star}", begin.replace('\\', "\\\\").replace('*', "\\*"))
    }
}

impl TryFrom<String> for Pattern {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() {
            return Err("a pattern is not empty; `*` stands for all names");
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
    }

    #[test]
    fn a_pattern_for_one_name_stands_for_no_other() {
        let one = Pattern::exactly("user:*\\");
        assert_eq!(one, "user:\\*\\\\");
        assert!(pattern(&one).matches("user:*\\") && !pattern(&one).matches("user:secret\\"));
        let long = "ü".repeat(1000);
        let one = Pattern::exactly(&long);
        assert!(one.len() <= LONGEST + 1 && pattern(&one).matches(&long));
    }

    #[test]
    fn what_is_no_pattern_is_explained() {
        let error = |text: &str| Pattern::try_from(text.to_owned()).unwrap_err();
        assert_eq!(error(""), "a pattern is not empty; `*` stands for all names");
        assert_eq!(error("a\\b"), "in a pattern, `\\` comes before `*` or `\\` only");
        assert_eq!(error("a\\"), "in a pattern, `\\` comes before `*` or `\\` only");
    }
}
