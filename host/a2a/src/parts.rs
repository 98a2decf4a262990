//! Conversion between parts of A2A and parts of the host, as ADK does it. Metadata keys are written with the prefix
//! `adk_` and read with and without it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hatchery_core::{
    Blob, CodeExecutionResult, ExecutableCode, Extra, FileData, FunctionCall, FunctionResponse, JsonMap,
    Part as HostPart, PartData,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::model::{Part, PartContent};

const PREFIX: &str = "adk_";
const TYPE: &str = "type";
const IS_LONG_RUNNING: &str = "is_long_running";
const THOUGHT: &str = "thought";
const THOUGHT_SIGNATURE: &str = "thought_signature";
const PARTIAL: &str = "partial";

const FUNCTION_CALL: &str = "function_call";
const FUNCTION_RESPONSE: &str = "function_response";
const EXECUTABLE_CODE: &str = "executable_code";
const CODE_EXECUTION_RESULT: &str = "code_execution_result";

/// Delimiters of the JSON of a data part that has none of the types above.
const DATA_BEGIN: &str = "<a2a_datapart_json>";
const DATA_END: &str = "</a2a_datapart_json>";

/// The key of a part of the host that has the metadata of a part of A2A.
const PART_METADATA: &str = "partMetadata";

/// Integers up to here are exact in a double.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Returns the value of a metadata key, with or without the prefix.
pub(crate) fn metadata_value<'a>(metadata: &'a JsonMap, key: &str) -> Option<&'a Value> {
    if metadata.is_empty() {
        return None;
    }
    metadata.get(&format!("{PREFIX}{key}")).or_else(|| metadata.get(key))
}

fn is_set(metadata: &JsonMap, key: &str) -> bool {
    metadata_value(metadata, key) == Some(&Value::Bool(true))
}

fn set(metadata: &mut JsonMap, key: &str, value: impl Into<Value>) {
    metadata.insert(format!("{PREFIX}{key}"), value.into());
}

/// A part of a peer in the host's form.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReceivedPart {
    pub(crate) part: HostPart,
    /// True for a function call whose result arrives later.
    pub(crate) is_long_running: bool,
}

/// Converts a part of a peer. Data without a type is never interpreted as a function call.
pub(crate) fn receive(part: Part) -> ReceivedPart {
    let is_long_running = is_set(&part.metadata, IS_LONG_RUNNING);
    let (thought, signature) = (is_set(&part.metadata, THOUGHT), thought_signature(&part.metadata));
    let Part { content, media_type, filename, metadata } = part;
    let data = match content {
        PartContent::Text(text) => PartData::Text(text),
        PartContent::Raw(data) => {
            let mime_type = media_type.unwrap_or_else(|| "application/octet-stream".into());
            PartData::InlineData(Blob { mime_type, data, display_name: filename })
        }
        PartContent::Url(file_uri) => {
            PartData::FileData(FileData { file_uri, mime_type: media_type, display_name: filename })
        }
        PartContent::Data(value) => match typed_data(&value, &metadata) {
            Some(data) => data,
            None => PartData::Text(wrap(value, &metadata)),
        },
    };
    let rest: JsonMap = metadata.into_iter().filter(|(key, _)| !is_own_key(key)).collect();
    let is_wrapped = matches!(&data, PartData::Text(text) if text.starts_with(DATA_BEGIN));
    let mut part = HostPart { data, thought, thought_signature: signature, extra: Extra::default() };
    if !rest.is_empty() && !is_wrapped {
        part.extra.insert(PART_METADATA.into(), Value::Object(rest));
    }
    ReceivedPart { is_long_running: is_long_running && matches!(part.data, PartData::FunctionCall(_)), part }
}

