//! Patterns in which `*` matches any text.

/// Returns true if `pattern` is `name` with any text for each `*`. Both may be untrusted: takes time in proportion to
/// their lengths.
pub fn matches_wildcard(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut remaining) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').map_or((None, rest), |(middle, end)| (Some(middle), end));
    // The first occurrence of each text leaves the most for those after it.
    for text in middle.into_iter().flat_map(|middle| middle.split('*')) {
        match remaining.split_once(text) {
            Some((_, after)) => remaining = after,
            None => return false,
        }
    }
    remaining.ends_with(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Tries every text for each `*`.
    fn matches_slowly(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], name) => name.is_empty(),
            ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| matches_slowly(rest, &name[at..])),
            ([first, rest @ ..], [other, others @ ..]) => first == other && matches_slowly(rest, others),
            (_, []) => false,
        }
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for pattern in ["*", "dice/*", "*/roll", "dice/roll", "d*e/*l"] {
            assert!(matches_wildcard(pattern, "dice/roll"), "{pattern}");
        }
        for pattern in ["", "dice", "dice/", "*x", "roll", "dice/roll*x"] {
            assert!(!matches_wildcard(pattern, "dice/roll"), "{pattern}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_other_characters() {
        let stars = "*".repeat(1_000_000);
        assert!(matches_wildcard(&stars, "dice/roll"));
        assert!(!matches_wildcard(&format!("{stars}x"), "dice/roll"));
        assert!(!matches_wildcard(&"*a".repeat(101), &"a".repeat(100)));
    }

    proptest! {
        #[test]
        fn every_text_that_a_star_can_stand_for_is_found(pattern in "[ab*]{0,8}", name in "[ab]{0,8}") {
            let expected = matches_slowly(pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches_wildcard(&pattern, &name), expected);
        }
    }
}
