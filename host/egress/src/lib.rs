//! Outbound HTTP requests: the egress policy that they obey, and the credentials that they carry.

mod address;
mod auth;
mod client;
mod file;
mod google;
mod secret;
mod sse;
mod token;

pub use address::is_loopback;
pub use auth::{AuthError, ClientAuthentication, ToolAuthenticator, pending_result};
pub use client::{BodyError, Egress, Timeouts, Url, check, client, describe, read_body, refusal};
pub use file::{FileError, read_file};
pub use google::GoogleCredentials;
pub use secret::Secret;
pub use sse::{EventEnds, SseError, sse_data};
pub use token::{TokenCache, TokenRequest, TokenResponse};
