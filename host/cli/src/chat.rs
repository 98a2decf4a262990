//! Chat in the terminal: a session with an app, with approval of tool calls and credentials for them.

mod credential_request;
mod pending_calls;
mod printer;
mod session;

pub use session::{ApprovalMode, ChatSession, CredentialMode};
