//! Eval sets in the format of ADK (`<id>.evalset.json`). Keys are written in camelCase, and read in camelCase and
//! snake_case; unknown keys are kept.

use hatchery_core::{Content, Extra, FunctionCall, FunctionResponse, JsonMap, Part, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::EvalError;
use crate::json::from_object;

/// Maximum number of cases of a set.
pub(crate) const MAX_CASES: usize = 1000;

/// Conversations on which an app is evaluated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvalSet {
    /// Identifies the set within its app.
    #[serde(alias = "eval_set_id")]
    pub eval_set_id: String,
    /// A human-readable name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A human-readable description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The cases, in order.
    #[serde(alias = "eval_cases")]
    pub eval_cases: Vec<EvalCase>,
    /// The time of creation.
    #[serde(alias = "creation_timestamp")]
    pub creation_timestamp: Timestamp,
    /// All other keys.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A conversation with the expected responses of the app.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EvalCase {
    /// Identifies the case within its set.
    #[serde(alias = "eval_id")]
    pub eval_id: String,
    /// The turns, in order.
    pub conversation: Vec<InvocationRecord>,
    /// The session in which the conversation begins.
    #[serde(alias = "session_input", skip_serializing_if = "Option::is_none")]
    pub session_input: Option<SessionInput>,
    /// The time of creation.
    #[serde(alias = "creation_timestamp")]
    pub creation_timestamp: Timestamp,
    /// All other keys (`rubrics`, `conversationScenario` …).
    #[serde(flatten)]
    pub extra: Extra,
}

/// The session in which a conversation begins.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SessionInput {
    /// The app from which the case was taken.
    #[serde(alias = "app_name")]
    pub app_name: String,
    /// The user from whom the case was taken.
    #[serde(alias = "user_id")]
    pub user_id: String,
    /// The initial state.
    pub state: JsonMap,
}

/// One turn of a conversation, expected or observed. ADK calls it an invocation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct InvocationRecord {
    /// The id of the run.
    #[serde(alias = "invocation_id")]
    pub invocation_id: String,
    /// The user's message.
    #[serde(alias = "user_content")]
    pub user_content: Content,
    /// The response that ends the turn.
    #[serde(alias = "final_response", skip_serializing_if = "Option::is_none")]
    pub final_response: Option<Content>,
    /// Tool calls and other texts on the way to the response.
    #[serde(alias = "intermediate_data", skip_serializing_if = "Option::is_none")]
    pub intermediate_data: Option<IntermediateData>,
    /// The time of the user's message.
    #[serde(alias = "creation_timestamp")]
    pub creation_timestamp: Timestamp,
    /// All other keys (`rubrics`, `appDetails` …).
    #[serde(flatten)]
    pub extra: Extra,
}

/// Calls, responses and texts between a message and the final response. Files have them as lists or as events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IntermediateData {
    /// The tool calls, in order.
    #[serde(alias = "tool_uses")]
    pub tool_uses: Vec<FunctionCall>,
    #[serde(alias = "tool_responses")]
    pub tool_responses: Vec<FunctionResponse>,
    /// Texts before the final one, with the names of their agents.
    #[serde(alias = "intermediate_responses")]
    pub intermediate_responses: Vec<(String, Vec<Part>)>,
    /// The same as events, in files of newer versions of ADK.
    #[serde(alias = "invocation_events", skip_serializing_if = "Vec::is_empty")]
    pub invocation_events: Vec<InvocationEvent>,
}

/// A message of an agent on the way to the final response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InvocationEvent {
    /// The name of the agent.
    pub author: String,
    /// The message of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
}

impl EvalSet {
    /// Creates a set without cases.
    pub fn new(id: impl Into<String>) -> Self {
        Self { eval_set_id: id.into(), creation_timestamp: Timestamp::now(), ..Self::default() }
    }

    /// Parses the content of a file. `source` is named in errors.
    ///
    /// # Errors
    /// [`EvalError::InvalidFile`] if it is no eval set.
    pub fn from_json(json: &[u8], source: &str) -> Result<Self, EvalError> {
        let value = serde_json::from_slice(json).map_err(|error| EvalError::invalid_file(source, error))?;
        Self::from_value(value, source)
    }

    /// Converts parsed JSON. `source` is named in errors.
    ///
    /// # Errors
    /// [`EvalError::InvalidFile`] if it is no eval set.
    pub fn from_value(value: Value, source: &str) -> Result<Self, EvalError> {
        let set: Self = from_object(value).map_err(|reason| EvalError::invalid_file(source, reason))?;
        set.check().map_err(|reason| EvalError::invalid_file(source, reason))?;
        Ok(set)
    }

    /// Checks the number of cases, and that their ids are present and unique.
    fn check(&self) -> Result<(), String> {
        if self.eval_cases.len() > MAX_CASES {
            return Err(format!("a set has at most {MAX_CASES} cases; make several sets"));
        }
        for (index, case) in self.eval_cases.iter().enumerate() {
            if case.eval_id.trim().is_empty() {
                return Err(format!("case {index} has no `evalId`"));
            }
            if self.eval_cases.iter().take(index).any(|earlier| earlier.eval_id == case.eval_id) {
                return Err(format!("two cases have the id `{}`", case.eval_id.escape_debug()));
            }
        }
        Ok(())
    }

