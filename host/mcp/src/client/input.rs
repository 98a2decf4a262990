//! Input requests of a server during a call: elicitation (a person's answers) and sampling (messages of a model).

use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, ToolError};
use rmcp::model::{InputRequest, InputRequests, InputResponses};
use serde_json::json;
use tokio::sync::OwnedMutexGuard;

use super::elicitation::Elicitation;
use super::sampling::Sampler;
use crate::config::ServerConfig;

/// Answers the input requests of one call.
pub(super) struct CallInput {
    pub(super) elicitation: Elicitation,
    /// True if the server may ask a person.
    can_elicit: bool,
    /// `None` if the server may not use a model.
    pub(super) sampler: Option<Sampler>,
}

impl CallInput {
    /// Continues with the questions of a call, after a person has decided about one.
    ///
    /// # Errors
    /// If the answer does not match the form. The text is for the model.
    pub(super) async fn resume(server: &str, config: &ServerConfig, cx: &CallContext) -> Result<Self, ToolError> {
        let sampler = config.sampling.as_ref().map(|sampling| Sampler::new(sampling, cx));
        Ok(Self { elicitation: Elicitation::resume(server, cx).await?, can_elicit: config.elicitation, sampler })
    }

    /// Returns the responses to the requests of a call that needs input. `None` if a person must be asked.
    ///
    /// # Errors
    /// If the server may not request this input, or the model fails. The text follows the name of the tool.
    pub(super) async fn answers(&self, requests: &InputRequests) -> Result<Option<InputResponses>, String> {
        let mut responses = InputResponses::new();
        // A person's answers come first, since a model would write its messages again after a pause.
        for (key, request) in requests {
            match request {
                InputRequest::Elicitation(request) if self.can_elicit => {
                    let Some(answer) = self.elicitation.answer(&request.params).await else { return Ok(None) };
                    responses.insert(key.clone(), json!(answer));
                }
                InputRequest::Elicitation(_) => {
                    return Err("asks a person, which its MCP server may not do here".into());
                }
                _ => {}
            }
        }
        for (key, request) in requests {
            match (request, &self.sampler) {
                (InputRequest::Elicitation(_), _) => {}
                (InputRequest::CreateMessage(request), Some(sampler)) => {
                    let message = sampler.create_message(&request.params).await;
                    let message = message.map_err(|reason| format!("asks for a message of a model: {reason}"))?;
                    responses.insert(key.clone(), json!(message));
                }
                (InputRequest::CreateMessage(_), None) => {
                    return Err("asks for a message of a model, which its MCP server may not use here".into());
                }
                _ => return Err("asks for something that this host does not offer".into()),
            }
        }
        Ok(Some(responses))
    }
}

/// The call that a server may ask about. Requests of a server do not identify the call that they belong to, so there is
/// one call at a time.
#[derive(Default)]
pub(super) struct CurrentCall {
    turn: Arc<tokio::sync::Mutex<()>>,
    input: Mutex<Option<Arc<CallInput>>>,
}

impl CurrentCall {
    /// Waits until no other call may be asked about.
    pub(super) async fn begin(self: &Arc<Self>, input: Arc<CallInput>) -> CurrentCallGuard {
        let turn = self.turn.clone().lock_owned().await;
        *self.input.lock_unpoisoned() = Some(input);
        CurrentCallGuard { call: self.clone(), _turn: turn }
    }

    pub(super) fn get(&self) -> Option<Arc<CallInput>> {
        self.input.lock_unpoisoned().clone()
    }
}

/// Ends the turn of a call when it is dropped.
pub(super) struct CurrentCallGuard {
    call: Arc<CurrentCall>,
    _turn: OwnedMutexGuard<()>,
}

impl Drop for CurrentCallGuard {
    fn drop(&mut self) {
        *self.call.input.lock_unpoisoned() = None;
    }
}
