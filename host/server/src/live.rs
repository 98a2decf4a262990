//! The WebSocket of a live run: frames in both directions, their limits, and the end.

mod connections;
mod end;
mod sender;
mod session;

pub(crate) use connections::LiveConnections;
pub(crate) use end::LiveEnd;
pub(crate) use sender::LiveSender;
pub(crate) use session::{LiveLimits, LiveSession};
