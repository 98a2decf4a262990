//! The tools that a server lists. Tools that no agent could use are omitted, with a warning.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::FunctionDeclaration;
use hatchery_engine::validation::schema_error;
use rmcp::model::Tool;
use rmcp::service::ServiceError;
use serde_json::Value;

use super::McpError;
use super::connection::Connection;
use super::lists::fetch_pages;

/// Attempts to list the tools, and the time between them.
const ATTEMPTS: u32 = 3;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Maximum length of a tool's name in bytes.
const MAX_NAME: usize = 256;

/// The tools of a server.
pub(super) struct ToolListing {
    pub(super) tools: Vec<ListedTool>,
}

/// A tool of a server.
pub(super) struct ListedTool {
    /// The name, description and schemas, as the server declares them.
    pub(super) declaration: Arc<FunctionDeclaration>,
    /// True if the server declares the tool idempotent.
    pub(super) is_idempotent: bool,
}

impl ToolListing {
    /// Lists the tools, with retries. Empty if the server declares that it only offers resources or prompts.
    pub(super) async fn fetch(connection: &Connection) -> Result<Self, McpError> {
        if connection.has_no_tools() {
            return Ok(Self { tools: Vec::new() });
        }
        let mut attempt = 1;
        loop {
            match list(connection).await {
                Ok(tools) => return Ok(Self { tools: usable(&connection.server, tools) }),
                Err(_) if connection.is_closed() => return Err(connection.failure()),
                Err(error) if attempt == ATTEMPTS => {
                    return Err(McpError::Listing { what: "tools", reason: error });
                }
                Err(error) => tracing::debug!(server = &*connection.server, attempt, "listing tools: {error}"),
            }
            attempt += 1;
            tokio::time::sleep(RETRY_DELAY).await;
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.declaration.name.as_str())
    }
}

async fn list(connection: &Connection) -> Result<Vec<Tool>, String> {
    let max = connection.limits.max_tools;
    let too_many = format!("there are more than {max} tools; raise `max_tools` to allow more");
    let pages = fetch_pages(connection, max, &too_many, |params| async move {
        let page = connection.peer.list_tools(params).await?;
        Ok::<_, ServiceError>((page.tools, page.next_cursor))
    });
    pages.await
}

/// Converts the tools that models can use.
fn usable(server: &str, tools: Vec<Tool>) -> Vec<ListedTool> {
    let mut names = BTreeSet::new();
    let tools = tools.into_iter().filter_map(|tool| {
        let name = tool.name.to_string();
        let listed = convert(tool).and_then(|listed| {
            if names.insert(name.clone()) {
                Ok(listed)
            } else {
                Err("the server lists another tool of this name".into())
            }
        });
        let warn =
            |reason: &String| tracing::warn!(server, tool = name, "a tool of an MCP server is left out: {reason}");
        listed.inspect_err(warn).ok()
    });
    tools.collect()
}

fn convert(tool: Tool) -> Result<ListedTool, String> {
    check_name(&tool.name)?;
    let parameters = Value::Object((*tool.input_schema).clone());
    if let Some(reason) = schema_error(&parameters) {
        return Err(format!("the schema of its parameters is invalid: {reason}"));
    }
    let response = tool.output_schema.map(|schema| Value::Object((*schema).clone()));
    if let Some(reason) = response.as_ref().and_then(schema_error) {
        return Err(format!("the schema of its result is invalid: {reason}"));
    }
    let hints = tool.annotations.unwrap_or_default();
    let declaration = FunctionDeclaration {
        name: tool.name.into_owned(),
        description: tool.description.unwrap_or_default().into_owned(),
        parameters: Some(parameters),
        response,
    };
    Ok(ListedTool {
        declaration: Arc::new(declaration),
        is_idempotent: hints.read_only_hint == Some(true) || hints.idempotent_hint == Some(true),
    })
}

fn check_name(name: &str) -> Result<(), String> {
    let is_refused = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if name.is_empty() || name.len() > MAX_NAME || name.contains(is_refused) {
        return Err(format!("a name has 1 to {MAX_NAME} bytes, and no control characters or line separators"));
    }
    // The engine's own calls have such names.
    if name.starts_with("adk_") {
        return Err("names that begin with `adk_` are reserved".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_operators_or_the_engine_would_misread_are_refused() {
        for name in ["read_file", "notes.add", "_x", "a-b:c", "1st", "read file", "naïve", &"x".repeat(256)] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
        for name in ["", "drop\ntable", "drop\u{2028}table", "adk_request_confirmation", &"x".repeat(257)] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
