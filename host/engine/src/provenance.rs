//! Which events of a session the engine acts on: those that carry a proof of this host.

use hatchery_core::{Claim, Event, EventSigner, Invocation, SessionKey};

/// Checks the proofs of a session's events.
pub(crate) struct Verifier<'a> {
    pub(crate) signer: &'a EventSigner,
    pub(crate) session: &'a SessionKey,
}

impl<'a> Verifier<'a> {
    pub(crate) fn of(invocation: &'a Invocation) -> Self {
        Self { signer: &invocation.signer, session: &invocation.session_key }
    }

    /// True when this host has made the event and it makes this claim.
    pub(crate) fn proves(&self, event: &Event, claim: Claim) -> bool {
        self.signer.proves(self.session, event, claim)
    }

    /// True for calls that the user, or a client, is to answer.
    pub(crate) fn proves_open_calls(&self, event: &Event) -> bool {
        self.proves(event, Claim::Call) || self.proves(event, Claim::Confirmation)
    }
}
