//! Names of tools for models. Servers may use characters and lengths that model providers refuse.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

/// Maximum length of a name in characters. Model providers reject longer ones.
const MAX_NAME: usize = 64;

/// Length of the hash that replaces the end of a name, with the `_` before it.
const HASH_SUFFIX: usize = 9;

/// Returns the names that models see for these different names of tools. A name that every model provider accepts stays
/// as it is. The result for a name does not depend on the order, so that a waiting call is resumed with its own tool.
pub(super) fn model_names(names: &[String]) -> Vec<String> {
    let valid: Vec<String> = names.iter().map(|name| valid_name(name)).collect();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &valid {
        *counts.entry(name).or_default() += 1;
    }
    let is_unique = |name: &str| counts.get(name).is_none_or(|count| *count == 1);
    let names = names
        .iter()
        .zip(&valid)
        .map(|(name, valid)| if name == valid || is_unique(valid) { valid.clone() } else { with_hash(valid, name) });
    names.collect()
}

/// Returns a name as every model provider accepts it: at most 64 letters, digits, `_` and `-`, the first of which is a
/// letter or `_`.
pub(super) fn valid_name(name: &str) -> String {
    let is_valid = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    let mut valid: String = name.chars().map(|char| if is_valid(char) { char } else { '_' }).collect();
    // The engine's own calls begin with `adk_`.
    if !valid.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_') || valid.starts_with("adk_") {
        valid.insert(0, '_');
    }
    if valid.len() > MAX_NAME { with_hash(&valid, name) } else { valid }
}

/// Returns a valid name with the hash of `name` at its end.
fn with_hash(valid: &str, name: &str) -> String {
    let hash: String = Sha256::digest(name.as_bytes()).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    let begin: String = valid.chars().take(MAX_NAME - HASH_SUFFIX).collect();
    format!("{begin}_{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_every_provider_accepts_stay_as_they_are() {
        for name in ["read_file", "_x", "a-b", &"x".repeat(64)] {
            assert_eq!(valid_name(name), name);
        }
    }

    #[test]
    fn other_names_become_valid() {
        let cases = [("notes.add", "notes_add"), ("a:b/c", "a_b_c"), ("two words", "two_words"), ("naïve", "na_ve")];
        let beginnings = [("1st", "_1st"), ("-x", "_-x"), ("", "_"), ("adk.request", "_adk_request")];
        for (name, valid) in cases.into_iter().chain(beginnings) {
            assert_eq!(valid_name(name), valid);
        }
        let long = ["a", "b"].map(|end| valid_name(&format!("{}{end}", "x".repeat(64))));
        assert!(long[0] != long[1] && long.iter().all(|name| name.len() == 64), "{long:?}");
    }

    #[test]
    fn names_are_unique_in_any_order() {
        let mut names = ["a_b", "a.b", "a:b", "c.d"].map(str::to_owned);
        let valid = model_names(&names);
        assert_eq!((valid[0].as_str(), valid[3].as_str()), ("a_b", "c_d"));
        assert!(valid[1] != valid[2] && valid[1..3].iter().all(|name| name.starts_with("a_b_")), "{valid:?}");
        names.reverse();
        let reversed: Vec<_> = valid.into_iter().rev().collect();
        assert_eq!(model_names(&names), reversed);
    }
}
