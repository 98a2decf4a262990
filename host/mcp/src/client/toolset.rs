//! The tools of a server as a toolset of an agent.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::sync::MutexExt;
use hatchery_core::{
    CallContext, Content, FunctionDeclaration, ItemKind, JsonMap, LlmRequest, MCP_UNAVAILABLE, Part, RunError, Tool,
    Toolset,
};
use serde_json::Value;

use super::content::FILES;
use super::listing::{ListedTool, ToolListing};
use super::supervisor::Server;
use super::tool::{McpTool, artifact_prefix};
use super::{Browser, McpError};
use crate::config::{Confirmation, ServerConfig};

/// Which tools of a server an agent uses, and how.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolsetOptions {
    /// The tools to include, by the names that the server knows. `None` includes all that the server's settings allow.
    pub tools: Option<BTreeSet<String>>,
    /// Text before the names of tools, as models see them.
    pub prefix: String,
    /// The tools whose calls a person must confirm, in addition to those of the server's settings.
    pub confirmation: Confirmation,
}

/// The tools of an MCP server. Images, audio and other files that they return are stored as artifacts and shown to the
/// model once.
pub struct McpToolset {
    name: String,
    server: Arc<Server>,
    options: ToolsetOptions,
    /// True if no other toolset uses the server.
    owns_server: bool,
    /// The tools that were created last, for the listing that they were created from.
    created: Mutex<Option<CreatedTools>>,
}

/// Tools, and the listing that they were created from.
type CreatedTools = (Arc<ToolListing>, Vec<Arc<dyn Tool>>);

impl McpToolset {
    /// Creates a toolset with a server of its own, for agents in code. [`Toolset::close`] ends the connection.
    pub fn new(server: impl Into<Arc<str>>, config: ServerConfig, options: ToolsetOptions) -> Self {
        Self { owns_server: true, ..Self::shared(Server::new(server, config), options) }
    }

    /// Creates a toolset of a server that others use too.
    pub(super) fn shared(server: Arc<Server>, options: ToolsetOptions) -> Self {
        let name = format!("mcp:{}", server.name);
        Self { name, server, options, owns_server: false, created: Mutex::default() }
    }

    /// Lets a person grant the host access to the server, if the server demands that.
    ///
    /// # Errors
    /// If the server is down for another reason, has no settings for it, or access is not granted.
    pub async fn login(&self, browser: &dyn Browser) -> Result<(), McpError> {
        self.server.login(browser).await
    }

    async fn listing(&self) -> Result<Arc<ToolListing>, McpError> {
        self.server.connection().await?.tools().await
    }

    fn create(&self, listing: &ToolListing) -> Vec<Arc<dyn Tool>> {
        let is_included = |tool: &&ListedTool| {
            let name = &tool.declaration.name;
            let is_in = |names: &Option<BTreeSet<String>>| names.as_ref().is_none_or(|names| names.contains(name));
            is_in(&self.server.config.tools) && is_in(&self.options.tools)
        };
        let create = |tool: &ListedTool| Arc::new(self.tool(tool)) as Arc<dyn Tool>;
        listing.tools.iter().filter(is_included).map(create).collect()
    }

    fn tool(&self, tool: &ListedTool) -> McpTool {
        let name = tool.declaration.name.clone();
        let declaration = match self.options.prefix.as_str() {
            "" => tool.declaration.clone(),
            prefix => {
                let declaration = FunctionDeclaration::clone(&tool.declaration);
                Arc::new(FunctionDeclaration { name: format!("{prefix}{name}"), ..declaration })
            }
        };
        McpTool {
            server: self.server.clone(),
            declaration,
            requires_confirmation: self.server.config.confirmation.is_required(&name)
                || self.options.confirmation.is_required(&name),
            is_idempotent: tool.is_idempotent,
            name,
        }
    }
}

#[async_trait]
impl Toolset for McpToolset {
    fn name(&self) -> &str {
        &self.name
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        let listing = self.listing().await.map_err(|error| RunError::Extension {
            kind: ItemKind::Toolset,
            name: self.name.clone(),
            code: MCP_UNAVAILABLE.into(),
            message: format!("the MCP server `{}` is not available: {error}", self.server.name),
        })?;
        let mut created = self.created.lock_unpoisoned();
        match created.as_ref() {
            Some((of, tools)) if Arc::ptr_eq(of, &listing) => Ok(tools.clone()),
            _ => {
                let tools = self.create(&listing);
                *created = Some((listing, tools.clone()));
                Ok(tools)
            }
        }
    }

    /// Adds the files that the last calls have returned.
    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        for (name, version) in returned_files(request, &artifact_prefix(&self.server.name)) {
            if let Some(part) = cx.load_artifact(&name, Some(version)).await? {
                let parts = vec![Part::text(format!("Artifact {name} is:")), part];
                request.contents.push_back(Arc::new(Content::new("user", parts)));
            }
        }
        Ok(())
    }

    async fn close(&self) {
        if self.owns_server {
            self.server.close().await;
        }
    }
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