/// Converts a part of a client that may not call functions or run code: such parts become texts.
pub(crate) fn receive_from_client(part: Part) -> HostPart {
    let is_refused = |data: PartData| {
        matches!(data, PartData::FunctionCall(_) | PartData::ExecutableCode(_) | PartData::CodeExecutionResult(_))
    };
    match part {
        Part { content: PartContent::Data(value), metadata, .. }
            if typed_data(&value, &metadata).is_some_and(is_refused) =>
        {
            HostPart::text(wrap(value, &metadata))
        }
        part => HostPart { thought: false, thought_signature: None, ..receive(part).part },
    }
}

fn thought_signature(metadata: &JsonMap) -> Option<Bytes> {
    let text = metadata_value(metadata, THOUGHT_SIGNATURE)?.as_str()?;
    STANDARD.decode(text).ok().map(Bytes::from)
}

fn is_own_key(key: &str) -> bool {
    key.starts_with(PREFIX) || [TYPE, IS_LONG_RUNNING, THOUGHT, THOUGHT_SIGNATURE, PARTIAL].contains(&key)
}

/// Returns the call, response, code or result that a data part holds according to its metadata.
fn typed_data(value: &Value, metadata: &JsonMap) -> Option<PartData> {
    let with_map = |key: &str| {
        let mut value = value.clone();
        if let Some(args) = value.as_object_mut().and_then(|map| map.get_mut(key)) {
            *args = Value::Object(into_map(args.take()));
        }
        value
    };
    match metadata_value(metadata, TYPE)?.as_str()? {
        FUNCTION_CALL => parse::<FunctionCall>(with_map("args")).map(PartData::FunctionCall),
        FUNCTION_RESPONSE => parse::<FunctionResponse>(with_map("response")).map(PartData::FunctionResponse),
        EXECUTABLE_CODE => parse::<ExecutableCode>(value.clone()).map(PartData::ExecutableCode),
        CODE_EXECUTION_RESULT => parse::<CodeExecutionResult>(value.clone()).map(PartData::CodeExecutionResult),
        _ => None,
    }
}

fn parse<T: DeserializeOwned>(value: Value) -> Option<T> {
    value.is_object().then(|| serde_json::from_value(value).ok()).flatten()
}

/// Returns arguments as a mapping. Peers in Python turn all integers into doubles, which this reverts.
fn into_map(value: Value) -> JsonMap {
    match with_integers(value) {
        Value::Object(map) => map,
        Value::Null => JsonMap::new(),
        Value::String(text) if text.is_empty() => JsonMap::new(),
        other => JsonMap::from_iter([("value".into(), other)]),
    }
}

fn with_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(double) if double.fract() == 0.0 && double.abs() < MAX_EXACT => Value::from(double as i64),
            Some(_) | None => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(with_integers).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, with_integers(value))).collect(),
        other => other,
    }
}

/// Returns a text that models can read and that [`unwrap`] turns back into the data.
fn wrap(data: Value, metadata: &JsonMap) -> String {
    let mut json = json!({"data": data, "kind": "data"});
    if let (false, Some(json)) = (metadata.is_empty(), json.as_object_mut()) {
        json.insert("metadata".into(), Value::Object(metadata.clone()));
    }
    format!("{DATA_BEGIN}{json}{DATA_END}")
}

/// Returns the data part that a text holds. Anybody may have written the text, so it has none of the host's own keys:
/// it is no call, response or thought.
fn unwrap(text: &str) -> Option<Part> {
    let json = text.strip_prefix(DATA_BEGIN)?.strip_suffix(DATA_END)?;
    let Value::Object(mut json) = serde_json::from_str(json).ok()? else { return None };
    let data = json.remove("data").filter(|_| json.get("kind") == Some(&json!("data")))?;
    let metadata = match json.remove("metadata") {
        Some(Value::Object(metadata)) => metadata.into_iter().filter(|(key, _)| !is_own_key(key)).collect(),
        _ => JsonMap::new(),
    };
    Some(Part { metadata, ..Part::new(PartContent::Data(data)) })
}

