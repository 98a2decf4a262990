//! `llm_request`: a request to a model.

use std::sync::Arc;

use hatchery_core::{Content, FunctionDeclaration, JsonMap, LlmRequest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{from_yaml_value, to_yaml_value};
use crate::key_case::{camel_case, map_to_camel_case};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RequestYaml {
    model: Option<String>,
    contents: Vec<Value>,
    config: JsonMap,
}

/// Returns a request in the format of recordings.
pub(crate) fn request_to_value(request: &LlmRequest) -> Value {
    // Cannot fail: the value consists of strings, numbers and maps with string keys.
    serde_json::to_value(RequestYaml::from(request)).unwrap_or_default()
}

impl From<&LlmRequest> for RequestYaml {
    fn from(request: &LlmRequest) -> Self {
        let mut config = match to_yaml_value(&request.config) {
            Value::Object(config) => config,
            _ => JsonMap::new(),
        };
        if let Some(schema) = config.remove("response_schema") {
            config.insert("response_json_schema".into(), schema);
        }
        if !request.system_instructions.is_empty() {
            config.insert("system_instruction".into(), request.system_instructions.join("\n\n").into());
        }
        let mut tools: Vec<_> = request.model_tools.iter().map(to_yaml_value).collect();
        if !request.tools.is_empty() {
            let declarations: Vec<_> = request.tools.iter().map(|tool| declaration_to_value(tool)).collect();
            tools.insert(0, json!({ "function_declarations": declarations }));
        }
        if !tools.is_empty() {
            config.insert("tools".into(), tools.into());
        }
        let contents = request.contents.iter().map(|content| to_yaml_value(content.as_ref())).collect();
        Self { model: Some(request.model.clone()), contents, config }
    }
}

impl TryFrom<RequestYaml> for LlmRequest {
    type Error = String;

    fn try_from(yaml: RequestYaml) -> Result<Self, String> {
        let RequestYaml { model, contents, mut config } = yaml;
        let instruction = config.remove("system_instruction").map(parse_instruction).transpose()?.flatten();
        let Tools { functions, model_tools } = parse_tools(config.remove("tools"))?;
        let schema = config.remove("response_json_schema").or(config.remove("response_schema").map(to_json_schema));
        if let Some(schema) = schema {
            config.insert("response_schema".into(), schema);
        }
        let contents = contents.into_iter().map(|content| from_yaml_value(content, "contents").map(Arc::new));
        Ok(Self {
            model: model.unwrap_or_default(),
            contents: contents.collect::<Result<_, String>>()?,
            system_instructions: instruction.into_iter().collect(),
            tools: functions,
            model_tools,
            config: from_yaml_value(Value::Object(config), "config")?,
            ..Self::default()
        })
    }
}

fn declaration_to_value(tool: &FunctionDeclaration) -> Value {
    let mut json = JsonMap::from_iter([("name".to_owned(), tool.name.clone().into())]);
    if !tool.description.is_empty() {
        json.insert("description".into(), tool.description.clone().into());
    }
    json.extend(tool.parameters.clone().map(|schema| ("parameters_json_schema".to_owned(), schema)));
    json.extend(tool.response.clone().map(|schema| ("response_json_schema".to_owned(), schema)));
    json.into()
}

/// Parses a system instruction, which is a string, a content, or a list of them.
fn parse_instruction(yaml: Value) -> Result<Option<String>, String> {
    let texts = match yaml {
        Value::Null => return Ok(None),
        Value::String(text) => return Ok(Some(text)),
        Value::Array(items) => items.into_iter().map(parse_instruction).collect::<Result<Vec<_>, _>>()?,
        part @ Value::Object(_) if part.get("text").is_some() => {
            return Ok(part.get("text").and_then(Value::as_str).map(Into::into));
        }
        content => {
            let content: Content = from_yaml_value(content, "system_instruction")?;
            content.parts.iter().map(|part| part.as_text().map(Into::into)).collect()
        }
    };
    let texts: Vec<_> = texts.into_iter().flatten().collect();
    Ok((!texts.is_empty()).then(|| texts.join("\n\n")))
}

#[derive(Default)]
struct Tools {
    functions: Vec<Arc<FunctionDeclaration>>,
    /// Tools that the model runs itself, such as web search.
    model_tools: Vec<Value>,
}

fn parse_tools(yaml: Option<Value>) -> Result<Tools, String> {
    let mut parsed = Tools::default();
    let Some(Value::Array(tools)) = yaml else { return Ok(parsed) };
    for tool in tools {
        let Value::Object(mut tool) = tool else { continue };
        if let Some(Value::Array(declarations)) = tool.remove("function_declarations") {
            let functions = declarations.into_iter().map(parse_declaration);
            parsed.functions.extend(functions.collect::<Result<Vec<_>, _>>()?);
        }
        let tool = map_to_camel_case(tool);
        if !tool.is_empty() {
            parsed.model_tools.push(tool.into());
        }
    }
    Ok(parsed)
}

fn parse_declaration(yaml: Value) -> Result<Arc<FunctionDeclaration>, String> {
    let Value::Object(mut yaml) = yaml else { return Err("function_declarations: expected a mapping".into()) };
    let mut take_schema = |key: &str| {
        let json_schema = yaml.remove(&format!("{key}_json_schema")).filter(|schema| !schema.is_null());
        let adk_schema = yaml.remove(key).filter(|schema| !schema.is_null());
        json_schema.or(adk_schema.map(to_json_schema))
    };
    let (parameters, response) = (take_schema("parameters"), take_schema("response"));
    let declaration: FunctionDeclaration = from_yaml_value(yaml.into(), "function_declarations")?;
    Ok(Arc::new(FunctionDeclaration { parameters, response, ..declaration }))
}

/// Converts a schema of ADK to JSON Schema: types in lower case, keys in camel case. Names of properties are unchanged.
fn to_json_schema(schema: Value) -> Value {
    match schema {
        Value::Array(items) => items.into_iter().map(to_json_schema).collect(),
        Value::Object(map) => {
            let entries = map.into_iter().filter(|(_, value)| !value.is_null());
            let converted = entries.map(|(key, value)| {
                let key = camel_case(&key);
                let value = match (key.as_str(), value) {
                    ("type", Value::String(name)) => name.to_lowercase().into(),
                    ("properties", Value::Object(properties)) => {
                        properties.into_iter().map(|(name, schema)| (name, to_json_schema(schema))).collect()
                    }
                    ("items" | "anyOf" | "additionalProperties", value) => to_json_schema(value),
                    (_, value) => value,
                };
                (key, value)
            });
            converted.collect()
        }
        other => other,
    }
}
