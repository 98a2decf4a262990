//! The configured servers, and how agents refer to them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use hatchery_core::{JsonMap, Toolset, quoted_list};
use hatchery_engine::Extensions;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::runtime::Handle;

use super::supervisor::{ConnectionStatus, Server};
use super::toolset::{McpToolset, ToolsetOptions};
use super::{Browser, McpError};
use crate::config::{Confirmation, ServerConfig};

/// The name of the toolset in agent files, and its spellings in ADK.
const TOOLSET: &str = "McpToolset";
const ALIASES: [&str; 3] = ["mcp.McpToolset", "MCPToolset", "google.adk.tools.mcp_tool.McpToolset"];

/// The configured servers, which can be replaced. All agents share one connection to each. Cheap to clone; clones share
/// the servers.
#[derive(Clone, Default)]
pub struct McpServers {
    current: Arc<ArcSwap<ServerTable>>,
    is_started: Arc<AtomicBool>,
}

/// The servers of one configuration.
#[derive(Clone, Default)]
struct ServerTable {
    servers: BTreeMap<String, Arc<SharedServer>>,
    /// Servers that must not be used, with the reasons.
    refusals: BTreeMap<String, String>,
}

/// A server that agents share. Its connection is closed when the configuration and all runs have dropped it.
pub(super) struct SharedServer(Arc<Server>);

impl Deref for SharedServer {
    type Target = Arc<Server>;

    fn deref(&self) -> &Arc<Server> {
        &self.0
    }
}

impl Drop for SharedServer {
    fn drop(&mut self) {
        if let Ok(runtime) = Handle::try_current() {
            let server = self.0.clone();
            runtime.spawn(async move { server.close().await });
        }
    }
}

/// The state of a server, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// The name in the configuration.
    pub name: String,
    /// `idle`, `connecting`, `ready`, `down`, `stopped` or `refused`.
    pub state: &'static str,
    /// The reason why it is down or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The names of its tools, once they have been listed.
    pub tools: Vec<String>,
}

impl McpServers {
    /// Creates the servers. No connection is opened yet.
    pub fn new(servers: impl IntoIterator<Item = (String, ServerConfig)>) -> Self {
        let shared = |(name, config): (String, _)| (name.clone(), Arc::new(SharedServer(Server::new(name, config))));
        let table = ServerTable { servers: servers.into_iter().map(shared).collect(), ..ServerTable::default() };
        Self { current: Arc::new(ArcSwap::from_pointee(table)), ..Self::default() }
    }

    /// Adds servers that must not be used. Agents that refer to them get the reason.
    #[must_use]
    pub fn with_refused(self, refusals: impl IntoIterator<Item = (String, String)>) -> Self {
        let table = ServerTable { refusals: refusals.into_iter().collect(), ..self.table() };
        Self { current: Arc::new(ArcSwap::from_pointee(table)), ..self }
    }

    /// Replaces the servers by `others`, except servers with `unchanged` names, which keep their connections. The
    /// connection to a server that is replaced is closed when the last run that uses it has ended.
    pub fn replace(&self, others: &Self, unchanged: &BTreeSet<String>) {
        let (before, mut table) = (self.current.load(), others.table());
        for (name, server) in before.servers.iter().filter(|(name, _)| unchanged.contains(*name)) {
            table.servers.insert(name.clone(), server.clone());
        }
        self.current.store(Arc::new(table));
    }

    fn table(&self) -> ServerTable {
        ServerTable::clone(&self.current.load())
    }

    /// Opens connections to servers as soon as an agent that uses them is loaded, so that problems are reported early.
    /// Without this call, they are opened when the agent runs.
    pub fn start(&self) {
        self.is_started.store(true, Ordering::Release);
    }

    /// Registers the toolset `McpToolset`, which takes arguments, and the toolset `mcp:NAME` for each server.
    pub fn register(&self, extensions: &mut Extensions) {
        let servers = self.clone();
        extensions.toolsets.register(TOOLSET, move |args| servers.toolset(None, args));
        for alias in ALIASES {
            extensions.toolsets.register_alias(alias, TOOLSET);
        }
        let table = self.current.load();
        for name in table.servers.keys().chain(table.refusals.keys()) {
            let (servers, server) = (self.clone(), name.clone());
            extensions.toolsets.register(format!("mcp:{name}"), move |args| servers.toolset(Some(&server), args));
        }
    }

