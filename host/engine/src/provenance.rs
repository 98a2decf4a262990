//! Verifies the proofs of events. The engine acts only on events of a session that carry a proof of this host.

use hatchery_core::{Claim, Event, EventSigner, Invocation, SessionKey};

/// Verifies the proofs of one session's events.
pub(crate) struct Verifier<'a> {
    pub(crate) signer: &'a EventSigner,
    pub(crate) session: &'a SessionKey,
}

impl<'a> Verifier<'a> {
    pub(crate) fn new(invocation: &'a Invocation) -> Self {
        Self { signer: &invocation.signer, session: &invocation.session_key }
    }

    /// Returns true if this host has made the event with this claim.
    pub(crate) fn proves(&self, event: &Event, claim: Claim) -> bool {
        self.signer.proves(self.session, event, claim)
    }

    /// Returns true for calls that wait for a response of the user or a client.
    pub(crate) fn proves_open_calls(&self, event: &Event) -> bool {
        self.proves(event, Claim::Call) || self.proves(event, Claim::Confirmation)
    }
}
