//! Names of tools: valid for all model providers, and unique.

use std::collections::{HashMap, HashSet};

/// Maximum length of a tool's name in characters. Model providers reject longer ones.
const MAX_NAME: usize = 64;

/// Returns a text as the name of a tool or of an argument, which model providers accept: letters, digits, `_` and `-`.
pub(crate) fn valid_name(text: &str) -> String {
    let mut name = String::new();
    for char in text.chars() {
        match char {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' => name.push(char),
            _ if name.ends_with('_') || name.is_empty() => {}
            _ => name.push('_'),
        }
        if name.len() == MAX_NAME {
            break;
        }
    }
    let name = name.trim_end_matches('_');
    // The engine's own calls begin with `adk_`.
    let begins_well =
        name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_') && !name.starts_with("adk_");
    let name = if begins_well { name.to_owned() } else { format!("_{name}") };
    name.chars().take(MAX_NAME).collect()
}

/// Names that differ from each other.
#[derive(Default)]
pub(crate) struct UniqueNames {
    taken: HashSet<String>,
    /// By the beginning of a name, the first number that it may not have been followed by.
    numbers: HashMap<String, u64>,
}

impl UniqueNames {
    /// Returns true if a name is already used.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.taken.contains(name)
    }

    /// Adds a valid name like `text`, with a number if another one has it, and returns it.
    pub(crate) fn add(&mut self, text: &str) -> String {
        let name = valid_name(text);
        if self.taken.insert(name.clone()) {
            return name;
        }
        let mut number = 2;
        loop {
            let suffix = format!("_{number}");
            let begin = name.get(..name.len().min(MAX_NAME - suffix.len())).unwrap_or_default();
            let free = self.numbers.entry(begin.to_owned()).or_insert(number);
            if *free > number {
                // It may have more digits, and another beginning.
                number = *free;
                continue;
            }
            number += 1;
            *free = number;
            let numbered = format!("{begin}{suffix}");
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut names = UniqueNames::default();
        let mut named = |text: &str| names.add(text);
        assert_eq!(named("listPets"), "listPets");
        assert_eq!(named("listPets"), "listPets_2");
        assert_eq!(named("list pets!"), "list_pets");
        assert_eq!(named("get /pets/{id}"), "get_pets_id");
        assert_eq!(named("1st"), "_1st");
        assert_eq!(named("adk_request"), "_adk_request");
        assert_eq!(named("日本"), "_");
        let long = named(&"x".repeat(100));
        assert_eq!(long.len(), 64);
        let second = named(&"x".repeat(90));
        assert!(second.len() == 64 && second.ends_with("_2"), "{second}");
        let taken: Vec<_> = ["a_3", "a", "a", "a"].map(&mut named).into();
        assert_eq!(taken, ["a_3", "a", "a_2", "a_4"]);
        let many: HashSet<_> = (0..2_000).map(|_| named(&"x".repeat(70))).collect();
        assert!(many.len() == 2_000 && many.iter().all(|name| name.len() == 64));
    }
}
