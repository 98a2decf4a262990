//! The descriptions of the JSON Schema, which are read from `docs/configuration.md`.

use std::collections::BTreeMap;

use serde_json::Value;

const REFERENCE: &str = include_str!("../../../../docs/configuration.md");

/// Keys that are described as keys of another section, with the same meaning.
const SAME_KEYS: [(&str, &str); 2] = [("app_defaults.", "apps.NAME."), ("components.NAME.limits.", "limits.")];

/// Adds the description of each key to the schema of the file.
pub(super) fn describe(schema: &mut Value) {
    let descriptions = descriptions();
    walk(schema, "", &mut |path, schema| {
        if let (Some(text), Some(schema)) = (find(&descriptions, path), schema.as_object_mut()) {
            schema.insert("description".into(), text.clone().into());
        }
    });
}

/// Returns the descriptions by the paths of the keys. A path has `NAME` for each name that the author of a file
/// chooses.
fn descriptions() -> BTreeMap<String, String> {
    let rows = REFERENCE.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
        let (key, meaning, default) = (cells.next()?.strip_suffix('`')?, cells.next()?, cells.next()?);
        let text = match default.trim() {
            "required" => format!("{meaning} Required."),
            "none" | "" => meaning.to_owned(),
            default => format!("{meaning} Default: {default}."),
        };
        Some((key.to_owned(), text))
    });
    rows.collect()
}

fn find<'a>(descriptions: &'a BTreeMap<String, String>, path: &str) -> Option<&'a String> {
    descriptions.get(path).or_else(|| {
        let (prefix, other) = SAME_KEYS.into_iter().find(|(prefix, _)| path.starts_with(prefix))?;
        descriptions.get(&format!("{other}{}", path.get(prefix.len()..)?))
    })
}

/// Calls `visit` with each key of a schema and those inside of it.
fn walk(schema: &mut Value, path: &str, visit: &mut impl FnMut(&str, &mut Value)) {
    let Some(schema) = schema.as_object_mut() else { return };
    for (name, value) in schema {
        match (name.as_str(), value) {
            ("properties", Value::Object(properties)) => {
                for (key, value) in properties {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    visit(&path, value);
                    walk(value, &path, visit);
                }
            }
            ("additionalProperties", value) => walk(value, &format!("{path}.NAME"), visit),
            ("items", value) => walk(value, path, visit),
            ("anyOf" | "oneOf", Value::Array(values)) => values.iter_mut().for_each(|value| walk(value, path, visit)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_guide_and_the_schema_have_the_same_keys() {
        let descriptions = descriptions();
        let mut keys = Vec::new();
        // Keys whose values a type parses itself, so that the schema has no type for them.
        let mut opaque = Vec::new();
        walk(&mut Config::json_schema(), "", &mut |path, schema| {
            keys.push(path.to_owned());
            if schema.get("type").is_none() {
                opaque.push(format!("{path}."));
            }
            assert!(schema.get("description").is_some(), "docs/configuration.md has no row for `{path}`");
        });
        let is_opaque = |key: &str| opaque.iter().any(|prefix| key.starts_with(prefix));
        let unknown: Vec<_> = descriptions.keys().filter(|key| !keys.contains(key) && !is_opaque(key)).collect();
        assert!(unknown.is_empty(), "docs/configuration.md has rows for keys that do not exist: {unknown:?}");
    }

    #[test]
    fn the_examples_of_the_guide_are_valid() {
        let mut examples = REFERENCE.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).peekable();
        assert!(examples.peek().is_some());
        for (example, _) in examples {
            Config::parse(example, Path::new("hatchery.yaml")).unwrap_or_else(|error| panic!("{error}\n{example}"));
        }
    }
}
