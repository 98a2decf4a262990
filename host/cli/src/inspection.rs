//! Warnings about the items of a component, for `hatchery build`, `inspect` and `doctor`.

use hatchery_wasm::Inspection;
use serde_json::Value;

/// Returns a sentence for each tool that no model can call, because its arguments are not an object.
pub fn uncallable_tools(inspection: &Inspection) -> Vec<String> {
    let tools = inspection.tools.iter().filter_map(|tool| check_parameters(&tool.name, tool.parameters.as_ref()));
    tools.collect()
}

/// Returns a sentence if the parameters of a tool are not an object. Models send arguments by name.
pub fn check_parameters(tool: &str, parameters: Option<&Value>) -> Option<String> {
    let kind = parameters?.get("type")?;
    let is_object = |kind: &Value| kind == "object";
    if is_object(kind) || kind.as_array().is_some_and(|kinds| kinds.iter().any(is_object)) {
        return None;
    }
    Some(format!(
        "every call of the tool `{tool}` fails: models send named arguments, but it takes a value of type {kind}; use a struct \
         or an object with one field per argument"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_that_are_no_object_are_a_warning() {
        let answer = check_parameters("count", Some(&json!({"type": "string"}))).unwrap();
        assert!(
            answer.starts_with("every call of the tool `count` fails: ") && answer.contains("type \"string\""),
            "{answer}"
        );
        for fine in [json!({"type": "object"}), json!({"type": ["object", "null"]}), json!({})] {
            assert_eq!(check_parameters("count", Some(&fine)), None);
        }
        assert_eq!(check_parameters("count", None), None);
    }
}
