//! Messages of clients as messages to the host's agents.

use hatchery_core::{
    Content, FunctionResponse, JsonMap, Part as HostPart, PartData, REQUEST_CONFIRMATION, REQUEST_CREDENTIAL,
};
use serde_json::{Value, json};

use super::events::OpenCall;
use crate::error::{A2aError, ErrorKind, excerpt};
use crate::model::{Message, Role, SendRequest};
use crate::parts;

/// Media types that clients may send by default, as they are in cards.
pub(super) const INPUT_MODES: [&str; 6] =
    ["text/plain", "application/json", "application/pdf", "image/*", "audio/*", "video/*"];

/// Media types of answers, as they are in cards. Agents may add files of others.
pub(super) const OUTPUT_MODES: [&str; 2] = ["text/plain", "application/json"];

/// The state key with the metadata of the request and of the message, while the run lasts.
const METADATA_KEY: &str = "temp:a2a_metadata";

/// The state key with the id of the message, while the run lasts.
const MESSAGE_ID_KEY: &str = "temp:a2a_message_id";

/// Checks the parts of a message that do not depend on its task.
///
/// # Errors
/// If the message has no id or no parts, its role is not the user, a file has none of the types `input_modes`, or its
/// sender accepts no type of answers.
pub(super) fn check(request: &SendRequest, input_modes: &[String]) -> Result<(), A2aError> {
    let SendRequest { message, accepted_output_modes: accepted, .. } = request;
    if message.id.is_empty() {
        return Err(A2aError::invalid_params("`message.messageId` is missing"));
    }
    if message.role != Role::User {
        return Err(A2aError::invalid_params("`message.role` must be `user`"));
    }
    if message.parts.is_empty() {
        return Err(A2aError::invalid_params("`message.parts` is empty"));
    }
    if !accepted.is_empty() && !OUTPUT_MODES.iter().any(|mode| accepted.iter().any(|it| has_mode(it, mode))) {
        let modes = OUTPUT_MODES.join(" and ");
        let message = format!("answers are {modes}, none of which is in `acceptedOutputModes`");
        return Err(A2aError::new(ErrorKind::ContentTypeNotSupported, message));
    }
    let mut types = message.parts.iter().filter_map(|part| part.media_type.as_deref());
    let foreign = types.find(|it| !is_accepted(it, input_modes));
    match foreign {
        Some(media_type) => Err(A2aError::new(
            ErrorKind::ContentTypeNotSupported,
            format!("`{}` is not one of {}", excerpt(media_type), input_modes.join(", ")),
        )),
        None => Ok(()),
    }
}

/// Returns true if a range of media types, such as `text/*`, has a type.
fn has_mode(range: &str, mode: &str) -> bool {
    let range = range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    // Some clients send `text`.
    range == mode.split('/').next().unwrap_or_default() || hatchery_core::matches_wildcard(&range, mode)
}

fn is_accepted(media_type: &str, input_modes: &[String]) -> bool {
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_text = media_type.starts_with("text/") || media_type == "application/json";
    is_text || input_modes.iter().any(|mode| hatchery_core::matches_wildcard(mode, &media_type))
}

/// Returns the message for the agents. A text answers the call that a task waits for, if there is exactly one and it
/// does not request a decision. Files are kept in addition to the answer.
///
/// # Errors
/// If the task waits for other calls than the message answers.
pub(super) fn content(message: Message, open: &[OpenCall]) -> Result<Content, A2aError> {
    let Message { id, parts, .. } = message;
    let mut parts: Vec<HostPart> = parts.into_iter().map(parts::receive_from_client).collect();
    let mut has_answers = false;
    for part in &mut parts {
        let PartData::FunctionResponse(response) = &mut part.data else { continue };
        match open.iter().find(|open| open.call.id == response.id) {
            Some(OpenCall { call, .. }) => {
                response.name.clone_from(&call.name);
                has_answers = true;
            }
            None if open.is_empty() => *part = HostPart::text(json!(response).to_string()),
            None => {
                let id = excerpt(response.id.as_deref().unwrap_or_default());
                let message = format!("the task waits for no call `{id}`, but for {}", list(open));
                return Err(A2aError::invalid_params(message));
            }
        }
    }
    if !open.is_empty() && !has_answers {
        let answer = answer(open, &parts)?;
        parts.retain(|part| part.as_text().is_none());
        parts.insert(0, answer);
        parts::mark_as_text(&mut parts);
    }
    parts::set_message_id(&mut parts, &id);
    Ok(Content::new("user", parts))
}

/// Returns a text as the answer to the only open call.
fn answer(open: &[OpenCall], parts: &[HostPart]) -> Result<HostPart, A2aError> {
    let [OpenCall { call, .. }] = open else { return Err(needs_answers(open)) };
    let is_decision = call.name == REQUEST_CONFIRMATION || call.name == REQUEST_CREDENTIAL;
    let texts: Vec<_> = parts.iter().filter_map(HostPart::as_text).collect();
    if is_decision || texts.is_empty() {
        return Err(needs_answers(open));
    }
    let response = JsonMap::from_iter([("result".into(), texts.join("\n").into())]);
    let response =
        FunctionResponse { id: call.id.clone(), name: call.name.clone(), response, ..FunctionResponse::default() };
    Ok(PartData::FunctionResponse(response).into())
}

