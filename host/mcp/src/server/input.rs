//! Input from a client during a call: elicitation, sampling and roots.
//!
//! Up to revision 2025-11-25 the server calls its client. Since then the call ends with the requests, and the client
//! makes it again with its responses.

#![expect(deprecated, reason = "revision 2026-07-28 deprecates sampling and roots, and clients support them")]

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{ClientRoot, InputClient, InputError, InputKind, InputRequest, InputResponse, JsonMap, LlmRequest};
use rmcp::RoleServer;
use rmcp::model::{
    self, ClientCapabilities, ClientResult, CreateMessageRequest, CreateMessageRequestParams, CreateMessageResult,
    ElicitRequest, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability, ErrorData,
    FormElicitationCapability, InputRequests, InputResponses, ListRootsRequest, ListRootsResult, ProtocolVersion, Role,
    RootsCapabilities, SamplingCapability, ServerRequest,
};
use rmcp::service::{Peer, RequestContext};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::messages;

/// Maximum number of tokens of a message, unless the request has one.
const DEFAULT_MAX_TOKENS: u32 = 1024;

/// The client of one call.
#[derive(Debug)]
pub(super) struct CallInput {
    peer: Peer<RoleServer>,
    capabilities: ClientCapabilities,
    /// Cancelled with the call.
    cancel: CancellationToken,
    /// The rounds of a call. `None` up to revision 2025-11-25.
    rounds: Option<Mutex<Rounds>>,
}

/// The state of a call that its client makes again with its responses.
#[derive(Debug, Default)]
struct Rounds {
    responses: InputResponses,
    /// The requests without a response.
    pending: InputRequests,
    /// A capability that the client lacks.
    missing: Option<ClientCapabilities>,
}

impl CallInput {
    /// Creates the client of a call, which has sent these responses.
    pub(super) fn new(context: &RequestContext<RoleServer>, responses: InputResponses) -> Self {
        let version = context.protocol_version();
        let is_stateless = version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        Self {
            peer: context.peer.clone(),
            cancel: context.ct.clone(),
            capabilities: context.client_capabilities().unwrap_or_default(),
            rounds: is_stateless.then(|| Mutex::new(Rounds { responses, ..Rounds::default() })),
        }
    }

    /// Returns the requests for which the client must make the call again. Empty if there are none.
    ///
    /// # Errors
    /// If the call needs a capability that the client lacks.
    pub(super) fn pending(&self) -> Result<InputRequests, ErrorData> {
        let Some(rounds) = &self.rounds else { return Ok(InputRequests::new()) };
        let mut rounds = rounds.lock_unpoisoned();
        match rounds.missing.take() {
            Some(missing) => Err(ErrorData::missing_required_client_capability(missing)),
            None => Ok(std::mem::take(&mut rounds.pending)),
        }
    }

    /// Sends one request to the client, and waits for its response.
    async fn ask(&self, request: model::InputRequest) -> Result<InputResponse, InputError> {
        let request = match request {
            model::InputRequest::Elicitation(request) => ServerRequest::ElicitRequest(request),
            model::InputRequest::CreateMessage(request) => ServerRequest::CreateMessageRequest(request),
            model::InputRequest::ListRoots(request) => ServerRequest::ListRootsRequest(request),
            _ => return Err(InputError::Failed("the request is of an unknown kind".into())),
        };
        let result = self.cancel.run_until_cancelled(self.peer.send_request(request)).await;
        let result = result.ok_or_else(|| InputError::Failed("the call was cancelled".into()))?;
        match result.map_err(|error| InputError::Failed(error.to_string()))? {
            ClientResult::ElicitResult(result) => Ok(form(result)),
            ClientResult::CreateMessageResult(result) => message(&result).map_err(InputError::Failed),
            ClientResult::ListRootsResult(result) => Ok(roots(result)),
            _ => Err(InputError::Failed("its response is of another kind".into())),
        }
    }
}

#[async_trait]
impl InputClient for CallInput {
    fn supports(&self, kind: InputKind) -> bool {
        match kind {
            // A client with an empty capability shows forms.
            InputKind::Form => {
                self.capabilities.elicitation.as_ref().is_some_and(|it| it.form.is_some() || it.url.is_none())
            }
            InputKind::Message => self.capabilities.sampling.is_some(),
            InputKind::Roots => self.capabilities.roots.is_some(),
        }
    }