    /// Returns the case with this id.
    pub fn case(&self, id: &str) -> Option<&EvalCase> {
        self.eval_cases.iter().find(|case| case.eval_id == id)
    }
}

impl EvalCase {
    /// Converts parsed JSON.
    ///
    /// # Errors
    /// [`EvalError::InvalidFile`] if it is no case.
    pub fn from_value(value: Value) -> Result<Self, EvalError> {
        from_object(value).map_err(|reason| EvalError::invalid_file("the eval case", reason))
    }
}

impl InvocationRecord {
    /// Returns the tool calls, in order.
    pub fn tool_calls(&self) -> Vec<&FunctionCall> {
        let Some(data) = &self.intermediate_data else { return Vec::new() };
        if !data.tool_uses.is_empty() {
            return data.tool_uses.iter().collect();
        }
        let contents = data.invocation_events.iter().filter_map(|event| event.content.as_ref());
        contents.flat_map(Content::function_calls).collect()
    }

    /// Returns the text of the final response, without thoughts. `None` if there is no response.
    pub fn response_text(&self) -> Option<String> {
        self.final_response.as_ref().map(Content::text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(json: Value) -> Result<EvalSet, String> {
        EvalSet::from_value(json, "a.evalset.json").map_err(|error| error.to_string())
    }

    #[test]
    fn both_spellings_and_nulls_are_read() {
        let snake = json!({
            "eval_set_id": "s", "name": null, "creation_timestamp": 12.5,
            "eval_cases": [{
                "eval_id": "c",
                "conversation": [{
                    "invocation_id": "i", "user_content": {"parts": [{"text": "Hi", "thought": null}], "role": "user"},
                    "final_response": {"parts": null, "role": "model"},
                    "intermediate_data": {
                        "tool_uses": [{"id": null, "name": "roll", "args": {"sides": 6}}], "tool_responses": [],
                        "intermediate_responses": [["dice", [{"text": "Let me see."}]]],
                    },
                }],
                "session_input": {"app_name": "dice", "user_id": "ada", "state": {"x": null}},
            }],
        });
        let set = parse(snake).unwrap();
        let camel = serde_json::to_value(&set).unwrap();
        assert_eq!(camel["evalCases"][0]["conversation"][0]["intermediateData"]["toolUses"][0]["name"], "roll");
        assert_eq!(parse(camel).unwrap(), set);
        let case = set.case("c").unwrap();
        assert_eq!(case.session_input.as_ref().unwrap().state["x"], Value::Null);
        assert_eq!(case.conversation[0].tool_calls()[0].args["sides"], 6);
        assert_eq!(case.conversation[0].response_text().as_deref(), Some(""));
    }

    #[test]
    fn tool_calls_of_events_are_read() {
        let record: InvocationRecord = serde_json::from_value(json!({
            "intermediateData": {"invocationEvents": [
                {"author": "dice", "content": {"parts": [{"function_call": {"name": "roll", "args": {}}}]}},
            ]},
        }))
        .unwrap();
        assert_eq!(record.tool_calls()[0].name, "roll");
    }

    #[test]
    fn unknown_keys_are_kept() {
        let json = json!({"evalSetId": "s", "evalCases": [{"evalId": "c", "rubrics": [{"rubricId": "r"}]}]});
        let written = serde_json::to_value(parse(json).unwrap()).unwrap();
        assert_eq!(written["evalCases"][0]["rubrics"], json!([{"rubricId": "r"}]));
    }

    #[test]
    fn what_is_no_eval_set_is_an_error_that_names_the_file() {
        let error = EvalSet::from_json(b"[", "a.evalset.json").unwrap_err().to_string();
        assert!(error.starts_with("a.evalset.json is not an eval set: EOF"), "{error}");
        let without_id = parse(json!({"evalCases": [{"conversation": []}]})).unwrap_err();
        assert_eq!(without_id, "a.evalset.json is not an eval set: case 0 has no `evalId`");
        let shapes = [
            (json!([]), "it must be a JSON object"),
            (json!({"eval_cases": {}}), "eval_cases: invalid type: mapping, expected a list"),
            (json!({"evalCases": ["a"]}), "evalCases[0]: invalid type: string \"a\", expected an object"),
            (
                json!({"evalCases": [{"evalId": "a", "conversation": [{"userContent": "hi"}]}]}),
                "evalCases[0].conversation[0].userContent: invalid type: string \"hi\", expected an object",
            ),
        ];
        for (json, reason) in shapes {
            assert_eq!(parse(json).unwrap_err(), format!("a.evalset.json is not an eval set: {reason}"));
        }
        let twice = parse(json!({"evalCases": [{"evalId": "a"}, {"evalId": "a"}]})).unwrap_err();
        assert_eq!(twice, "a.evalset.json is not an eval set: two cases have the id `a`");
        let cases: Vec<_> = (0..=MAX_CASES).map(|number| json!({"evalId": number.to_string()})).collect();
        let many = parse(json!({"evalCases": cases})).unwrap_err();
        assert_eq!(many, "a.evalset.json is not an eval set: a set has at most 1000 cases; make several sets");
    }
}