    /// Creates a toolset. `server` is the name of the server if the arguments need none.
    fn toolset(&self, server: Option<&str>, args: JsonMap) -> Result<Arc<dyn Toolset>, String> {
        if let Some((key, connection)) = ToolsetArgs::INLINE.iter().find_map(|key| args.get_key_value(*key)) {
            return Err(refuse_inline(key, connection));
        }
        let args: ToolsetArgs = serde_json::from_value(Value::Object(args)).map_err(|error| error.to_string())?;
        let table = self.current.load();
        let Some(name) = server.or(args.server.as_deref()) else {
            let available = table.list_servers();
            return Err(format!("`args.server` is missing: the name of a server in hatchery.yaml; {available}"));
        };
        if let Some(refusal) = table.refusals.get(name) {
            return Err(refusal.clone());
        }
        let Some(server) = table.servers.get(name) else {
            return Err(table.unknown_server(name));
        };
        // Without a session there are no headers for it.
        if self.is_started.load(Ordering::Acquire) && server.config.header_provider.is_none() {
            server.start();
        }
        Ok(Arc::new(McpToolset::with_server(server, args.options())))
    }

    /// Returns the state of each server, by name.
    pub fn statuses(&self) -> Vec<ServerStatus> {
        let status = |(name, server): (&String, &Arc<SharedServer>)| {
            let (state, reason, tools) = match server.status() {
                ConnectionStatus::Idle => ("idle", None, Vec::new()),
                ConnectionStatus::Connecting => ("connecting", None, Vec::new()),
                ConnectionStatus::Ready(connection) => ("ready", None, connection.known_tools()),
                ConnectionStatus::Down { error, .. } => ("down", Some(error.to_string()), Vec::new()),
                ConnectionStatus::Stopped => ("stopped", None, Vec::new()),
            };
            ServerStatus { name: name.clone(), state, reason, tools }
        };
        let table = self.current.load();
        let refused_statuses = table.refusals.iter().map(|(name, reason)| ServerStatus {
            name: name.clone(),
            state: "refused",
            reason: Some(reason.clone()),
            tools: Vec::new(),
        });
        table.servers.iter().map(status).chain(refused_statuses).collect()
    }

    /// Lets a person grant the host access to a server, if the server demands that.
    ///
    /// # Errors
    /// If there is no such server, it is down for another reason, or access is not granted.
    pub async fn login(&self, name: &str, browser: &dyn Browser) -> Result<(), McpError> {
        let table = self.current.load_full();
        if let Some(refusal) = table.refusals.get(name) {
            return Err(McpError::NotConfigured(refusal.clone()));
        }
        match table.servers.get(name) {
            Some(server) => server.login(browser).await,
            None => Err(McpError::NotConfigured(table.unknown_server(name))),
        }
    }

    /// Closes the connection to one server for good, because it must not be used any more.
    pub async fn close_server(&self, name: &str) {
        let server = self.current.load().servers.get(name).cloned();
        if let Some(server) = server {
            server.close().await;
        }
    }

    /// Closes all connections, and waits until the processes of servers have ended.
    pub async fn close(&self) {
        let table = self.current.load_full();
        futures::future::join_all(table.servers.values().map(|server| server.close())).await;
    }
}

impl ServerTable {
    fn list_servers(&self) -> String {
        format!("available: {}", quoted_list(self.servers.keys()))
    }

    /// Returns the error for a name that no server has.
    fn unknown_server(&self, name: &str) -> String {
        let available = self.list_servers();
        format!("hatchery.yaml has no MCP server `{name}`; {available}; add it there below `mcp.servers`")
    }
}

