//! Adds grants to the text of `hatchery.yaml`. Comments, order, layout and line ends are preserved.
//!
//! The text is edited line by line, as a person would. The result is then parsed and compared with the intended
//! configuration, so that a layout that is not understood is an error and never a wrong grant.

use hatchery_core::without_byte_order_mark;
use serde_yaml::{Mapping, Value};

/// The reason why grants cannot be added to a configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum EditError {
    /// The text is not a valid mapping.
    Invalid(String),
    /// The lines have a layout that is not understood, such as a mapping in braces.
    Layout,
}

/// Returns the text with these lines below `components.COMPONENT.grants`, such as `network: ["example.com"]`. A list
/// that exists is extended.
pub fn add_grants(original: &str, component: &str, grants: &[String]) -> Result<String, EditError> {
    let text = without_byte_order_mark(original);
    let parse = |text: &str| serde_yaml::from_str::<Value>(text).map_err(|error| EditError::Invalid(error.to_string()));
    let before = match parse(text)? {
        Value::Null => Value::Mapping(Mapping::new()),
        value => value,
    };
    let mut expected = before;
    let mut added = Value::Mapping(Mapping::new());
    for grant in grants {
        merge(&mut added, parse(grant)?);
    }
    for key in ["grants", component, "components"] {
        added = Value::Mapping(Mapping::from_iter([(Value::from(key), added)]));
    }
    merge(&mut expected, added);
    let edited = edit(text, component, grants).ok_or(EditError::Layout)?;
    let mark = original.strip_suffix(text).unwrap_or_default();
    if parse(&edited)? == expected { Ok(format!("{mark}{edited}")) } else { Err(EditError::Layout) }
}

/// Adds the entries of `more` to `value`: mappings are merged, lists are extended, other values are replaced.
fn merge(value: &mut Value, more: Value) {
    match (value, more) {
        (Value::Mapping(mapping), Value::Mapping(more)) => {
            for (key, more) in more {
                match mapping.get_mut(&key) {
                    Some(value) => merge(value, more),
                    None => drop(mapping.insert(key, more)),
                }
            }
        }
        (Value::Sequence(list), Value::Sequence(more)) => {
            for entry in more {
                if !list.contains(&entry) {
                    list.push(entry);
                }
            }
        }
        (value, more) => *value = more,
    }
}

/// The lines of a block mapping: a range of lines and their indentation.
#[derive(Clone, Copy)]
struct BlockMapping {
    start: usize,
    end: usize,
    indent: usize,
}

fn edit(text: &str, component: &str, grants: &[String]) -> Option<String> {
    // In a file of Windows, each line keeps the carriage return at its end.
    let mut lines: Vec<String> = text.split_terminator('\n').map(Into::into).collect();
    let mut block = BlockMapping { start: 0, end: lines.len(), indent: 0 };
    let path = ["components", component, "grants"];
    for (depth, key) in path.iter().enumerate() {
        match find(&lines, block, key) {
            Some(line) if value_of(lines.get(line)?).is_empty() => block = children(&lines, line, block),
            Some(_) => return None,
            None => {
                let missing = path.get(depth..)?;
                let mut new: Vec<String> = Vec::new();
                for (level, key) in missing.iter().enumerate() {
                    new.push(format!("{}{key}:", " ".repeat(block.indent + 2 * level)));
                }
                let indent = " ".repeat(block.indent + 2 * missing.len());
                new.extend(grants.iter().map(|grant| format!("{indent}{grant}")));
                insert(&mut lines, block, new);
                return Some(join(&lines));
            }
        }
    }
    for grant in grants {
        let (key, value) = grant.split_once(": ")?;
        match find(&lines, block, key) {
            Some(line) => {
                let extended = extend(lines.get(line)?, value)?;
                *lines.get_mut(line)? = extended;
            }
            None => {
                insert(&mut lines, block, vec![format!("{}{grant}", " ".repeat(block.indent))]);
                block.end += 1;
            }
        }
    }
    Some(join(&lines))
}

fn join(lines: &[String]) -> String {
    lines.iter().fold(String::new(), |text, line| text + line + "\n")
}

/// Returns true for a line with neither content nor a document marker.
fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#') || line == "---"
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Returns the line with a key of a block.
fn find(lines: &[String], block: BlockMapping, key: &str) -> Option<usize> {
    let keys = [format!("{key}:"), format!("\"{key}\":"), format!("'{key}':")];
    let is_key = |line: &str| {
        let text = line.get(block.indent..).unwrap_or_default();
        indent_of(line) == block.indent && keys.iter().any(|key| text.starts_with(key.as_str()))
    };
    let range = lines.iter().enumerate().take(block.end).skip(block.start);
    range.filter(|(_, line)| !is_blank(line)).find(|(_, line)| is_key(line)).map(|(number, _)| number)
}

/// Returns the value behind the key of a line, without a comment. Quoted keys have no colon here.
fn value_of(line: &str) -> &str {
    let value = line.split_once(':').map_or("", |(_, value)| value);
    value.split_once(" #").map_or(value, |(value, _)| value).trim()
}