    fn is_interactive(&self) -> bool {
        self.rounds.is_none()
    }

    async fn request(
        &self,
        requests: BTreeMap<String, InputRequest>,
    ) -> Result<BTreeMap<String, InputResponse>, InputError> {
        if let Some(request) = requests.values().find(|request| !self.supports(request.kind())) {
            if let Some(rounds) = &self.rounds {
                rounds.lock_unpoisoned().missing = Some(capability(request.kind()));
            }
            return Err(InputError::Unsupported(request.kind()));
        }
        let mut wire = InputRequests::new();
        for (key, request) in requests {
            wire.insert(key, to_wire(request)?);
        }
        let mut responses = BTreeMap::new();
        let Some(rounds) = &self.rounds else {
            for (key, request) in wire {
                responses.insert(key, self.ask(request).await?);
            }
            return Ok(responses);
        };
        let mut rounds = rounds.lock_unpoisoned();
        for (key, request) in wire {
            // The client is asked again if its response is invalid.
            match rounds.responses.get(&key).and_then(|response| parse(&request, response)) {
                Some(response) => {
                    responses.insert(key, response);
                }
                None => {
                    rounds.pending.insert(key, request);
                }
            }
        }
        if rounds.pending.is_empty() { Ok(responses) } else { Err(InputError::Pending) }
    }
}

/// Returns the capability that a kind of input needs.
fn capability(kind: InputKind) -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    match kind {
        InputKind::Form => {
            let form = FormElicitationCapability::new();
            capabilities.elicitation = Some(ElicitationCapability::new().with_form(form));
        }
        InputKind::Message => capabilities.sampling = Some(SamplingCapability::default()),
        InputKind::Roots => capabilities.roots = Some(RootsCapabilities::default()),
    }
    capabilities
}

fn to_wire(request: InputRequest) -> Result<model::InputRequest, InputError> {
    Ok(match request {
        InputRequest::Form { message, schema } => {
            let invalid = |error| InputError::Failed(format!("a client cannot show this form: {error}"));
            let requested_schema = serde_json::from_value(schema).map_err(invalid)?;
            let params = ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
            model::InputRequest::Elicitation(ElicitRequest::new(params))
        }
        InputRequest::Message(request) => {
            model::InputRequest::CreateMessage(CreateMessageRequest::new(message_params(&request)))
        }
        InputRequest::Roots => model::InputRequest::ListRoots(ListRootsRequest::default()),
    })
}

fn message_params(request: &LlmRequest) -> CreateMessageRequestParams {
    let messages = request.contents.iter().filter_map(|content| {
        let role = if content.role.as_deref() == Some("model") { Role::Assistant } else { Role::User };
        messages::from_parts(role, content.parts.iter().cloned())
    });
    let max_tokens = request.config.max_output_tokens.and_then(|max| u32::try_from(max).ok());
    let max_tokens = max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let mut params = CreateMessageRequestParams::new(messages.collect(), max_tokens);
    let instructions = request.system_instructions.join("\n\n");
    params.system_prompt = (!instructions.is_empty()).then_some(instructions);
    params.temperature = request.config.temperature.map(|temperature| temperature as f32);
    params.stop_sequences = request.config.stop_sequences.clone();
    params
}

/// Returns the response of a client. `None` if it is not a valid one to this request.
fn parse(request: &model::InputRequest, response: &Value) -> Option<InputResponse> {
    fn read<T: DeserializeOwned>(response: &Value) -> Option<T> {
        serde_json::from_value(response.clone()).ok()
    }
    match request {
        model::InputRequest::Elicitation(_) => read(response).map(form),
        model::InputRequest::CreateMessage(_) => message(&read(response)?).ok(),
        model::InputRequest::ListRoots(_) => read(response).map(roots),
        _ => None,
    }
}

fn form(result: ElicitResult) -> InputResponse {
    InputResponse::Form(match (result.action, result.content) {
        (ElicitationAction::Accept, Some(Value::Object(fields))) => Some(fields),
        (ElicitationAction::Accept, _) => Some(JsonMap::new()),
        _ => None,
    })
}

fn message(result: &CreateMessageResult) -> Result<InputResponse, String> {
    messages::to_content(&result.message).map(InputResponse::Message)
}

fn roots(result: ListRootsResult) -> InputResponse {
    let roots = result.roots.into_iter().map(|root| ClientRoot { uri: root.uri, name: root.name });
    InputResponse::Roots(roots.collect())
}
