//! Credentials in users' messages: the credential service keeps them, and the session stores only that they came.

use std::sync::Arc;

use hatchery_core::{
    AuthConfig, Claim, Content, CredentialId, Event, FunctionCall, FunctionResponse, JsonMap, Part, PartData,
    REQUEST_CREDENTIAL, RunError, Services, USER_AUTHOR, UserCredential,
};
use imbl::Vector;
use serde_json::{Value, json};

use crate::provenance::Verifier;
use crate::tools::confirmation::find_request;

/// The key of an answer's status, which the session stores instead of the answer.
const STATUS: &str = "status";
/// The credential is kept, so the call is made again.
const RECEIVED: &str = "received";
/// The answer has no credential.
const DECLINED: &str = "declined";
/// No call waits for the answer.
const IGNORED: &str = "ignored";

/// Returns true for a stored answer whose credential is kept.
pub(crate) fn is_received(response: &JsonMap) -> bool {
    response.get(STATUS).and_then(Value::as_str) == Some(RECEIVED)
}

/// Returns true for a stored answer without a credential.
pub(crate) fn is_declined(response: &JsonMap) -> bool {
    response.get(STATUS).and_then(Value::as_str) == Some(DECLINED)
}

/// Returns the error that the model gets instead of the result of a call whose credential the user declines.
pub(crate) fn declined_message(tool: &str) -> String {
    format!(
        "the user has not granted the credential that `{tool}` needs, so it was not called; go on without it, or call it again if \
         the user wants to be asked once more"
    )
}

/// Returns true for a message with an answer to a request for a credential.
pub(crate) fn has_answer(message: &Content) -> bool {
    message.parts.iter().any(|part| answer(part).is_some())
}

/// Keeps the credentials in a user's message that follows `events`. Returns the message without them.
///
/// # Errors
/// If the credential service fails.
pub(crate) async fn receive(
    message: Arc<Content>,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
    services: &Services,
) -> Result<Arc<Content>, RunError> {
    if !has_answer(&message) {
        return Ok(message);
    }
    let mut parts = Vec::with_capacity(message.parts.len());
    for part in &message.parts {
        parts.push(match answer(part) {
            // The code of an agent has requested it by its own call, and gets the credential.
            Some(response) if is_of_code(response, events, verifier) => part.clone(),
            Some(response) => {
                let status = keep(response, events, verifier, services).await?;
                let stored = FunctionResponse {
                    id: response.id.clone(),
                    name: response.name.clone(),
                    response: JsonMap::from_iter([(STATUS.into(), json!(status))]),
                    ..FunctionResponse::default()
                };
                Part::from(PartData::FunctionResponse(stored))
            }
            None => part.clone(),
        });
    }
    Ok(Arc::new(Content { role: message.role.clone(), parts }))
}

fn answer(part: &Part) -> Option<&FunctionResponse> {
    match &part.data {
        PartData::FunctionResponse(response) if response.name == REQUEST_CREDENTIAL => Some(response),
        _ => None,
    }
}

/// Returns true for an answer to a call of an agent's own code. Never for an answer to a request of this host, whose id
/// code may have repeated.
fn is_of_code(response: &FunctionResponse, events: &Vector<Arc<Event>>, verifier: &Verifier<'_>) -> bool {
    let Some(id) = response.id.as_deref() else { return false };
    if find_request(events, REQUEST_CREDENTIAL, id, verifier).is_some() {
        return false;
    }
    let is_call = |call: &FunctionCall| call.name == REQUEST_CREDENTIAL && call.id.as_deref() == Some(id);
    let mut calls = events.iter().filter(|event| event.function_calls().any(is_call));
    calls.any(|event| verifier.proves(event, Claim::Call))
}

/// Keeps the credential of an answer, if a call waits for it. Returns the status for the session.
async fn keep(
    response: &FunctionResponse,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
    services: &Services,
) -> Result<&'static str, RunError> {
    let Some(config) = open_request(response, events, verifier) else { return Ok(IGNORED) };
    let Some(credential) = UserCredential::from_answer(&config, &response.response) else { return Ok(DECLINED) };
    let id = CredentialId::for_user(verifier.session, config.key());
    services.credentials.save(&id, &json!(credential)).await?;
    let (app, user, session) = (&*id.app, &*id.user, &*verifier.session.id);
    tracing::info!(
        target: "hatchery::audit", app, user, session, action = id.key, decision = "credential", "consent"
    );
    Ok(RECEIVED)
}

/// Returns this host's request for a response. `None` if there is none, or it has an answer already.
fn open_request(
    response: &FunctionResponse,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> Option<AuthConfig> {
    let id = response.id.as_deref()?;
    let (index, request) = find_request(events, REQUEST_CREDENTIAL, id, verifier)?;
    let is_answer = |event: &Arc<Event>| {
        event.author == USER_AUTHOR && event.function_responses().any(|response| response.id.as_deref() == Some(id))
    };
    if events.iter().skip(index + 1).any(is_answer) {
        return None;
    }
    serde_json::from_value(request.args.get("authConfig")?.clone()).ok()
}
