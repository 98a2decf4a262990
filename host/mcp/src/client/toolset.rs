//! The tools of a server as a toolset of an agent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, Content, FunctionDeclaration, JsonMap, LlmRequest, Part, RunError, Tool, Toolset};
use serde_json::Value;

use super::content::{FILES, artifact_prefix};
use super::listing::{ListedTool, ToolListing};
use super::names::model_names;
use super::resources::{LOAD_RESOURCE, LoadResource};
use super::servers::SharedServer;
use super::session_servers::ServerInUse;
use super::supervisor::Server;
use super::tool::McpTool;
use super::{Browser, McpError};
use crate::config::{Confirmation, ServerConfig};

/// Selection of a server's tools for an agent, with its settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolsetOptions {
    /// The tools to include, by the names that the server knows. `None` includes all that the server's settings allow.
    pub tools: Option<BTreeSet<String>>,
    /// Text before the names of tools, as models see them. Characters that models do not accept become `_`.
    pub prefix: String,
    /// The tools whose calls a person must confirm, in addition to the tools of the server's settings.
    pub confirmation: Confirmation,
    /// True if the model may load resources of the server.
    pub resources: bool,
    /// The prompts of the server that are instructions of the agent. Their arguments are from the session's state.
    pub prompts: Vec<String>,
}

/// The tools of an MCP server. Images, audio and other files that they return are stored as artifacts and shown to the
/// model once.
pub struct McpToolset {
    name: String,
    server: Arc<Server>,
    options: ToolsetOptions,
    /// The tool that loads resources, unless the options or the server's settings leave it out.
    load_resource: Option<Arc<dyn Tool>>,
    /// The server, while others share it. `None` if the toolset has its own server.
    shared: Option<Arc<SharedServer>>,
    /// The tools that were created last, for the listing that they were created from.
    created: Mutex<Option<CreatedTools>>,
}

/// Tools, and the listing that they were created from.
type CreatedTools = (Arc<ToolListing>, Vec<Arc<dyn Tool>>);

impl McpToolset {
    /// Creates a toolset with its own server, for agents in code. [`Toolset::close`] ends the connection.
    pub fn new(server: impl Into<Arc<str>>, config: ServerConfig, options: ToolsetOptions) -> Self {
        Self::from_parts(Server::new(server, config), None, options)
    }

    /// Creates a toolset of a server that others use too.
    pub(super) fn with_server(server: &Arc<SharedServer>, options: ToolsetOptions) -> Self {
        Self::from_parts(Arc::clone(&**server), Some(server.clone()), options)
    }

    fn from_parts(server: Arc<Server>, shared: Option<Arc<SharedServer>>, options: ToolsetOptions) -> Self {
        let name = format!("mcp:{}", server.name);
        let is_offered = options.resources && includes(&server.config.tools, LOAD_RESOURCE);
        let load_resource = is_offered.then(|| {
            let is_confirmed = [&server.config.confirmation, &options.confirmation];
            let is_confirmed = is_confirmed.iter().any(|confirmation| confirmation.is_required(LOAD_RESOURCE));
            Arc::new(LoadResource::new(server.clone(), &options.prefix, is_confirmed)) as Arc<dyn Tool>
        });
        Self { name, server, options, load_resource, shared, created: Mutex::default() }
    }

    /// Lets a person grant the host access to the server, if the server demands that.
    ///
    /// # Errors
    /// If the server is down for another reason, has no settings for it, or access is not granted.
    pub async fn login(&self, browser: &dyn Browser) -> Result<(), McpError> {
        self.server.login(browser).await
    }

    /// Returns the server for the session of a call, its tools, and whether it has resources.
    async fn list_tools(&self, cx: &CallContext) -> Result<(ServerInUse, Arc<ToolListing>, bool), McpError> {
        let server = self.server.for_session(cx).await?;
        let connection = server.connection().await?;
        Ok((server, connection.tools().await?, connection.has_resources()))
    }

