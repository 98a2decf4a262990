//! The events of `tests/fixtures/events.json`, with which the host and the SDKs of all languages are tested.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Map, Value, json};

use crate::bindings::wit::types as wit;
use crate::content::{
    Blob, CodeExecutionResult, Content, ExecutableCode, FileData, FunctionCall, FunctionResponse, JsonMap, Part,
    PartData,
};
use crate::event::{Event, EventActions};

const MICROS: f64 = 1e6;

#[test]
fn the_shared_events_are_unchanged_by_a_round_trip_through_the_contract() {
    let events: JsonMap = serde_json::from_str(include_str!("../../../../../tests/fixtures/events.json")).unwrap();
    for (name, json) in events {
        let event = event_from_json(json.clone());
        let back = Event::try_from(wit::Event::from(event.clone())).unwrap();
        assert_eq!(back, event, "{name}");
        assert_eq!(event_to_json(back), json, "{name}");
    }
}

/// The keys of a JSON object. The keys that are not taken are `extra`.
struct Keys(JsonMap);

impl Keys {
    fn new(json: Value) -> Self {
        let Value::Object(map) = json else { panic!("not an object: {json}") };
        Self(map)
    }

    fn take(&mut self, key: &str) -> Value {
        self.0.shift_remove(key).unwrap_or_default()
    }

    fn object(&mut self, key: &str) -> JsonMap {
        Self::new(self.take(key)).0
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.take(key).as_str().map(Into::into)
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        self.take(key).as_bool()
    }

    fn bytes(&mut self, key: &str) -> Option<Vec<u8>> {
        self.text(key).map(|text| BASE64.decode(text).unwrap())
    }
}

fn event_from_json(json: Value) -> Event {
    let mut keys = Keys::new(json);
    Event {
        id: keys.text("id").unwrap(),
        invocation_id: keys.text("invocationId").unwrap(),
        author: keys.text("author").unwrap(),
        content: Some(keys.take("content")).filter(|json| !json.is_null()).map(content_from_json),
        actions: actions_from_json(keys.take("actions")),
        partial: keys.flag("partial").unwrap_or_default(),
        turn_complete: keys.flag("turnComplete"),
        interrupted: keys.flag("interrupted"),
        branch: keys.text("branch"),
        long_running_tool_ids: serde_json::from_value(keys.take("longRunningToolIds")).unwrap_or_default(),
        error_code: keys.text("errorCode"),
        error_message: keys.text("errorMessage"),
        timestamp_micros: (keys.take("timestamp").as_f64().unwrap() * MICROS).round() as i64,
        extra: keys.0,
    }
}

fn actions_from_json(json: Value) -> EventActions {
    let mut keys = Keys::new(json);
    let artifacts = keys.object("artifactDelta");
    EventActions {
        state_delta: keys.object("stateDelta"),
        artifact_delta: artifacts.into_iter().map(|(name, version)| (name, version.as_u64().unwrap())).collect(),
        deleted_artifact_ids: serde_json::from_value(keys.take("deletedArtifactIds")).unwrap_or_default(),
        skip_summarization: keys.flag("skipSummarization"),
        transfer_to_agent: keys.text("transferToAgent"),
        escalate: keys.flag("escalate"),
        end_of_agent: keys.flag("endOfAgent"),
        end_invocation: keys.flag("endInvocation"),
        extra: keys.0,
    }
}

fn content_from_json(json: Value) -> Content {
    let mut keys = Keys::new(json);
    let Value::Array(parts) = keys.take("parts") else { panic!("no parts") };
    Content { role: keys.text("role"), parts: parts.into_iter().map(part_from_json).collect() }
}

fn part_from_json(json: Value) -> Part {
    let mut keys = Keys::new(json);
    let (thought, thought_signature) = (keys.flag("thought").unwrap_or_default(), keys.bytes("thoughtSignature"));
    let kind = keys.0.keys().find_map(|key| DATA.iter().find(|(name, _)| name == key));
    let data = match kind {
        Some((key, read)) => read(keys.take(key)),
        None => PartData::Other,
    };
    Part { data, thought, thought_signature, extra: keys.0 }
}

/// Reads one kind of data of a part from the value of its key.
type ReadData = fn(Value) -> PartData;

