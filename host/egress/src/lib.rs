//! Outbound HTTP requests: the egress policy that they obey, and the credentials that they carry.

mod address;
mod auth;
mod client;
mod google;
mod secret;
mod token;

pub use address::is_loopback;
pub use auth::{AuthError, ClientAuthentication, ToolAuthenticator, pending_result};
pub use client::{BodyError, Egress, Timeouts, Url, check, client, describe, read_body, refusal};
pub use google::GoogleCredentials;
pub use secret::Secret;
pub use token::{TokenCache, TokenRequest, TokenResponse};
