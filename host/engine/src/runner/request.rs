//! Run requests, and their checks. A request that is rejected stores nothing and calls no model.

use std::sync::Arc;

use hatchery_core::{
    CallerOrigin, Content, Event, FunctionResponse, InputClient, JsonMap, MAX_ID_BYTES, MAX_JSON_DEPTH,
    MAX_RUN_METADATA_BYTES, PartData, RunConfig, RunError, TraceParent, USER_AUTHOR, check_message, invalid_message,
    is_json_too_deep, json_len,
};
use imbl::Vector;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A request for one turn of a session.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// The user's id.
    pub user: String,
    /// The session's id.
    pub session: String,
    /// The user's message. `None` resumes an interrupted run without a message.
    pub message: Option<Content>,
    /// The run to resume. `None` begins a new run. If the app is resumable, a message that responds to a function call
    /// resumes the run of that call by itself, for as long as the run waits for it.
    pub invocation_id: Option<String>,
    /// The id of the run, if the caller chooses it. If the session has a run with this id, the request attaches to it:
    /// the run's stored events come first, then those that it still emits, and the message is ignored. So a request
    /// whose response was lost can be repeated.
    pub run_id: Option<String>,
    /// Changes of state that are stored with the message.
    pub state_delta: JsonMap,
    /// The run's settings. The app's settings take precedence.
    pub config: RunConfig,
    /// How the request reached the host.
    pub origin: CallerOrigin,
    /// The client, if it can be asked for input during the run.
    pub input: Option<Arc<dyn InputClient>>,
    /// The span of the caller that the run is part of.
    pub trace_parent: Option<TraceParent>,
    /// Cancels the run when cancelled. Unlike [`Runner::stop_runs`](super::Runner::stop_runs), this is its end.
    pub cancel: CancellationToken,
}

impl RunRequest {
    /// Returns a request with defaults for everything else.
    pub fn new(user: impl Into<String>, session: impl Into<String>, message: Content) -> Self {
        Self {
            user: user.into(),
            session: session.into(),
            message: Some(message),
            invocation_id: None,
            run_id: None,
            state_delta: JsonMap::new(),
            config: RunConfig::default(),
            origin: CallerOrigin::default(),
            input: None,
            trace_parent: None,
            cancel: CancellationToken::new(),
        }
    }

    /// Returns a request that resumes an interrupted run.
    pub fn resume(user: impl Into<String>, session: impl Into<String>, invocation_id: impl Into<String>) -> Self {
        let request = Self::new(user, session, Content::default());
        Self { message: None, invocation_id: Some(invocation_id.into()), ..request }
    }

    /// Returns true if the request begins a new run, or attaches to one by its run id, independent of the session's
    /// events.
    pub(super) fn begins_run(&self) -> bool {
        let has_responses = self.message.as_ref().is_some_and(|it| it.function_responses().next().is_some());
        self.run_id.is_some() || (self.invocation_id.is_none() && !has_responses)
    }

    /// Checks the parts of the request that do not depend on the session. A live run needs no message.
    ///
    /// # Errors
    /// If there is neither a message nor a run to resume, the message is not a user message, or the id of the run is
    /// invalid. If a state value is nested too deeply, or the custom metadata is too large or nested too deeply.
    pub(super) fn check(&self, is_live: bool) -> Result<(), RunError> {
        match &self.message {
            Some(message) => check_message(message)?,
            None if self.invocation_id.is_some() || is_live => {}
            None => {
                return Err(RunError::BadInput("the request has neither a message nor an invocation to resume".into()));
            }
        }
        if let Some(run_id) = &self.run_id {
            if self.invocation_id.is_some() {
                let message = "the request has an id for a new run and an invocation to resume; leave one of them out";
                return Err(RunError::BadInput(message.into()));
            }
            if run_id.trim().is_empty() || run_id.len() > MAX_ID_BYTES || run_id.chars().any(char::is_control) {
                let message = format!("the id of a run has 1 to {MAX_ID_BYTES} bytes and no control characters");
                return Err(RunError::BadInput(message));
            }
        }
        if let Some(metadata) = &self.config.custom_metadata {
            check_custom_metadata(metadata)?;
        }
        check_state(&self.state_delta)
    }

    /// Checks that each function response of the message belongs to a call that waits for the user. This is a call of a
    /// long-running tool, a request for confirmation, or a call that an interrupted run left without a response.
    ///
    /// # Errors
    /// [`RunError::InvalidMessage`] for any other response.
    pub(super) fn check_responses(&self, events: &Vector<Arc<Event>>) -> Result<(), RunError> {
        let parts = self.message.iter().flat_map(|message| message.parts.iter().enumerate());
        for (index, part) in parts {
            if let PartData::FunctionResponse(response) = &part.data {
                check_response(response, events).map_err(|reason| invalid_message(index, &reason))?;
            }
        }
        Ok(())
    }
}

/// Checks the custom metadata of a run, which each of its events stores.
///
/// # Errors
/// If it has too many bytes, or is nested too deeply.
fn check_custom_metadata(metadata: &JsonMap) -> Result<(), RunError> {
    let bytes = json_len(metadata);
    if bytes > MAX_RUN_METADATA_BYTES {
        return Err(RunError::BadInput(format!(
            "the custom metadata of the run has {bytes} bytes, and at most {MAX_RUN_METADATA_BYTES} are stored with each \
             event; send larger data as state"
        )));
    }
    if is_json_too_deep(&Value::Object(metadata.clone())) {
        let message = format!("the custom metadata of the run is nested more than {MAX_JSON_DEPTH} levels deep");
        return Err(RunError::BadInput(message));
    }
    Ok(())
}

/// Checks changes of state that come with a message.
///
/// # Errors
/// If a value is nested too deeply.
pub(super) fn check_state(state_delta: &JsonMap) -> Result<(), RunError> {
    match state_delta.iter().find(|(_, value)| is_json_too_deep(value)) {
        Some((key, _)) => Err(RunError::BadInput(format!(
            "the value of the state key `{}` is nested more than {MAX_JSON_DEPTH} levels deep",
            key.escape_debug()
        ))),
        None => Ok(()),
    }
}

fn check_response(response: &FunctionResponse, events: &Vector<Arc<Event>>) -> Result<(), String> {
    let id = response.id.as_deref().unwrap_or_default();
    let agent_events = || events.iter().rev().filter(|event| event.author != USER_AUTHOR);
    let mut calls = agent_events().flat_map(|event| event.function_calls());
    let Some(call) = calls.find(|call| call.id.as_deref() == Some(id)) else {
        return Err(format!(
            "has a `functionResponse` of id `{}`, but the session has no such call",
            id.escape_debug()
        ));
    };
    if call.name != response.name {
        return Err(format!(
            "has a `functionResponse` named `{}`, but the call of id `{id}` is of `{}`",
            response.name.escape_debug(),
            call.name
        ));
    }
    let is_long_running = agent_events().any(|event| event.long_running_tool_ids.iter().any(|pending| pending == id));
    let has_response =
        || agent_events().flat_map(|event| event.function_responses()).any(|it| it.id.as_deref() == Some(id));
    if is_long_running || !has_response() {
        return Ok(());
    }
    Err(format!("has a `functionResponse` of id `{id}`, but that call of `{}` already has a response", call.name))
}
