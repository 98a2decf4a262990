//! Names of tools: valid for all model providers, and unique.

use std::collections::BTreeSet;

/// Longest name of a tool, which is what model providers accept.
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

/// Returns a valid name like `text` that is not in `taken`, and adds it.
pub(crate) fn unique_name(text: &str, taken: &mut BTreeSet<String>) -> String {
    let name = valid_name(text);
    let numbered = (2..).map(|number: u64| {
        let suffix = format!("_{number}");
        let length = name.len().min(MAX_NAME - suffix.len());
        format!("{}{suffix}", name.get(..length).unwrap_or_default())
    });
    let free = std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or(name.clone());
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut taken = BTreeSet::new();
        let mut named = |text: &str| unique_name(text, &mut taken);
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
    }
}
