//! Validation of user messages from clients, before they are stored or sent to a model.
//!
//! A message stays in its session and is sent to the model in every later turn. A message that models reject would make
//! all of them fail.

use serde::Deserialize;
use serde_json::Value;

use crate::content::{Blob, Content, FileData, FunctionResponse, Part, PartData, PartJson};
use crate::error::RunError;
use crate::event::USER_AUTHOR;
use crate::extra::Extra;
use crate::json::JsonMap;
use crate::storable::{MAX_JSON_DEPTH, is_json_too_deep};
use crate::text::excerpt;

/// Keys of a part, except its data, that models accept from users.
const PART_KEYS: [&str; 6] =
    ["videoMetadata", "video_metadata", "mediaResolution", "media_resolution", "partMetadata", "part_metadata"];

/// Keys of a function response, except `id`, `name` and `response`, that models accept from users.
const RESPONSE_KEYS: [&str; 4] = ["willContinue", "will_continue", "scheduling", "parts"];

/// Maximum number of parts of a message. Each function response in it is looked up in the events of the session.
pub const MAX_MESSAGE_PARTS: usize = 1000;

/// Maximum size in bytes of a client's text in a message.
const MAX_EXCERPT: usize = 64;

/// A message as a client has sent it, not validated yet. Convert it into [`Content`].
#[derive(Debug, Deserialize)]
pub struct ClientMessage {
    #[serde(default)]
    role: Option<String>,
    #[serde(default)]
    parts: Vec<ClientPart>,
}

#[derive(Debug, Deserialize)]
#[serde(from = "PartJson")]
struct ClientPart {
    part: Part,
    /// All kinds of data that were sent; `part` has only the first.
    kinds: Vec<&'static str>,
}

impl From<PartJson> for ClientPart {
    fn from(json: PartJson) -> Self {
        Self { kinds: json.kinds().collect(), part: json.into() }
    }
}

impl TryFrom<ClientMessage> for Content {
    type Error = RunError;

    fn try_from(message: ClientMessage) -> Result<Self, RunError> {
        let ambiguous = message.parts.iter().enumerate().find_map(|(index, part)| match part.kinds.as_slice() {
            [first, second, ..] => Some((index, *first, *second)),
            _ => None,
        });
        if let Some((index, first, second)) = ambiguous {
            return Err(invalid_message(
                index,
                &format!("has both `{first}` and `{second}`; a part holds one kind of data"),
            ));
        }
        let mut content = Self { role: message.role, parts: message.parts.into_iter().map(|part| part.part).collect() };
        check_message(&content)?;
        content.parts.iter_mut().for_each(unify_keys);
        Ok(content)
    }
}

/// Converts the keys next to the data to camelCase and removes null values, because clients read only this form. Of two
/// spellings of a key, the later one is kept.
fn unify_keys(part: &mut Part) {
    let unify = |extra: &mut Extra| *extra = Extra::from(camel_keys(std::mem::take(extra).into()));
    unify(&mut part.extra);
    if let PartData::FunctionResponse(response) = &mut part.data {
        unify(&mut response.extra);
    }
}

fn camel_keys(map: JsonMap) -> JsonMap {
    let entries = map.into_iter().filter(|(_, value)| !value.is_null());
    let converted = entries.map(|(key, value)| {
        // Its keys are the client's own.
        let value = if is_part_metadata(&key) { value } else { camel_value(value) };
        (camel_case(&key), value)
    });
    converted.collect()
}

fn camel_value(value: Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(camel_keys(map)),
        Value::Array(items) => Value::Array(items.into_iter().map(camel_value).collect()),
        other => other,
    }
}

fn camel_case(key: &str) -> String {
    let mut words = key.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |camel, word| {
        let mut letters = word.chars();
        let initial = letters.next().map(|letter| letter.to_ascii_uppercase());
        camel + &initial.into_iter().chain(letters).collect::<String>()
    })
}