/// Arguments of the toolset in agent files, in snake_case or camelCase.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsetArgs {
    server: Option<String>,
    #[serde(alias = "toolFilter")]
    tool_filter: Option<BTreeSet<String>>,
    #[serde(default, alias = "toolNamePrefix", alias = "prefix")]
    tool_name_prefix: String,
    #[serde(default, alias = "requireConfirmation")]
    require_confirmation: RequireConfirmation,
    #[serde(default, alias = "useMcpResources")]
    use_mcp_resources: bool,
    #[serde(default)]
    prompts: Vec<String>,
}

/// All tools or none, or the tools of these names.
#[derive(Deserialize)]
#[serde(untagged)]
enum RequireConfirmation {
    All(bool),
    Tools(BTreeSet<String>),
}

impl Default for RequireConfirmation {
    fn default() -> Self {
        Self::All(false)
    }
}

impl ToolsetArgs {
    /// Keys of ADK with which an agent would open its own connection.
    const INLINE: [&str; 10] = [
        "stdio_server_params",
        "stdioServerParams",
        "stdio_connection_params",
        "stdioConnectionParams",
        "sse_server_params",
        "sseServerParams",
        "sse_connection_params",
        "sseConnectionParams",
        "streamable_http_connection_params",
        "streamableHttpConnectionParams",
    ];

    fn options(self) -> ToolsetOptions {
        let confirmation = match self.require_confirmation {
            RequireConfirmation::All(true) => Confirmation::All,
            RequireConfirmation::All(false) => Confirmation::None,
            RequireConfirmation::Tools(names) => Confirmation::Tools(names),
        };
        ToolsetOptions {
            tools: self.tool_filter,
            prefix: self.tool_name_prefix,
            confirmation,
            resources: self.use_mcp_resources,
            prompts: self.prompts,
        }
    }
}

/// Returns the error for an agent file with its own connection: the reason, and the configuration to write
/// instead.
fn refuse_inline(key: &str, connection: &Value) -> String {
    let inner = connection.get("server_params").or_else(|| connection.get("serverParams")).unwrap_or(connection);
    let lines = if key.starts_with("stdio") {
        let command = inner.get("command").and_then(Value::as_str).unwrap_or("npx");
        let args = inner.get("args").map(|args| format!("      args: {args}\n")).unwrap_or_default();
        format!("      command: {}\n{args}{}", Value::from(command), variables("env", inner))
    } else {
        let transport = if key.starts_with("sse") { "      transport: sse\n" } else { "" };
        format!("      url: {}\n{transport}{}", Value::from(url(key, inner)), variables("headers", inner))
    };
    format!(
        "`{key}`: an agent cannot start a process or open a connection of its own. Add the server to hatchery.yaml:\n\n\
         mcp:\n  servers:\n    NAME:\n{lines}\nand refer to it in the agent by `args: {{server: NAME}}`"
    )
}

/// Returns the URL of a server. The URL in ADK's `SseServerParameters` does not have the endpoint of the event stream.
fn url(key: &str, params: &Value) -> String {
    let url = params.get("url").and_then(Value::as_str).unwrap_or("https://tools.example/mcp");
    if !matches!(key, "sse_server_params" | "sseServerParams") {
        return url.to_owned();
    }
    let endpoint = ["sse_endpoint", "sseEndpoint"].iter().find_map(|key| params.get(*key)?.as_str()).unwrap_or("sse");
    let path = format!("/{}", endpoint.trim_start_matches('/'));
    if url.ends_with(&path) { url.to_owned() } else { url.trim_end_matches('/').to_owned() + &path }
}

/// Returns the lines for a map of the configuration, with variables of the host instead of its values. These are often
/// secrets, which an error must not repeat. Empty if there is no such map.
fn variables(key: &str, params: &Value) -> String {
    let Some(entries) = params.get(key).and_then(Value::as_object).filter(|entries| !entries.is_empty()) else {
        return String::new();
    };
    let variable = |name: &str| name.to_ascii_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let lines =
        entries.keys().map(|name| format!("        {}: {{from: {}}}\n", Value::from(name.as_str()), variable(name)));
    format!("      {key}:\n{}", lines.collect::<String>())
}
