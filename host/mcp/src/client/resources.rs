//! Resources of a server, which a model loads by name.

use std::borrow::Cow;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, FunctionDeclaration, JsonMap, LlmRequest, RunError, Tool, ToolError, excerpt};
use rmcp::model::{
    CallToolResult, ClientRequest, ContentBlock, EmbeddedResource, ReadResourceRequest, ReadResourceRequestParams,
    Resource, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use super::McpError;
use super::connection::Connection;
use super::content;
use super::lists::fetch_pages;
use super::names::valid_name;
use super::supervisor::Server;

/// The name of the tool, as in ADK.
pub(super) const LOAD_RESOURCE: &str = "load_mcp_resource";

/// Maximum number of resources of a server.
const MAX_RESOURCES: usize = 1000;

/// Maximum number of resources that are listed for a model. It can load others by their URIs.
const MAX_SHOWN: usize = 100;

/// Maximum number of resources of one call.
const MAX_LOADED: usize = 16;

/// Maximum size in bytes of a description that a model is shown.
const MAX_DESCRIPTION: usize = 200;

/// Loads resources for the model, and lists them in the system instructions.
pub(super) struct LoadResource {
    server: Arc<Server>,
    declaration: Arc<FunctionDeclaration>,
    requires_confirmation: bool,
}

impl LoadResource {
    pub(super) fn new(server: Arc<Server>, prefix: &str, requires_confirmation: bool) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {"resource_names": {
                "type": "array", "items": {"type": "string"}, "maxItems": MAX_LOADED,
                "description": "The names of the resources, or their URIs.",
            }},
            "required": ["resource_names"],
        });
        let declaration = FunctionDeclaration {
            name: valid_name(&format!("{prefix}{LOAD_RESOURCE}")),
            description: format!("Loads resources of the MCP server {}.", server.name),
            parameters: Some(parameters),
            response: None,
        };
        Self { server, declaration: Arc::new(declaration), requires_confirmation }
    }

    async fn read(&self, connection: &Connection, uri: &str, cx: &CallContext) -> Result<Vec<ContentBlock>, ToolError> {
        let request = ReadResourceRequest::new(ReadResourceRequestParams::new(uri));
        let what = format!("the request for `{}`", excerpt(uri, MAX_DESCRIPTION));
        let request = ClientRequest::ReadResourceRequest(request);
        match self.server.request(connection, request, &what, &self.declaration.name, cx).await? {
            ServerResult::ReadResourceResult(result) => {
                let blocks = result.contents.into_iter().map(EmbeddedResource::new).map(ContentBlock::Resource);
                Ok(blocks.collect())
            }
            _ => Err(self.server.call_error(connection, &what, &ServiceError::UnexpectedResponse)),
        }
    }
}

#[async_trait]
impl Tool for LoadResource {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        format!("mcp:{}/{LOAD_RESOURCE}", self.server.name).into()
    }

    fn requires_confirmation(&self) -> bool {
        self.requires_confirmation
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        request.tools.push(self.declaration.clone());
        let resources = async { self.server.for_session(cx).await?.connection().await?.resources().await };
        let resources = resources.await.map_err(|error| self.server.unavailable(&error))?;
        if resources.is_empty() {
            return Ok(());
        }
        let shown: Vec<_> = resources.iter().take(MAX_SHOWN).map(describe).collect();
        let count = if resources.len() > MAX_SHOWN {
            format!("{} resources; the first {MAX_SHOWN} are", resources.len())
        } else {
            "these resources:".into()
        };
        request.system_instructions.push(format!(
            "The MCP server {} has {count} {}. When a question is about one, call `{}` before you answer; do not guess what it \
             holds.",
            self.server.name,
            json!(shown),
            self.declaration.name
        ));
        Ok(())
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let names = args.get("resource_names").and_then(Value::as_array).into_iter().flatten();
        let names: Vec<&str> = names.filter_map(Value::as_str).collect();
        if names.is_empty() || names.len() > MAX_LOADED {
            let message = format!("`resource_names` must have one to {MAX_LOADED} names or URIs");
            return Err(ToolError::Recoverable(message));
        }
        let connect = async {
            let server = self.server.for_session(cx).await?;
            let connection = server.connection().await?;
            let resources = connection.resources().await?;
            Ok::<_, McpError>((server, connection, resources))
        };
        let (_in_use, connection, resources) = connect.await.map_err(|error| {
            let (server, reason) = (&self.server.name, error.for_callers());
            ToolError::Recoverable(format!("the resources of the MCP server `{server}` are not available: {reason}"))
        })?;
        let mut blocks = Vec::new();
        for name in names {
            let uri = resolve(&resources, name).map_err(ToolError::Recoverable)?;
            blocks.extend(self.read(&connection, uri, cx).await?);
        }
        let converted = content::convert(CallToolResult::success(blocks)).map_err(ToolError::Recoverable)?;
        content::respond(converted, &self.server.name, LOAD_RESOURCE, cx).await
    }
}

/// Lists the resources of a server.
pub(super) async fn fetch(connection: &Connection) -> Result<Vec<Resource>, McpError> {
    if !connection.has_resources() {
        return Ok(Vec::new());
    }
    let too_many = format!("there are more than {MAX_RESOURCES}");
    let pages = fetch_pages(connection, MAX_RESOURCES, &too_many, |params| async move {
        let page = connection.peer.list_resources(params).await?;
        Ok::<_, ServiceError>((page.resources, page.next_cursor))
    });
    pages.await.map_err(|reason| McpError::Listing { what: "resources", reason })
}

/// Returns the URI of a resource that a model has named.
fn resolve<'a>(resources: &'a [Resource], name: &'a str) -> Result<&'a str, String> {
    if let Some(resource) = resources.iter().find(|resource| resource.name == name || resource.uri == name) {
        return Ok(&resource.uri);
    }
    // A resource of a template is in no list.
    if name.split_once(':').is_some_and(|(scheme, _)| !scheme.is_empty() && !scheme.contains(char::is_whitespace)) {
        return Ok(name);
    }
    let names: Vec<_> = resources.iter().take(MAX_SHOWN).map(|resource| &resource.name).collect();
    Err(format!("there is no resource `{}`; there are {}", excerpt(name, MAX_DESCRIPTION), json!(names)))
}

fn describe(resource: &Resource) -> Value {
    let mut described = json!({"name": resource.name, "uri": resource.uri});
    if let Some(described) = described.as_object_mut() {
        let description = resource.description.as_deref().map(|text| excerpt(text, MAX_DESCRIPTION));
        let details = [("description", description), ("mimeType", resource.mime_type.clone())];
        described.extend(details.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?.into()))));
    }
    described
}