/// Checks that a user may send this message: texts, files and function responses.
///
/// # Errors
/// [`RunError::InvalidMessage`], which names the part and the key.
pub fn check_message(content: &Content) -> Result<(), RunError> {
    if let Some(role) = content.role.as_deref().filter(|role| *role != USER_AUTHOR) {
        let message = format!(
            "newMessage.role is `{}`; a user's message has the role `{USER_AUTHOR}`, or none",
            excerpt(role, MAX_EXCERPT)
        );
        return Err(RunError::InvalidMessage(message));
    }
    if content.parts.is_empty() {
        let message = "newMessage has no parts; send at least one, such as {\"text\": \"hello\"}";
        return Err(RunError::InvalidMessage(message.into()));
    }
    if content.parts.len() > MAX_MESSAGE_PARTS {
        let count = content.parts.len();
        let message =
            format!("newMessage has {count} parts; a message has at most {MAX_MESSAGE_PARTS}, so send several");
        return Err(RunError::InvalidMessage(message));
    }
    content
        .parts
        .iter()
        .enumerate()
        .try_for_each(|(index, part)| check_part(part).map_err(|wrong| invalid_message(index, &wrong)))
}

fn check_part(part: &Part) -> Result<(), String> {
    let takes_metadata = match &part.data {
        PartData::Text(_) => false,
        PartData::InlineData(blob) => check_blob(blob).map(|()| true)?,
        PartData::FileData(file) => check_file(file).map(|()| true)?,
        PartData::FunctionResponse(response) => check_response(response).map(|()| false)?,
        PartData::FunctionCall(_) => return Err("is a `functionCall`, which only a model can make".into()),
        PartData::ExecutableCode(_) => return Err("is `executableCode`, which only a model can write".into()),
        PartData::CodeExecutionResult(_) => {
            return Err("is a `codeExecutionResult`, which only code execution produces".into());
        }
        PartData::Other => {
            return Err(match part.extra.keys().next() {
                Some(key) => format!(
                    "has `{}`, which is not a supported kind of data; send `text`, `inlineData`, `fileData` or `functionResponse`",
                    excerpt(key, MAX_EXCERPT)
                ),
                None => "is empty; send `text`, `inlineData`, `fileData` or `functionResponse`".into(),
            });
        }
    };
    if part.thought {
        return Err("has `thought`, which marks a model's thinking; leave it out".into());
    }
    if part.thought_signature.is_some() {
        return Err("has a `thoughtSignature`, which only a model creates; leave it out".into());
    }
    check_keys(&part.extra, |key| PART_KEYS.contains(&key) && (takes_metadata || is_part_metadata(key)))?;
    match part.extra.iter().find(|(_, value)| !value.is_object() || is_json_too_deep(value)) {
        Some((key, _)) => {
            Err(format!("has `{key}` that is not an object, or is nested more than {MAX_JSON_DEPTH} levels deep"))
        }
        None => Ok(()),
    }
}

fn is_part_metadata(key: &str) -> bool {
    matches!(key, "partMetadata" | "part_metadata")
}

fn check_blob(blob: &Blob) -> Result<(), String> {
    if blob.mime_type.is_empty() {
        Err("has `inlineData` without `mimeType`, such as `image/png`".into())
    } else {
        Ok(())
    }
}

fn check_file(file: &FileData) -> Result<(), String> {
    if file.file_uri.is_empty() { Err("has `fileData` without `fileUri`".into()) } else { Ok(()) }
}

fn check_response(response: &FunctionResponse) -> Result<(), String> {
    if response.id.as_deref().is_none_or(str::is_empty) {
        return Err("has a `functionResponse` without `id`; send the function call's id".into());
    }
    if response.name.is_empty() {
        return Err("has a `functionResponse` without `name`; send the function call's name".into());
    }
    if response.response.values().any(is_json_too_deep) {
        return Err(format!("has a `functionResponse.response` that is nested more than {MAX_JSON_DEPTH} levels deep"));
    }
    check_keys(&response.extra, |key| RESPONSE_KEYS.contains(&key))
        .map_err(|wrong| format!("{wrong} in its `functionResponse`"))
}

fn check_keys(extra: &JsonMap, is_allowed: impl Fn(&str) -> bool) -> Result<(), String> {
    match extra.keys().find(|key| !is_allowed(key)) {
        Some(key) => Err(format!("has the unknown key `{}`", excerpt(key, MAX_EXCERPT))),
        None => Ok(()),
    }
}

/// Creates the error for the part at `index`.
pub fn invalid_message(index: usize, wrong: &str) -> RunError {
    RunError::InvalidMessage(format!("newMessage.parts[{index}] {wrong}"))
}
