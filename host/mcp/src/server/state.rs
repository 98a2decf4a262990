//! The state of a call between its rounds, since revision 2026-07-28: the client keeps it, signed by the host.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hatchery_core::EventSigner;
use rmcp::model::{ErrorData, InputResponses};
use serde::{Deserialize, Serialize};

use super::confirmation::Question;

/// The purpose of the key, which no other signature of the host has.
const PURPOSE: &str = "mcp request state";

/// The state that a call needs to continue.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CallState {
    /// The client's responses so far.
    #[serde(skip_serializing_if = "InputResponses::is_empty")]
    pub(super) responses: InputResponses,
    /// The run that waits for answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<WaitingRun>,
}

/// A run of an app that waits for answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct WaitingRun {
    pub(super) session: String,
    pub(super) questions: Vec<Question>,
}

/// The call that a state belongs to.
pub(super) struct CallIdentity<'a> {
    pub(super) user: &'a str,
    pub(super) tool: &'a str,
    /// The JSON text of the arguments.
    pub(super) args: String,
}

impl CallIdentity<'_> {
    /// Returns the text that the client sends with its responses.
    pub(super) fn seal(&self, signer: &EventSigner, state: &CallState) -> String {
        // It consists of texts and JSON, so this cannot fail.
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(state).unwrap_or_default());
        let proof = signer.sign_strings(PURPOSE, &self.signed_texts(&payload));
        format!("{payload}.{proof}")
    }

    /// Reads the state that a client sends. Without any, the call is at its beginning.
    ///
    /// # Errors
    /// If this host has not signed it for the same call.
    pub(super) fn open(&self, signer: &EventSigner, text: Option<&str>) -> Result<CallState, ErrorData> {
        let Some(text) = text else { return Ok(CallState::default()) };
        let read = || {
            let (payload, proof) = text.split_once('.')?;
            signer.verify_strings(PURPOSE, &self.signed_texts(payload), proof).then_some(())?;
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()
        };
        let message = "`requestState` does not belong to this call; omit it to start the call again";
        read().ok_or_else(|| ErrorData::invalid_params(message, None))
    }

    fn signed_texts<'a>(&'a self, payload: &'a str) -> [&'a str; 4] {
        [self.user, self.tool, &self.args, payload]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_state_is_accepted_for_its_own_call_only() {
        let signer = EventSigner::new(b"secret");
        let identity = |user, tool| CallIdentity { user, tool, args: json!({"a": 1}).to_string() };
        let state =
            CallState { responses: [("name".to_owned(), json!({"action": "decline"}))].into(), ..CallState::default() };
        let sealed = identity("ada", "pay").seal(&signer, &state);
        assert_eq!(identity("ada", "pay").open(&signer, Some(&sealed)).unwrap(), state);
        assert_eq!(identity("ada", "pay").open(&signer, None).unwrap(), CallState::default());
        let other_call = CallIdentity { args: json!({}).to_string(), ..identity("ada", "pay") };
        let other_signer = EventSigner::new(b"other");
        for result in [
            identity("bob", "pay").open(&signer, Some(&sealed)),
            identity("ada", "sell").open(&signer, Some(&sealed)),
            other_call.open(&signer, Some(&sealed)),
            identity("ada", "pay").open(&other_signer, Some(&sealed)),
            identity("ada", "pay").open(&signer, Some(&format!("{sealed}x"))),
            identity("ada", "pay").open(&signer, Some("")),
        ] {
            let error = result.unwrap_err();
            assert_eq!(error.code.0, -32602);
            assert!(error.message.starts_with("`requestState` does not belong to this call"), "{error:?}");
        }
    }
}