    fn create(&self, server: &ServerInUse, listing: &ToolListing) -> Vec<Arc<dyn Tool>> {
        // Names of all tools, because a name must not depend on the selection.
        let other =
            self.load_resource.as_ref().map(|_| LOAD_RESOURCE).filter(|name| listing.names().all(|it| it != *name));
        let names = |prefix: &str| {
            let names: Vec<_> = listing.names().chain(other).map(|name| format!("{prefix}{name}")).collect();
            model_names(&names)
        };
        let artifact_names = names("");
        let prefix = &self.options.prefix;
        let model_names = if prefix.is_empty() { artifact_names.clone() } else { names(prefix) };
        let named = listing.tools.iter().zip(model_names).zip(artifact_names);
        let included = named.filter(|((tool, _), _)| {
            let name = &tool.declaration.name;
            includes(&self.server.config.tools, name) && includes(&self.options.tools, name)
        });
        let create = |((tool, model_name), artifact_name)| {
            Arc::new(self.tool(server, tool, model_name, artifact_name)) as Arc<dyn Tool>
        };
        included.map(create).collect()
    }

    fn tool(&self, server: &ServerInUse, tool: &ListedTool, model_name: String, artifact_name: String) -> McpTool {
        let name = tool.declaration.name.clone();
        let declaration = if model_name == name {
            tool.declaration.clone()
        } else {
            let declaration = FunctionDeclaration::clone(&tool.declaration);
            Arc::new(FunctionDeclaration { name: model_name, ..declaration })
        };
        McpTool {
            server: server.clone(),
            declaration,
            requires_confirmation: self.server.config.confirmation.is_required(&name)
                || self.options.confirmation.is_required(&name),
            is_idempotent: tool.is_idempotent,
            name,
            artifact_name,
        }
    }
}

#[async_trait]
impl Toolset for McpToolset {
    fn name(&self) -> &str {
        &self.name
    }

    async fn tools(&self, cx: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let listing = self.list_tools(cx).await;
        let (server, listing, has_resources) = listing.map_err(|error| self.server.unavailable(&error))?;
        let mut created = self.created.lock_unpoisoned();
        let mut tools = match created.as_ref() {
            Some((created_from, tools)) if Arc::ptr_eq(created_from, &listing) => tools.clone(),
            _ => {
                let tools = self.create(&server, &listing);
                *created = Some((listing, tools.clone()));
                tools
            }
        };
        tools.extend(self.load_resource.clone().filter(|_| has_resources));
        Ok(tools)
    }

    /// Adds the instructions, and the files that the last calls have returned.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        if !self.options.prompts.is_empty() {
            let server = self.server.for_session(cx).await.map_err(|error| self.server.unavailable(&error))?;
            for prompt in &self.options.prompts {
                request.system_instructions.push(server.instruction(prompt, cx).await?);
            }
        }
        for (name, version) in returned_files(request, &artifact_prefix(&self.server.name)) {
            if let Some(part) = cx.load_artifact(&name, Some(version)).await? {
                let parts = vec![Part::text(format!("Artifact {name} is:")), part];
                request.contents.push_back(Arc::new(Content::new("user", parts)));
            }
        }
        Ok(())
    }

    async fn close(&self) {
        if self.shared.is_none() {
            self.server.close().await;
        }
    }
}

/// Returns true if the names include this one. `None` includes all.
fn includes(names: &Option<BTreeSet<String>>, name: &str) -> bool {
    names.as_ref().is_none_or(|names| names.contains(name))
}

/// Returns the artifacts in the responses to the model's last calls whose names begin with `prefix`, with versions.
fn returned_files(request: &LlmRequest, prefix: &str) -> Vec<(String, u64)> {
    let after_model = request.contents.iter().rev().take_while(|content| content.role.as_deref() != Some("model"));
    let responses = after_model.flat_map(|content| content.function_responses()).map(|response| &response.response);
    let files = responses.filter_map(|response| response.get(FILES)?.as_array()).flatten();
    let artifact = |file: &Value| {
        let file: &JsonMap = file.as_object()?;
        let name = file.get("artifact")?.as_str().filter(|name| name.starts_with(prefix))?;
        Some((name.to_owned(), file.get("version")?.as_u64()?))
    };
    files.filter_map(artifact).collect()
}