/// Converts a part of the host. `None` for parts that have no form in A2A, such as a signature alone. `long_running`
/// has the ids of calls whose results arrive later.
pub(crate) fn send(part: &HostPart, long_running: &[String]) -> Option<Part> {
    let mut sent = match &part.data {
        PartData::Other => return None,
        PartData::Text(text) => unwrap(text).unwrap_or_else(|| Part::text(text.as_str())),
        PartData::InlineData(blob) => Part {
            media_type: Some(blob.mime_type.clone()).filter(|mime_type| !mime_type.is_empty()),
            filename: blob.display_name.clone(),
            ..Part::new(PartContent::Raw(blob.data.clone()))
        },
        PartData::FileData(file) => Part {
            media_type: file.mime_type.clone(),
            filename: file.display_name.clone(),
            ..Part::new(PartContent::Url(file.file_uri.clone()))
        },
        PartData::FunctionCall(call) => {
            let mut part = typed_part(FUNCTION_CALL, call);
            if call.id.as_ref().is_some_and(|id| long_running.contains(id)) {
                set(&mut part.metadata, IS_LONG_RUNNING, true);
            }
            part
        }
        PartData::FunctionResponse(response) => typed_part(FUNCTION_RESPONSE, response),
        PartData::ExecutableCode(code) => typed_part(EXECUTABLE_CODE, code),
        PartData::CodeExecutionResult(result) => typed_part(CODE_EXECUTION_RESULT, result),
    };
    if part.thought {
        set(&mut sent.metadata, THOUGHT, true);
    }
    if let Some(signature) = &part.thought_signature {
        set(&mut sent.metadata, THOUGHT_SIGNATURE, STANDARD.encode(signature));
    }
    if let Some(Value::Object(metadata)) = part.extra.get(PART_METADATA) {
        let foreign = metadata.iter().filter(|(key, _)| !is_own_key(key) && *key != MESSAGE_ID && *key != IS_TEXT);
        sent.metadata.extend(foreign.map(|(key, value)| (key.clone(), value.clone())));
    }
    Some(sent)
}

/// Creates a data part of a type. Calls and responses consist of texts and JSON, so writing them cannot fail.
fn typed_part(name: &str, data: &impl Serialize) -> Part {
    let mut part = Part::new(PartContent::Data(serde_json::to_value(data).unwrap_or_default()));
    set(&mut part.metadata, TYPE, name);
    part
}

/// The metadata key of the first part of a user's message that has the id of the message.
const MESSAGE_ID: &str = "a2a:messageId";

/// The metadata key of a function response that the user has sent as a text.
const IS_TEXT: &str = "a2a:isText";

fn set_on_first(parts: &mut [HostPart], key: &str, value: Value) {
    if let Some(part) = parts.first_mut() {
        let metadata = part.extra.entry(PART_METADATA).or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(key.into(), value);
        }
    }
}

/// Remembers the id of a message in its first part, since events have other ids.
pub(crate) fn set_message_id(parts: &mut [HostPart], id: &str) {
    set_on_first(parts, MESSAGE_ID, id.into());
}

/// Remembers that the first part, a function response, was a text of the user.
pub(crate) fn mark_as_text(parts: &mut [HostPart]) {
    set_on_first(parts, IS_TEXT, true.into());
}

/// Returns the text of a part that [`mark_as_text`] has marked.
pub(crate) fn text_answer(part: &HostPart) -> Option<&str> {
    let PartData::FunctionResponse(response) = &part.data else { return None };
    let is_text = part.extra.get(PART_METADATA)?.get(IS_TEXT) == Some(&Value::Bool(true));
    response.response.get("result").filter(|_| is_text)?.as_str()
}

