//! The client: connections to MCP servers, and their tools as a toolset.

mod call;
mod connection;
mod content;
mod elicitation;
mod error;
mod flood;
mod handler;
mod input;
mod listing;
mod lists;
mod names;
mod oauth;
mod progress;
mod prompts;
mod resources;
mod sampling;
mod servers;
mod session_servers;
mod sse;
mod stdio;
mod supervisor;
mod tool;
mod toolset;

pub use error::McpError;
pub use oauth::Browser;
pub use servers::{McpServers, ServerStatus};
pub use toolset::{McpToolset, ToolsetOptions};
