//! A tokenizer for search: words, and bigrams of scripts without spaces.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use hatchery_core::Content;

/// Maximum number of words that a search looks for, which limits its cost.
const MAX_QUERY_WORDS: usize = 256;

/// Returns the words by which a message is found. Words of a model's thinking are omitted.
pub(crate) fn entry_words(content: &Content) -> BTreeSet<Box<str>> {
    let texts = content.parts.iter().filter(|part| !part.thought).filter_map(|part| part.as_text());
    texts.flat_map(|text| tokenize(text, TextKind::Entry)).collect()
}

/// Returns the words by which a text is found.
pub(crate) fn text_words(text: &str) -> BTreeSet<Box<str>> {
    tokenize(text, TextKind::Entry)
}

/// Returns the words of a query: the longest ones if there are too many, because they find the fewest entries.
pub(crate) fn query_words(query: &str) -> BTreeSet<Box<str>> {
    let words = tokenize(query, TextKind::Query);
    if words.len() <= MAX_QUERY_WORDS {
        return words;
    }
    let mut words: Vec<_> = words.into_iter().collect();
    words.sort_by_key(|word| Reverse(word.len()));
    words.truncate(MAX_QUERY_WORDS);
    words.into_iter().collect()
}

/// Returns the distinct words of a text: runs of letters and digits in lower case. A run in a script that does not
/// separate words by spaces is split into bigrams instead. In an entry, and in a query of one character, single
/// characters are added, so that any part of the run is found.
fn tokenize(text: &str, kind: TextKind) -> BTreeSet<Box<str>> {
    let mut words = BTreeSet::new();
    for run in text.split(|character: char| !character.is_alphanumeric()).filter(|run| !run.is_empty()) {
        let lower = run.to_lowercase();
        let characters: Vec<char> = lower.chars().collect();
        for piece in characters.chunk_by(|left, right| is_unspaced(*left) == is_unspaced(*right)) {
            if !piece.first().is_some_and(|character| is_unspaced(*character)) {
                words.insert(piece.iter().collect::<String>().into());
                continue;
            }
            for pair in piece.windows(2) {
                words.insert(pair.iter().collect::<String>().into());
            }
            if kind == TextKind::Entry || piece.len() == 1 {
                words.extend(piece.iter().map(|character| character.to_string().into()));
            }
        }
    }
    words
}

/// The kind of text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TextKind {
    /// A text in memory.
    Entry,
    /// A search query.
    Query,
}

/// Returns true for Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese characters.
fn is_unspaced(character: char) -> bool {
    matches!(u32::from(character),
        0x0E00..=0x0FFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x31F0..=0x31FF
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x20000..=0x323AF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str, kind: TextKind) -> Vec<String> {
        tokenize(text, kind).into_iter().map(String::from).collect()
    }

    #[test]
    fn words_are_lower_case_and_without_punctuation() {
        assert_eq!(
            list("Hello? \"HELLO\", room 101: Ärger—ПРИВЕТ!", TextKind::Query),
            ["101", "hello", "room", "ärger", "привет"]
        );
    }

    #[test]
    fn a_script_without_spaces_is_split_into_bigrams() {
        assert_eq!(list("東京都2024", TextKind::Query), ["2024", "京都", "東京"]);
        assert_eq!(list("猫", TextKind::Query), ["猫"]);
        assert_eq!(list("黒猫", TextKind::Entry), ["猫", "黒", "黒猫"]);
    }

    #[test]
    fn a_text_of_symbols_has_no_words() {
        assert!(tokenize("?! … 🙂", TextKind::Entry).is_empty());
    }
}