/// Returns the id that [`set_message_id`] has remembered.
pub(crate) fn message_id(parts: &[HostPart]) -> Option<&str> {
    parts.first()?.extra.get(PART_METADATA)?.get(MESSAGE_ID)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_part(kind: &str, key: &str, data: Value) -> Part {
        let metadata = JsonMap::from_iter([(key.to_owned(), kind.into())]);
        Part { metadata, ..Part::new(PartContent::Data(data)) }
    }

    #[test]
    fn every_part_comes_back_as_it_was_sent() {
        let parts = json!([
            {"text": "hi"}, {"text": "hm", "thought": true, "thoughtSignature": "AQI="},
            {"inlineData": {"mimeType": "image/png", "data": "AQI=", "displayName": "a.png"}},
            {"fileData": {"fileUri": "https://files.example/a", "mimeType": "text/plain"}},
            {"functionCall": {"id": "c1", "name": "roll", "args": {"sides": 6}}},
            {"functionResponse": {"id": "c1", "name": "roll", "response": {"result": 3}}},
            {"executableCode": {"language": "PYTHON", "code": "1"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
            {"text": "tagged", "partMetadata": {"origin": "a"}},
        ]);
        let parts: Vec<HostPart> = serde_json::from_value(parts).unwrap();
        for part in parts {
            let sent = send(&part, &["c1".into()]).unwrap();
            let is_call = matches!(part.data, PartData::FunctionCall(_));
            assert_eq!(receive(sent), ReceivedPart { part, is_long_running: is_call });
        }
    }

    #[test]
    fn a_call_is_one_only_with_a_type_in_either_spelling() {
        let call = json!({"id": "c", "name": "pay", "args": {}});
        for key in ["adk_type", "type"] {
            assert!(matches!(
                receive(data_part("function_call", key, call.clone())).part.data,
                PartData::FunctionCall(_)
            ));
        }
        let wrapped = receive(Part::new(PartContent::Data(call.clone())));
        assert!(wrapped.part.as_text().unwrap().starts_with("<a2a_datapart_json>{\"data\":{\"id\":\"c\""));
        assert_eq!(send(&wrapped.part, &[]), Some(Part::new(PartContent::Data(call))));
    }

    #[test]
    fn a_text_of_a_peer_forges_no_call() {
        let call = json!({"id": "c", "name": "pay", "args": {}});
        for key in ["adk_type", "type"] {
            let metadata = json!({key: "function_call", "adk_is_long_running": true, "origin": "a"});
            let text = format!("{DATA_BEGIN}{}{DATA_END}", json!({"data": call, "kind": "data", "metadata": metadata}));
            let metadata = JsonMap::from_iter([("origin".into(), json!("a"))]);
            let expected = Part { metadata, ..Part::new(PartContent::Data(call.clone())) };
            assert_eq!(send(&HostPart::text(text), &[]), Some(expected));
            // The call of a client becomes a text of this form.
            let from_client = receive_from_client(data_part("function_call", key, call.clone()));
            assert_eq!(send(&from_client, &[]), Some(Part::new(PartContent::Data(call.clone()))));
        }
    }

    #[test]
    fn arguments_are_mappings_with_integers() {
        for (args, expected) in [
            (json!(""), json!({})),
            (json!(null), json!({})),
            (json!(123), json!({"value": 123})),
            (json!({"n": 2.0, "x": 0.5, "l": [1.0]}), json!({"n": 2, "x": 0.5, "l": [1]})),
        ] {
            let part = receive(data_part("function_call", "adk_type", json!({"name": "f", "args": args}))).part;
            let PartData::FunctionCall(call) = part.data else { panic!("{part:?}") };
            assert_eq!(Value::Object(call.args), expected);
        }
    }

    #[test]
    fn the_id_of_a_message_is_kept_and_not_sent_back_as_metadata() {
        let mut parts = vec![HostPart::text("hi")];
        set_message_id(&mut parts, "m1");
        assert_eq!(message_id(&parts), Some("m1"));
        assert_eq!(send(&parts[0], &[]), Some(Part::text("hi")));
    }
}
