//! Tools that run inside a model, in the formats of the providers. The grant `tools` lists them by name: `url_context`
//! for `{"urlContext": {}}`, `web_search` for `{"type": "web_search"}`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use hatchery_core::ItemKind;
use serde_json::Value;

use super::{Denial, Grants, Permission};

/// The key with the name of a tool, in the formats of OpenAI and Anthropic.
const TYPE: &str = "type";

/// Runs code of the model, which has no effect outside of the run.
const CODE_EXECUTION: &str = "code_execution";

/// Keys of Gemini's format. They name a tool in addition to `type`.
const GEMINI_KEYS: [&str; 9] = [
    "computer_use",
    "enterprise_web_search",
    "file_search",
    "google_maps",
    "google_search",
    "google_search_retrieval",
    "mcp_servers",
    "retrieval",
    "url_context",
];

impl Grants {
    /// Checks that these grants of `component` include the tools of a model request. Those that are also in `given`
    /// need no grant.
    ///
    /// # Errors
    /// Returns the first refusal.
    pub(crate) fn check_model_tools(
        &self,
        component: &Arc<str>,
        tools: &[Value],
        given: &[Value],
    ) -> Result<(), Denial> {
        let given: HashSet<String> = given.iter().map(canonical).collect();
        let added = tools.iter().filter(|tool| !given.contains(&canonical(tool)));
        added.flat_map(names).try_for_each(|name| match name.as_str() {
            CODE_EXECUTION => Ok(()),
            name => self.check(component, Permission::Item(ItemKind::Tool, name)),
        })
    }
}

/// Returns the names of the tools in one entry of a request.
fn names(entry: &Value) -> Vec<String> {
    let Value::Object(entry) = entry else { return vec![entry.to_string()] };
    let mut names = Vec::new();
    for (key, value) in entry {
        match (snake_case(key), value) {
            (key, value) if key == TYPE => names.push(value.as_str().map_or_else(|| value.to_string(), Into::into)),
            (key, _) if entry.contains_key(TYPE) && !GEMINI_KEYS.contains(&key.as_str()) => {}
            (key, Value::Object(sources)) if key == "retrieval" && !sources.is_empty() => {
                names.extend(sources.keys().map(|source| grant_name(snake_case(source))));
            }
            (key, _) => names.push(grant_name(key)),
        }
    }
    names
}

/// Returns the name of the tool that agents use for a key of Gemini's format.
fn grant_name(key: String) -> String {
    match key.as_str() {
        "google_maps" => "google_maps_grounding".into(),
        "vertex_rag_store" => "vertex_ai_rag_retrieval".into(),
        _ => key,
    }
}

/// Converts `urlContext` to `url_context`. Gemini accepts both.
fn snake_case(key: &str) -> String {
    let mut converted = String::with_capacity(key.len());
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            converted.push('_');
        }
        converted.push(letter.to_ascii_lowercase());
    }
    converted
}

/// Returns JSON that is the same for equal values. Languages differ in the order of keys and in the notation of
/// numbers.
fn canonical(value: &Value) -> String {
    match value {
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Object(map) => {
            let entries: BTreeMap<_, _> = map.iter().map(|(key, value)| (key, canonical(value))).collect();
            format!("{entries:?}")
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(granted: &[&str], tools: Value, given: Value) -> Result<(), String> {
        let grants: Grants = serde_json::from_value(json!({ "tools": granted })).unwrap();
        let (tools, given) = (tools.as_array().unwrap(), given.as_array().unwrap());
        grants.check_model_tools(&"made".into(), tools, given).map_err(|denial| denial.to_string())
    }

    #[test]
    fn each_tool_needs_a_grant_for_its_name() {
        let cases = [
            (json!({"googleSearch": {}}), "google_search"),
            (json!({"enterpriseWebSearch": {}}), "enterprise_web_search"),
            (json!({"url_context": {}}), "url_context"),
            (json!({"googleMaps": {}}), "google_maps_grounding"),
            (json!({"retrieval": {"vertexAiSearch": {"datastore": "d"}}}), "vertex_ai_search"),
            (json!({"retrieval": {"vertexRagStore": {}}}), "vertex_ai_rag_retrieval"),
            (json!({"type": "web_search", "filters": {}}), "web_search"),
            (json!({"codeExecution": {}, "urlContext": {}}), "url_context"),
            (json!({"urlContext": {}, "type": "code_execution"}), "url_context"),
            (json!("x"), "\"x\""),
        ];
        for (tool, name) in cases {
            let denied = check(&[], json!([tool]), json!([])).unwrap_err();
            assert_eq!(denied, format!("component `made` may not use the tool `{name}`"));
            check(&[name], json!([tool]), json!([])).unwrap();
        }
        check(&[], json!([{"codeExecution": {}}]), json!([])).unwrap();
    }

    #[test]
    fn a_tool_that_the_request_had_before_needs_no_grant() {
        let before = json!([{"retrieval": {"vertexRagStore": {"similarityTopK": 3, "vectorDistanceThreshold": 1.0}}}]);
        let same = json!([{"retrieval": {"vertexRagStore": {"vectorDistanceThreshold": 1, "similarityTopK": 3}}}]);
        check(&[], same, before.clone()).unwrap();
        let other = json!([{"retrieval": {"vertexRagStore": {"vectorDistanceThreshold": 2, "similarityTopK": 3}}}]);
        check(&[], other, before).unwrap_err();
    }
}
