//! Suggestions for misspelt names: "did you mean …?".

/// Maximum number of characters of a name that is compared. The cost grows with the square of the length, and names may
/// be untrusted.
const MAX_COMPARED: usize = 256;

/// Returns the known name that is most like `name`, if it is so similar that a typing error is likely.
pub fn similar_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    if length > MAX_COMPARED {
        return None;
    }
    let limit = 1 + length / 6;
    let distance = |known: &str| {
        // `COMPONENT/ITEM` is often written without the component.
        let item = known.rsplit_once('/').filter(|_| !name.contains('/')).map_or(known, |(_, item)| item);
        // The distance is at least the difference of the lengths.
        let is_similar_length = item.chars().count().abs_diff(length) <= limit;
        is_similar_length.then(|| strsim::damerau_levenshtein(name, item))
    };
    let candidates = known.into_iter().filter_map(|known| Some((distance(known)?, known)));
    candidates
        .filter(|(distance, known)| (1..=limit).contains(distance) && known.len() > 2)
        .min()
        .map(|(_, known)| known)
}

/// Returns the end of a message for a misspelt name, `; did you mean …?`, or nothing.
pub fn suggestion<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    similar_name(name, known).map(|known| format!("; did you mean `{known}`?")).unwrap_or_default()
}

/// Maximum number of names that a message lists in addition to a suggestion.
pub(crate) const MAX_LISTED: usize = 20;

/// The types of serde, each with its name for people who write YAML.
const TYPE_NAMES: [(&str, &str); 14] = [
    ("expected struct ", "expected a mapping"),
    ("expected a map", "expected a mapping"),
    ("expected a sequence", "expected a list"),
    ("expected f32", "expected a number"),
    ("expected f64", "expected a number"),
    ("expected i32", "expected a whole number"),
    ("expected i64", "expected a whole number"),
    ("expected u16", "expected a whole number from 0 on"),
    ("expected u32", "expected a whole number from 0 on"),
    ("expected u64", "expected a whole number from 0 on"),
    ("expected usize", "expected a whole number from 0 on"),
    ("expected a nonzero u32", "expected a whole number from 1 on"),
    ("expected a nonzero u64", "expected a whole number from 1 on"),
    ("expected a nonzero usize", "expected a whole number from 1 on"),
];

/// What serde found instead, with its names for people who write YAML.
const FOUND_TYPES: [(&str, &str); 3] = [
    ("invalid type: sequence", "invalid type: list"),
    ("invalid type: map,", "invalid type: mapping,"),
    ("invalid type: unit value", "invalid type: no value"),
];

/// Beginnings of messages of the YAML parser, each with the most likely remedy.
const REMEDIES: [(&str, &str); 3] = [
    (
        "mapping values are not allowed in this context",
        "put a value that contains `: ` in quotes, and indent the keys of one mapping equally",
    ),
    ("found a tab character that violates indentation", "indent with spaces"),
    (
        "found character that cannot start any token",
        "indent with spaces instead of tabs, and put a value that begins with `@`, `%` or a backquote in quotes",
    ),
];

