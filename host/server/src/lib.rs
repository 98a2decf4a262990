//! HTTP and SSE for the apps of a catalog: routes, errors, limits, the configuration file and a graceful end.
//!
//! Paths and JSON are those of ADK clients. The server knows apps only through [`AppSource`], so what loads them is not its business.
//! It holds no state of its own beside counters: sessions, artifacts and memory belong to the services.

mod error;
mod server;
mod state;

mod body;
mod connections;
mod descriptors;
mod extract;
mod guard;
mod headers;
mod json;
mod observe;
mod routes;

pub use error::ApiError;
pub use server::{BindError, Server};
pub use state::AppState;
