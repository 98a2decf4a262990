//! The Model Context Protocol (MCP). As a client it offers the tools of MCP servers to agents; as a server it offers
//! the apps and tools of a host to MCP clients.
//!
//! Clients: [`McpServers`] holds one connection per configured server, and [`McpToolset`] offers the tools of one of
//! them. Servers: [`McpService`] answers over streamable HTTP and over standard input and output. The crate `rmcp`
//! implements the protocol itself.

mod client;
mod config;
mod messages;
mod server;

pub use client::{Browser, McpError, McpServers, McpToolset, ServerStatus, ToolsetOptions};
pub use config::{
    Confirmation, Handshake, HeaderProvider, HttpServer, Limits, OAuthConfig, OAuthGrant, Sampling, ServerConfig,
    StateHeaders, StdioServer, StoredTokens, Transport,
};
pub use hatchery_egress::{Egress, Url};
pub use server::{
    ExposedMessage, ExposedPrompt, Exposure, FileResource, McpCatalog, McpEndpoint, McpService, PromptContent,
    PromptParameter, TOOL_CALL_APP, client_user, is_reserved_user,
};
