//! Patterns in which `*` matches any text.

/// Returns true if `pattern` is `name` with any text for each `*`.
pub fn matches_wildcard(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => match name.strip_prefix(start) {
            None => false,
            Some(after) => after
                .char_indices()
                .map(|(at, _)| at)
                .chain([after.len()])
                .any(|at| matches_wildcard(rest, after.get(at..).unwrap_or_default())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for pattern in ["*", "dice/*", "*/roll", "dice/roll", "d*e/*l"] {
            assert!(matches_wildcard(pattern, "dice/roll"), "{pattern}");
        }
        for pattern in ["", "dice", "dice/", "*x", "roll", "dice/roll*x"] {
            assert!(!matches_wildcard(pattern, "dice/roll"), "{pattern}");
        }
    }
}