fn needs_answers(open: &[OpenCall]) -> A2aError {
    A2aError::invalid_params(format!(
        "the task waits for {}; answer with a data part with the metadata `adk_type: function_response` and the data `{{\"id\", \
         \"name\", \"response\"}}`",
        list(open)
    ))
}

fn list(open: &[OpenCall]) -> String {
    let calls = open.iter().map(|open| {
        let id = open.call.id.as_deref().unwrap_or_default();
        format!("`{}` (id `{id}`)", open.call.name)
    });
    calls.collect::<Vec<_>>().join(", ")
}

/// Returns the state that agents see while the run lasts.
pub(super) fn state(request: &SendRequest) -> JsonMap {
    let mut state = JsonMap::from_iter([(MESSAGE_ID_KEY.into(), request.message.id.as_str().into())]);
    let metadata: JsonMap = request
        .metadata
        .iter()
        .chain(&request.message.metadata)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !metadata.is_empty() {
        state.insert(METADATA_KEY.into(), Value::Object(metadata));
    }
    state
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use hatchery_core::{Event, EventData, FunctionCall};

    use super::*;
    use crate::model::{Part, PartContent};
    use crate::server::events;

    fn check(request: &SendRequest) -> Result<(), A2aError> {
        super::check(request, &INPUT_MODES.map(Into::into))
    }

    fn request(message: Message) -> SendRequest {
        SendRequest { message, ..SendRequest::default() }
    }

    #[test]
    fn a_sender_accepts_a_type_of_answers() {
        let accepts = |modes: &[&str]| {
            let message = Message { id: "m".into(), parts: vec![Part::text("hi")], ..Message::default() };
            let accepted_output_modes = modes.iter().map(|mode| (*mode).to_owned()).collect();
            check(&SendRequest { accepted_output_modes, ..request(message) })
        };
        for modes in
            [&[][..], &["text/plain"], &["image/png", "TEXT/plain; charset=utf-8"], &["text/*"], &["*/*"], &["text"]]
        {
            accepts(modes).unwrap();
        }
        let error = accepts(&["image/png", "video/*"]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ContentTypeNotSupported);
        assert_eq!(
            error.message,
            "answers are text/plain and application/json, none of which is in `acceptedOutputModes`"
        );
    }

    #[test]
    fn files_of_unknown_types_are_refused() {
        let check_type = |media_type: &str| {
            let part =
                Part { media_type: Some(media_type.into()), ..Part::new(PartContent::Url("https://a.example".into())) };
            check(&request(Message { id: "m".into(), parts: vec![part], ..Message::default() }))
        };
        for accepted in ["image/png", "text/markdown; charset=utf-8", "Application/JSON", "application/pdf"] {
            check_type(accepted).unwrap();
        }
        let error = check_type("application/x-unsupported").unwrap_err();
        assert_eq!(error.kind, ErrorKind::ContentTypeNotSupported);
        assert!(error.message.starts_with("`application/x-unsupported` is not one of text/plain, "), "{error}");
    }

    #[test]
    fn an_operator_selects_the_types_of_files() {
        let check_type = |media_type: &str, modes: &[&str]| {
            let part =
                Part { media_type: Some(media_type.into()), ..Part::new(PartContent::Url("https://a.example".into())) };
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            super::check(&request(Message { id: "m".into(), parts: vec![part], ..Message::default() }), &modes)
        };
        check_type("application/vnd.ms-excel", &["*/*"]).unwrap();
        check_type("application/zip", &["image/*", "application/zip"]).unwrap();
        check_type("text/csv", &["application/zip"]).unwrap();
        let error = check_type("image/png", &["text/plain", "application/zip"]).unwrap_err();
        assert_eq!(error.message, "`image/png` is not one of text/plain, application/zip");
    }

    #[test]
    fn the_files_of_a_message_stay_beside_the_text_that_answers_a_call() {
        let call = FunctionCall { id: Some("c".into()), name: "ask".into(), ..FunctionCall::default() };
        let asked = Event::new(EventData {
            author: "agent".into(),
            content: Some(Arc::new(Content::new("model", vec![PartData::FunctionCall(call).into()]))),
            long_running_tool_ids: vec!["c".into()],
            ..EventData::default()
        });
        let file =
            Part { media_type: Some("image/png".into()), ..Part::new(PartContent::Raw(Bytes::from_static(b"image"))) };
        let parts = vec![Part::text("here"), file, Part::text("it is")];
        let message = Message { id: "m".into(), parts, ..Message::default() };
        let received = content(message, &events::open_calls(&[asked])).unwrap();
        let [answer, image] = received.parts.as_slice() else { panic!("{received:?}") };
        assert_eq!(parts::text_answer(answer), Some("here\nit is"));
        assert!(matches!(&image.data, PartData::InlineData(blob) if blob.data == "image"), "{image:?}");
    }

    #[test]
    fn a_message_has_an_id_and_parts_and_comes_from_the_user() {
        let message = || Message { id: "m".into(), parts: vec![Part::text("hi")], ..Message::default() };
        check(&request(message())).unwrap();
        let error = |message: Message| check(&request(message)).unwrap_err().message;
        assert_eq!(error(Message { id: String::new(), ..message() }), "`message.messageId` is missing");
        assert_eq!(error(Message { parts: Vec::new(), ..message() }), "`message.parts` is empty");
        assert_eq!(error(Message { role: Role::Agent, ..message() }), "`message.role` must be `user`");
    }
}
