//! `load_memory` and `preload_memory`: search in the user's earlier sessions.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Content, FunctionDeclaration, JsonMap, LlmRequest, MemoryEntry, RunError, Tool, ToolError,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::declaration;

/// Lets the model search the user's memory.
pub struct LoadMemory(Arc<FunctionDeclaration>);

impl Default for LoadMemory {
    fn default() -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {"query": {"type": "string", "description": "Words to look for."}},
            "required": ["query"]
        });
        Self(declaration(
            "load_memory",
            "Finds what was said in earlier conversations with the user.",
            Some(parameters),
        ))
    }
}

#[async_trait]
impl Tool for LoadMemory {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        request.tools.push(self.0.clone());
        let text = "You have a memory of earlier conversations with the user. When a question may need it, call `load_memory`.";
        request.system_instructions.push(text.into());
        Ok(())
    }

    async fn call(&self, args: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        let query = args.get("query").and_then(Value::as_str).unwrap_or_default();
        let found = cx.search_memory(query).await?;
        let memories: Vec<_> = found.iter().map(Memory::from).collect();
        Ok(json!({ "memories": memories }))
    }
}

/// An entry for a model, which cannot read the time as a number of seconds.
#[derive(Serialize)]
struct Memory<'a> {
    content: &'a Content,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<&'a str>,
    /// In ISO 8601, as in ADK's `MemoryEntry`.
    timestamp: String,
}

impl<'a> From<&'a MemoryEntry> for Memory<'a> {
    fn from(entry: &'a MemoryEntry) -> Self {
        let MemoryEntry { content, author, timestamp } = entry;
        Self { content, author: author.as_deref(), timestamp: timestamp.to_iso_millis() }
    }
}

/// Searches memory for the user's message before each model call, and adds the results to the system instructions. The
/// model cannot call it.
pub struct PreloadMemory(Arc<FunctionDeclaration>);

impl Default for PreloadMemory {
    fn default() -> Self {
        Self(declaration("preload_memory", "Runs before the model is asked.", None))
    }
}

#[async_trait]
impl Tool for PreloadMemory {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    fn is_callable(&self) -> bool {
        false
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let query = cx.invocation.user_content().text();
        if query.is_empty() {
            return Ok(());
        }
        let memories = cx.search_memory(&query).await?;
        if !memories.is_empty() {
            request.system_instructions.push(instruction(&memories));
        }
        Ok(())
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Err(ToolError::Recoverable("`preload_memory` runs by itself and cannot be called".into()))
    }
}

fn instruction(memories: &[MemoryEntry]) -> String {
    let mut text = String::from("From earlier conversations with the user, possibly of use:\n<PAST_CONVERSATIONS>\n");
    for memory in memories {
        let author = memory.author.as_deref().unwrap_or("somebody");
        let time = memory.timestamp.to_iso_millis();
        text.push_str(&format!("Time: {time}\n{author}: {}\n", memory.content.text()));
    }
    text.push_str("</PAST_CONVERSATIONS>");
    text
}
