//! Tools of the fixture that ask the client for input.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Content, FunctionDeclaration, GenerateContentConfig, InputRequest, JsonMap, LlmRequest, Tool,
    ToolError,
};
use serde_json::{Value, json};

use super::declare;

/// The requests of one round, with their keys.
type Round = Vec<(&'static str, InputRequest)>;

/// Returns the rounds of a call with these arguments.
type Rounds = fn(&JsonMap) -> Vec<Round>;

/// Asks for input in rounds, and returns the responses.
struct AskingTool {
    declaration: Arc<FunctionDeclaration>,
    /// Returns the rounds for the arguments of a call.
    rounds: Rounds,
    /// Whether requests that the client does not support are omitted.
    is_adaptive: bool,
}

#[async_trait]
impl Tool for AskingTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let mut responses = Vec::new();
        for round in (self.rounds)(&args) {
            let is_sent = |request: &InputRequest| !self.is_adaptive || cx.can_request_input(request.kind());
            let requests = round.into_iter().filter(|(_, request)| is_sent(request));
            let requests: BTreeMap<_, _> = requests.map(|(key, request)| (key.to_owned(), request)).collect();
            responses.push(format!("{:?}", cx.request_input(requests).await?));
        }
        Ok(responses.join("\n").into())
    }
}

fn form(message: &str, properties: Value, required: &[&str]) -> InputRequest {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    InputRequest::Form { message: message.into(), schema }
}

fn message(prompt: &str, max_tokens: u64) -> InputRequest {
    InputRequest::Message(Box::new(LlmRequest {
        contents: [Arc::new(Content::user(prompt))].into_iter().collect(),
        config: GenerateContentConfig { max_output_tokens: Some(max_tokens), ..GenerateContentConfig::default() },
        ..LlmRequest::default()
    }))
}

fn name() -> InputRequest {
    form("What is your name?", json!({"name": {"type": "string"}}), &["name"])
}

fn consent() -> InputRequest {
    form("Please confirm", json!({"ok": {"type": "boolean"}}), &["ok"])
}

fn argument(args: &JsonMap, name: &str) -> String {
    args.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn defaults() -> InputRequest {
    let properties = json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true}
    });
    form("Please check these values", properties, &[])
}

fn enums() -> InputRequest {
    let titled = json!([
        {"const": "value1", "title": "First Option"},
        {"const": "value2", "title": "Second Option"},
        {"const": "value3", "title": "Third Option"}
    ]);
    let plain = json!(["option1", "option2", "option3"]);
    let properties = json!({
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string", "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}}
    });
    form("Please choose", properties, &[])
}

fn user_fields(args: &JsonMap) -> Vec<Round> {
    let properties = json!({
        "username": {"type": "string", "description": "The name of the user."},
        "email": {"type": "string", "description": "The address of the user."}
    });
    vec![vec![("user", form(&argument(args, "message"), properties, &["username", "email"]))]]
}

fn all_kinds(_: &JsonMap) -> Vec<Round> {
    let greeting = message("Generate a greeting", 50);
    vec![vec![("user_name", name()), ("greeting", greeting), ("client_roots", InputRequest::Roots)]]
}

fn two_rounds(_: &JsonMap) -> Vec<Round> {
    let first = form("Step 1: What is your name?", json!({"name": {"type": "string"}}), &["name"]);
    let second = form("Step 2: What is your favorite color?", json!({"color": {"type": "string"}}), &["color"]);
    vec![vec![("step1", first)], vec![("step2", second)]]
}

pub fn tools() -> Vec<(String, Arc<dyn Tool>)> {
    let texts = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]});
    let none = json!({"type": "object"});
    let capital = |_: &JsonMap| vec![vec![("capital_question", message("What is the capital of France?", 100))]];
    let tools: [(&str, &Value, Rounds); 14] = [
        ("test_sampling", &texts("prompt"), |args| vec![vec![("message", message(&argument(args, "prompt"), 100))]]),
        ("test_elicitation", &texts("message"), user_fields),
        ("test_elicitation_sep1034_defaults", &none, |_| vec![vec![("values", defaults())]]),
        ("test_elicitation_sep1330_enums", &none, |_| vec![vec![("values", enums())]]),
        ("test_input_required_result_elicitation", &none, |_| vec![vec![("user_name", name())]]),
        ("test_input_required_result_sampling", &none, capital),
        ("test_input_required_result_list_roots", &none, |_| vec![vec![("client_roots", InputRequest::Roots)]]),
        ("test_input_required_result_request_state", &none, |_| vec![vec![("confirm", consent())]]),
        ("test_input_required_result_tampered_state", &none, |_| vec![vec![("confirm", consent())]]),
        ("test_input_required_result_multiple_inputs", &none, all_kinds),
        ("test_input_required_result_multi_round", &none, two_rounds),
        ("test_input_required_result_capabilities", &none, all_kinds),
        ("test_streaming_elicitation", &none, |_| vec![vec![("user_name", name())]]),
        ("test_missing_capability", &none, capital),
    ];
    let tool = |(name, schema, rounds): (&str, &Value, _)| {
        let is_adaptive = name == "test_input_required_result_capabilities";
        let tool = AskingTool { declaration: declare(name, schema.clone()), rounds, is_adaptive };
        (name.to_owned(), Arc::new(tool) as Arc<dyn Tool>)
    };
    tools.into_iter().map(tool).collect()
}
