//! Keywords: the words of a text without stop words.

use std::collections::BTreeSet;

use hatchery_core::Content;

use crate::memory::tokenizer::{entry_words, query_words};

/// Words of no use in a search, as in ADK for Java.
pub(super) const DEFAULT_STOP_WORDS: &str = "a an and are as at be but by for if in into is it i no not of on or such that the \
    their then there these they this to was will with what where when why how help need like make got would could should";

/// Maximum number of keywords of an entry. Firestore indexes at most 40,000 values of a document.
const MAX_KEYWORDS: usize = 20_000;

/// Returns the keywords by which a message is found.
pub(super) fn entry_keywords(content: &Content, stop_words: &BTreeSet<String>) -> Vec<Box<str>> {
    let mut words = remove_stop_words(entry_words(content), stop_words);
    words.truncate(MAX_KEYWORDS);
    words
}

/// Returns the keywords of a query.
pub(super) fn query_keywords(query: &str, stop_words: &BTreeSet<String>) -> Vec<Box<str>> {
    remove_stop_words(query_words(query), stop_words)
}

fn remove_stop_words(words: BTreeSet<Box<str>>, stop_words: &BTreeSet<String>) -> Vec<Box<str>> {
    words.into_iter().filter(|word| !stop_words.contains(&**word)).collect()
}
