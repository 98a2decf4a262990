//! The difference between two revisions of a component: items, grants and interfaces that were added, removed or
//! changed.

use std::collections::BTreeMap;

use hatchery_wasm::Inspection;
use serde::Serialize;
use serde_json::Value;

/// The differences between two revisions of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    pub from: RevisionSummary,
    pub to: RevisionSummary,
    /// Sorted by kind and name.
    pub changes: Vec<Change>,
}

/// A revision of a component.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionSummary {
    pub sha256: String,
    /// Bytes.
    pub size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contract: Option<String>,
}

/// A difference between two revisions.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// Such as `tool`, `agent`, `grant` or `import`.
    pub kind: &'static str,
    pub name: String,
    /// The keys whose values differ. Empty if the item was added or removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// `None` if it was added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Value>,
    /// `None` if it was removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Value>,
}

/// The lists of an inspection that are compared, with the kind of their items.
const LISTS: [(&str, &str); 11] = [
    ("agents", "agent"),
    ("tools", "tool"),
    ("toolsets", "toolset"),
    ("callbacks", "callback"),
    ("plugins", "plugin"),
    ("codeExecutors", "code executor"),
    ("summarizers", "summarizer"),
    ("examples", "examples"),
    ("models", "model"),
    ("imports", "import"),
    ("exports", "export"),
];

impl Comparison {
    /// Compares two revisions.
    pub fn between(from: &Inspection, to: &Inspection) -> Self {
        let [before, after] = [from, to].map(|inspection| serde_json::to_value(inspection).unwrap_or_default());
        Self { from: summary(from), to: summary(to), changes: changes(&before, &after) }
    }
}

fn summary(inspection: &Inspection) -> RevisionSummary {
    RevisionSummary { sha256: inspection.sha256.clone(), size: inspection.size, contract: inspection.contract.clone() }
}

fn changes(before: &Value, after: &Value) -> Vec<Change> {
    let lists = LISTS.iter().flat_map(|(list, kind)| {
        let [before, after] = [before, after].map(|inspection| by_name(inspection.get(*list)));
        compare(kind, before, after)
    });
    let requested = |inspection: &Value| -> BTreeMap<String, Value> {
        let entries = inspection.pointer("/grants/requested").and_then(Value::as_object);
        entries.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    lists.chain(compare("grant", requested(before), requested(after))).collect()
}

/// Returns the items of a list by name. A string is its own name.
fn by_name(list: Option<&Value>) -> BTreeMap<String, Value> {
    let named = |item: &Value| {
        Some((item.as_str().or_else(|| item.get("name").and_then(Value::as_str))?.to_owned(), item.clone()))
    };
    list.and_then(Value::as_array).into_iter().flatten().filter_map(named).collect()
}

fn compare(kind: &'static str, mut before: BTreeMap<String, Value>, after: BTreeMap<String, Value>) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, to) in after {
        let from = before.remove(&name);
        if from.as_ref() != Some(&to) {
            let keys = from.as_ref().map(|from| different_keys(from, &to)).unwrap_or_default();
            changes.push(Change { kind, name, keys, from, to: Some(to) });
        }
    }
    let removed =
        before.into_iter().map(|(name, from)| Change { kind, name, keys: vec![], from: Some(from), to: None });
    changes.extend(removed);
    changes.sort_by(|one, other| one.name.cmp(&other.name));
    changes
}

fn different_keys(from: &Value, to: &Value) -> Vec<String> {
    let (Some(from), Some(to)) = (from.as_object(), to.as_object()) else { return Vec::new() };
    let mut keys: Vec<_> = from.keys().chain(to.keys()).filter(|key| from.get(*key) != to.get(*key)).cloned().collect();
    keys.sort();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn added_removed_and_changed_items_are_found_by_kind_and_name() {
        let before = json!({
            "tools": [{"name": "look_up", "description": "Finds."}, {"name": "refund", "description": "Pays back."}],
            "models": ["component:desk/rules"],
            "imports": ["wasi:io"],
            "grants": {"requested": {"models": ["gpt-*"]}},
        });
        let after = json!({
            "tools": [{"name": "look_up", "description": "Finds orders.", "parameters": {}}, {"name": "send"}],
            "models": ["component:desk/rules"],
            "imports": ["wasi:io"],
            "grants": {"requested": {"models": ["gpt-*", "gemini-*"], "memory": ["read"]}},
        });
        let found: Vec<_> = changes(&before, &after)
            .into_iter()
            .map(|change| (change.kind, change.name, change.keys.join(","), change.from.is_some(), change.to.is_some()))
            .collect();
        let expected = [
            ("tool", "look_up", "description,parameters", true, true),
            ("tool", "refund", "", true, false),
            ("tool", "send", "", false, true),
            ("grant", "memory", "", false, true),
            ("grant", "models", "", true, true),
        ];
        assert_eq!(
            found,
            expected.map(|(kind, name, keys, from, to)| (kind, name.to_owned(), keys.to_owned(), from, to))
        );
        assert_eq!(changes(&before, &before), []);
    }
}
