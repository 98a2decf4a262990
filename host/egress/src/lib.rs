//! Requests to other hosts: where they may go, and the credentials that they carry. For the protocols by which a host
//! uses what others offer.

mod client;
mod secret;
mod setting;

pub use client::{BodyError, Egress, Timeouts, Url, client, describe, read_body};
pub use secret::Secret;
pub use setting::{MissingVariable, Setting};