/// The kinds of data of a part, by key.
static DATA: [(&str, ReadData); 7] = [
    ("text", |json| PartData::Text(json.as_str().unwrap().into())),
    ("inlineData", |json| {
        let mut keys = Keys::new(json);
        PartData::InlineData(Blob {
            mime_type: keys.text("mimeType").unwrap_or_default(),
            data: keys.bytes("data").unwrap(),
            display_name: keys.text("displayName"),
        })
    }),
    ("fileData", |json| {
        let mut keys = Keys::new(json);
        let file_uri = keys.text("fileUri").unwrap();
        PartData::FileData(FileData {
            file_uri,
            mime_type: keys.text("mimeType"),
            display_name: keys.text("displayName"),
        })
    }),
    ("functionCall", |json| {
        let mut keys = Keys::new(json);
        let (id, name, args) = (keys.text("id"), keys.text("name").unwrap(), keys.object("args"));
        PartData::FunctionCall(FunctionCall { id, name, args, extra: keys.0 })
    }),
    ("functionResponse", |json| {
        let mut keys = Keys::new(json);
        let (id, name, response) = (keys.text("id"), keys.text("name").unwrap(), keys.object("response"));
        PartData::FunctionResponse(FunctionResponse { id, name, response, extra: keys.0 })
    }),
    ("executableCode", |json| {
        let mut keys = Keys::new(json);
        let (language, code) = (keys.text("language"), keys.text("code").unwrap());
        PartData::ExecutableCode(ExecutableCode { language, code, extra: keys.0 })
    }),
    ("codeExecutionResult", |json| {
        let mut keys = Keys::new(json);
        let (outcome, output) = (keys.text("outcome"), keys.text("output"));
        PartData::CodeExecutionResult(CodeExecutionResult { outcome, output, extra: keys.0 })
    }),
];

fn event_to_json(event: Event) -> Value {
    let fields = json!({
        "id": event.id, "invocationId": event.invocation_id, "author": event.author,
        "actions": actions_to_json(event.actions), "timestamp": event.timestamp_micros as f64 / MICROS,
    });
    let optional = json!({
        "content": event.content.map(content_to_json), "branch": event.branch, "errorCode": event.error_code,
        "errorMessage": event.error_message, "partial": event.partial.then_some(true),
        "turnComplete": event.turn_complete, "interrupted": event.interrupted,
        "longRunningToolIds": Some(event.long_running_tool_ids).filter(|ids| !ids.is_empty()),
    });
    merge([fields, present(optional), event.extra.into()])
}

fn actions_to_json(actions: EventActions) -> Value {
    let artifacts: JsonMap = actions.artifact_delta.into_iter().map(|(name, version)| (name, version.into())).collect();
    let optional = json!({
        "skipSummarization": actions.skip_summarization, "transferToAgent": actions.transfer_to_agent,
        "escalate": actions.escalate, "endOfAgent": actions.end_of_agent, "endInvocation": actions.end_invocation,
        "deletedArtifactIds": Some(actions.deleted_artifact_ids).filter(|ids| !ids.is_empty()),
    });
    let fields = json!({ "stateDelta": actions.state_delta, "artifactDelta": artifacts });
    merge([fields, present(optional), actions.extra.into()])
}

fn content_to_json(content: Content) -> Value {
    let parts: Vec<_> = content.parts.into_iter().map(part_to_json).collect();
    merge([present(json!({ "role": content.role })), json!({ "parts": parts })])
}

fn part_to_json(part: Part) -> Value {
    let data = match part.data {
        PartData::Other => json!({}),
        PartData::Text(text) => json!({ "text": text }),
        PartData::InlineData(Blob { mime_type, data, display_name }) => {
            let mime_type = Some(mime_type).filter(|text| !text.is_empty());
            let data = BASE64.encode(data);
            json!({ "inlineData": present(json!({ "mimeType": mime_type, "data": data, "displayName": display_name })) })
        }
        PartData::FileData(FileData { file_uri, mime_type, display_name }) => {
            let file = json!({ "fileUri": file_uri, "mimeType": mime_type, "displayName": display_name });
            json!({ "fileData": present(file) })
        }
        PartData::FunctionCall(FunctionCall { id, name, args, extra }) => {
            let call = present(json!({ "id": id, "name": name, "args": args }));
            json!({ "functionCall": merge([call, extra.into()]) })
        }
        PartData::FunctionResponse(FunctionResponse { id, name, response, extra }) => {
            let response = present(json!({ "id": id, "name": name, "response": response }));
            json!({ "functionResponse": merge([response, extra.into()]) })
        }
        PartData::ExecutableCode(ExecutableCode { language, code, extra }) => {
            let code = present(json!({ "language": language, "code": code }));
            json!({ "executableCode": merge([code, extra.into()]) })
        }
        PartData::CodeExecutionResult(CodeExecutionResult { outcome, output, extra }) => {
            let result = present(json!({ "outcome": outcome, "output": output }));
            json!({ "codeExecutionResult": merge([result, extra.into()]) })
        }
    };
    let signature = part.thought_signature.map(|bytes| BASE64.encode(bytes));
    let optional = json!({ "thought": part.thought.then_some(true), "thoughtSignature": signature });
    merge([data, present(optional), part.extra.into()])
}

/// Removes absent fields.
fn present(json: Value) -> Value {
    Keys::new(json).0.into_iter().filter(|(_, value)| !value.is_null()).collect::<Map<_, _>>().into()
}

fn merge<const N: usize>(objects: [Value; N]) -> Value {
    objects.into_iter().flat_map(|json| Keys::new(json).0).collect::<Map<_, _>>().into()
}
