//! The WebSocket of a live run: frames in both directions, their limits, and the end.

mod connections;
mod end;
mod session;

pub(crate) use connections::LiveConnections;
pub(crate) use end::LiveEnd;
pub(crate) use session::{LiveLimits, LiveSession};

/// A frame of up to this many times its limit is received, so that the client gets the reason why it is refused.
pub(crate) const RECEIVED_FRAMES: usize = 2;
