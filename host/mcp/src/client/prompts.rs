//! Prompts of a server as instructions of an agent.

use std::sync::Arc;

use hatchery_core::{CallContext, JsonMap, RunError, ToolError};
use rmcp::model::{
    ClientRequest, ContentBlock, GetPromptRequest, GetPromptRequestParams, Prompt, ResourceContents, ServerResult,
};
use rmcp::service::ServiceError;
use serde_json::Value;

use super::McpError;
use super::connection::Connection;
use super::lists::fetch_pages;
use super::supervisor::Server;

/// Maximum number of prompts of a server.
const MAX_PROMPTS: usize = 1000;

impl Server {
    /// Returns the text of a prompt. Its arguments are the values of the same names in the session's state.
    ///
    /// # Errors
    /// If the server is down, has no such prompt or refuses it, or an argument is missing.
    pub(super) async fn instruction(self: &Arc<Self>, name: &str, cx: &CallContext) -> Result<String, RunError> {
        let connection = self.connection().await.map_err(|error| self.unavailable(&error))?;
        let text = self.prompt(&connection, name, cx).await;
        text.map_err(|reason| self.unavailable(&McpError::Prompt { name: name.into(), reason }))
    }

    async fn prompt(&self, connection: &Connection, name: &str, cx: &CallContext) -> Result<String, String> {
        let prompts = connection.prompts().await.map_err(|error| error.to_string())?;
        let Some(prompt) = prompts.iter().find(|prompt| prompt.name == name) else {
            let names: Vec<_> = prompts.iter().map(|prompt| format!("`{}`", prompt.name)).collect();
            return Err(format!("there is no such prompt; there are: {}", names.join(", ")));
        };
        let params = GetPromptRequestParams::new(name).with_arguments(arguments(prompt, cx)?);
        let request = ClientRequest::GetPromptRequest(GetPromptRequest::new(params));
        let result = self.request(connection, request, &format!("the prompt `{name}`"), name, cx).await;
        let result = match result.map_err(|error| match error {
            ToolError::Recoverable(message) | ToolError::Fatal { message, .. } => message,
        })? {
            ServerResult::GetPromptResult(result) => result,
            _ => return Err("the server's answer is not a prompt".into()),
        };
        let texts: Vec<_> = result.messages.into_iter().filter_map(|message| text(message.content)).collect();
        if texts.is_empty() { Err("it has no text".into()) } else { Ok(texts.join("\n\n")) }
    }
}

/// Lists the prompts of a server.
pub(super) async fn fetch(connection: &Connection) -> Result<Vec<Prompt>, McpError> {
    let too_many = format!("there are more than {MAX_PROMPTS}");
    let pages = fetch_pages(connection, MAX_PROMPTS, &too_many, |params| async move {
        let page = connection.peer.list_prompts(params).await?;
        Ok::<_, ServiceError>((page.prompts, page.next_cursor))
    });
    pages.await.map_err(|reason| McpError::Listing { what: "prompts", reason })
}

/// Returns the arguments of a prompt, which are texts.
fn arguments(prompt: &Prompt, cx: &CallContext) -> Result<JsonMap, String> {
    let mut arguments = JsonMap::new();
    for argument in prompt.arguments.iter().flatten() {
        let value = match cx.state(&argument.name) {
            Some(Value::String(text)) => text,
            Some(Value::Null) | None if argument.required == Some(true) => {
                return Err(format!("its argument `{}` is not in the state of the session", argument.name));
            }
            Some(Value::Null) | None => continue,
            Some(other) => other.to_string(),
        };
        arguments.insert(argument.name.clone(), value.into());
    }
    Ok(arguments)
}

/// Returns the text of a message. `None` for images and other files.
fn text(content: ContentBlock) -> Option<String> {
    match content {
        ContentBlock::Text(text) => Some(text.text),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}