/// Returns the block below the key in a line.
fn children(lines: &[String], key: usize, parent: BlockMapping) -> BlockMapping {
    let inner = |number: usize| lines.get(number).is_some_and(|line| is_blank(line) || indent_of(line) > parent.indent);
    let start = key + 1;
    let end = (start..parent.end).find(|number| !inner(*number)).unwrap_or(parent.end);
    let first = lines.iter().take(end).skip(start).find(|line| !is_blank(line));
    BlockMapping { start, end, indent: first.map_or(parent.indent + 2, |line| indent_of(line)) }
}

/// Inserts lines at the end of a block, before blank lines and comments that follow it.
fn insert(lines: &mut Vec<String>, block: BlockMapping, new: Vec<String>) {
    let last = (block.start..block.end).rev().find(|number| lines.get(*number).is_some_and(|line| !is_blank(line)));
    let at = last.map_or(block.start, |last| last + 1);
    let at = if block.start == 0 && last.is_none() { lines.len() } else { at };
    let end = if lines.first().is_some_and(|line| line.ends_with('\r')) { "\r" } else { "" };
    lines.splice(at..at, new.into_iter().map(|line| line + end));
}

/// Returns the line of a key with a value added: a list in brackets is extended, a word replaced.
fn extend(line: &str, value: &str) -> Option<String> {
    let old = value_of(line);
    match (old.strip_prefix('[').and_then(|old| old.strip_suffix(']')), value.strip_prefix('[')) {
        (Some(entries), Some(more)) if !entries.contains(['[', '{']) => {
            let more = more.strip_suffix(']')?;
            let separator = if entries.trim().is_empty() { "" } else { ", " };
            Some(line.replacen(old, &format!("[{}{separator}{more}]", entries.trim_end()), 1))
        }
        (None, None) if !old.is_empty() && old.chars().all(char::is_alphanumeric) => {
            let (key, rest) = line.split_once(':')?;
            Some(format!("{key}:{}", rest.replacen(old, value, 1)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(text: &str, grants: &[&str]) -> Result<String, EditError> {
        add_grants(text, "web", &grants.iter().map(|grant| (*grant).to_owned()).collect::<Vec<_>>())
    }

    const NETWORK: &str = "network: [\"a.com\"]";

    #[test]
    fn missing_levels_are_added_and_everything_else_stays() {
        let lines = "components:\n  web:\n    grants:\n      network: [\"a.com\"]\n";
        assert_eq!(add("", &[NETWORK]).unwrap(), lines);
        assert_eq!(add("# mine\n", &[NETWORK]).unwrap(), format!("# mine\n{lines}"));
        assert_eq!(
            add("# mine\nserver:\n  body_limit: 1MiB # small\n", &[NETWORK]).unwrap(),
            format!("# mine\nserver:\n  body_limit: 1MiB # small\n{lines}")
        );
        let text = "components:\n    dice:   # the die\n        warm: {}\n\n# the end\nserver: {}\n";
        assert_eq!(
            add(text, &[NETWORK]).unwrap(),
            "components:\n    dice:   # the die\n        warm: {}\n    web:\n      grants:\n        network: [\"a.com\"]\n\n\
             # the end\nserver: {}\n"
        );
        let text = "components:\n  web:\n    limits: {log: 1}  # why\n  dice: {}\n";
        assert_eq!(
            add(text, &[NETWORK, "memory: read"]).unwrap(),
            "components:\n  web:\n    limits: {log: 1}  # why\n    grants:\n      network: [\"a.com\"]\n      memory: read\n  dice: {}\n"
        );
    }

    #[test]
    fn line_ends_and_a_byte_order_mark_stay() {
        assert_eq!(
            add("\u{feff}# mine\r\nserver: {}\r\n", &[NETWORK]).unwrap(),
            "\u{feff}# mine\r\nserver: {}\r\ncomponents:\r\n  web:\r\n    grants:\r\n      network: [\"a.com\"]\r\n"
        );
        assert_eq!(
            add("components:\r\n  web:\r\n    grants:\r\n      network: [b.com]\r\n", &[NETWORK, "memory: read"])
                .unwrap(),
            "components:\r\n  web:\r\n    grants:\r\n      network: [b.com, \"a.com\"]\r\n      memory: read\r\n"
        );
    }

    #[test]
    fn grants_that_are_there_are_extended() {
        let text = "components:\n  web:\n    grants:\n      network: [b.com]  # ours\n      memory: read # all\n";
        assert_eq!(
            add(text, &[NETWORK, "memory: write", "artifacts: read"]).unwrap(),
            "components:\n  web:\n    grants:\n      network: [b.com, \"a.com\"]  # ours\n      memory: write # all\n      artifacts: read\n"
        );
    }

    #[test]
    fn an_unsupported_layout_is_not_changed() {
        for text in [
            "components: {web: {grants: {memory: read}}}\n",
            "components:\n  web: {}\n",
            "components:\n  web:\n    grants:\n      network:\n        - b.com\n",
            "components:\n  web: &x\n    grants: {}\n",
        ] {
            assert_eq!(add(text, &[NETWORK]), Err(EditError::Layout), "{text}");
        }
        assert!(matches!(add("components: [", &[NETWORK]), Err(EditError::Invalid(_))));
    }
}