/// Improves a message of serde for people who write YAML: suggests the name of a misspelt key or variant, names no
/// types of the program, and adds the remedy of a common mistake.
pub fn explain_syntax_error(message: &str) -> String {
    if let Some((_, remedy)) = REMEDIES.iter().find(|(problem, _)| message.starts_with(problem)) {
        return format!("{message}; {remedy}");
    }
    let mut explained = message.to_owned();
    for (found, plain) in FOUND_TYPES {
        explained = explained.replacen(found, plain, 1);
    }
    for (rust_name, plain) in TYPE_NAMES {
        if let Some((head, tail)) = explained.split_once(rust_name) {
            let rest = tail.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_');
            explained = format!("{head}{plain}{rest}");
        }
    }
    let suggested = ["unknown field `", "unknown variant `"].iter().find_map(|start| {
        let (name, rest) = message.split_once(start)?.1.split_once('`')?;
        let known: Vec<_> = rest.split('`').skip(1).step_by(2).collect();
        // The only one needs no suggestion.
        let suggested = if known.len() > 1 { similar_name(name, known.iter().copied()) } else { None };
        suggested.map(|name| (name, known.len()))
    });
    match suggested {
        Some((name, known)) if known > MAX_LISTED => {
            let problem = explained.split_once(", expected one of ").map_or(&*explained, |(problem, _)| problem);
            format!("{problem}; did you mean `{name}`?")
        }
        Some((name, _)) => format!("{explained}; did you mean `{name}`?"),
        None => explained,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_error_is_recognized_and_another_name_is_not() {
        assert_eq!(similar_name("modle", ["model", "tools"]), Some("model"));
        assert_eq!(similar_name("instrution", ["description", "instruction"]), Some("instruction"));
        assert_eq!(similar_name("rol_die", ["dice/roll_die", "web/fetch"]), Some("dice/roll_die"));
        assert_eq!(similar_name("dice/rol_die", ["dice/roll_die"]), Some("dice/roll_die"));
        assert_eq!(similar_name("model", ["model", "instruction"]), None);
        assert_eq!(similar_name("x", ["ab", "y"]), None);
        assert_eq!(suggestion("nobody", ["talker"]), "");
    }

    #[test]
    fn very_long_names_are_not_compared() {
        let [name, known] = ["a", "b"].map(|end| "x".repeat(10_000_000) + end);
        assert_eq!(similar_name(&name, [known.as_str()]), None);
        assert_eq!(similar_name("model", [known.as_str(), "modle"]), Some("modle"));
    }

    #[test]
    fn a_long_list_of_names_gives_way_to_a_suggestion() {
        let list = |count: usize| (0..count).map(|index| format!("`key_{index:02}`")).collect::<Vec<_>>().join(", ");
        let message = |name: &str, count| format!("unknown field `{name}`, expected one of `model`, {}", list(count));
        assert_eq!(explain_syntax_error(&message("modle", 20)), "unknown field `modle`; did you mean `model`?");
        let short = message("modle", 19);
        assert_eq!(explain_syntax_error(&short), format!("{short}; did you mean `model`?"));
        let unlike = message("x", 30);
        assert_eq!(explain_syntax_error(&unlike), unlike);
    }

    #[test]
    fn common_mistakes_in_yaml_have_a_remedy() {
        assert_eq!(
            explain_syntax_error("mapping values are not allowed in this context"),
            "mapping values are not allowed in this context; put a value that contains `: ` in quotes, and indent the keys of \
             one mapping equally"
        );
        let tab = "found a tab character that violates indentation at line 2 column 1, while scanning a plain scalar";
        assert_eq!(explain_syntax_error(tab), format!("{tab}; indent with spaces"));
        let start = "found character that cannot start any token, while scanning for the next token";
        let remedy =
            "indent with spaces instead of tabs, and put a value that begins with `@`, `%` or a backquote in quotes";
        assert_eq!(explain_syntax_error(start), format!("{start}; {remedy}"));
    }

    #[test]
    fn syntax_errors_name_keys_and_no_types() {
        let only = "unknown field `turn`, expected `turns`";
        assert_eq!(explain_syntax_error(only), only);
        assert_eq!(
            explain_syntax_error("unknown field `modle`, expected one of `model`, `tools`"),
            "unknown field `modle`, expected one of `model`, `tools`; did you mean `model`?"
        );
        assert_eq!(
            explain_syntax_error("components: invalid type: string \"x\", expected struct ComponentConfig"),
            "components: invalid type: string \"x\", expected a mapping"
        );
        assert_eq!(
            explain_syntax_error("invalid type: string \"x\", expected a map"),
            "invalid type: string \"x\", expected a mapping"
        );
        for (found, plain) in [("sequence", "list"), ("map", "mapping"), ("unit value", "no value")] {
            let explained = explain_syntax_error(&format!("model: invalid type: {found}, expected a string"));
            assert_eq!(explained, format!("model: invalid type: {plain}, expected a string"));
        }
        for (expected, plain) in [
            ("f64", "a number"),
            ("u32", "a whole number from 0 on"),
            ("a nonzero usize", "a whole number from 1 on"),
            ("i64", "a whole number"),
            ("a sequence", "a list"),
        ] {
            let explained = explain_syntax_error(&format!("max: invalid type: string \"x\", expected {expected}"));
            assert_eq!(explained, format!("max: invalid type: string \"x\", expected {plain}"));
        }
        assert_eq!(
            explain_syntax_error("unknown field `x`, there are no fields"),
            "unknown field `x`, there are no fields"
        );
    }
}
