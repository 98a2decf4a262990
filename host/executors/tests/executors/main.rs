//! Tests of code executors, with container engines, and with servers that speak their API and the API of Vertex AI.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, clippy::expect_used, reason = "tests")]

#[cfg(unix)]
mod container;
#[cfg(unix)]
mod fake_engine;
#[cfg(unix)]
mod real_engines;
#[cfg(unix)]
mod suite;
mod vertex;

use hatchery_core::{CallContext, Invocation, NewInvocation, Session, SessionKey, State, Timestamp};
use hatchery_test_support::services;

/// Returns the context of a call in this session.
pub fn call_in(session: &str) -> CallContext {
    let session = Session {
        key: SessionKey::new("app", "ada", session),
        state: State::default(),
        events: Default::default(),
        revision: 0,
        created: Timestamp::now(),
        last_update_time: Timestamp::now(),
    };
    CallContext::new(Invocation::new(NewInvocation::new(session, services())).0, "agent", None)
}
