//! `ExampleTool`: few-shot examples in the system instructions.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Content, Example, ExampleProvider, FunctionDeclaration, JsonMap, LlmRequest, PartData, RunError, Tool,
    ToolError,
};
use serde_json::Value;

use super::declaration;

/// Adds few-shot examples to each request. The model cannot call it.
pub struct ExampleTool {
    declaration: Arc<FunctionDeclaration>,
    examples: Source,
}

/// The source of the examples.
enum Source {
    /// The text of fixed examples; `None` if there are none.
    Text(Option<String>),
    /// A provider, which selects them for each request.
    Provider(Arc<dyn ExampleProvider>),
}

impl ExampleTool {
    /// Creates a tool for these examples.
    pub fn new(examples: &[Example]) -> Self {
        Self::from_source(Source::Text(format_examples(examples)))
    }

    /// Creates a tool for the examples that a provider selects for the user's message.
    pub fn from_provider(provider: Arc<dyn ExampleProvider>) -> Self {
        Self::from_source(Source::Provider(provider))
    }

    fn from_source(examples: Source) -> Self {
        Self { declaration: declaration("example_tool", "Shows examples.", None), examples }
    }
}

#[async_trait]
impl Tool for ExampleTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    fn is_callable(&self) -> bool {
        false
    }

    async fn prepare(&self, request: &mut LlmRequest, cx: &CallContext) -> Result<(), RunError> {
        let text = match &self.examples {
            Source::Text(text) => text.clone(),
            Source::Provider(provider) => {
                format_examples(&provider.examples(&cx.invocation.user_content().text(), cx).await?)
            }
        };
        request.system_instructions.extend(text);
        Ok(())
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Err(ToolError::Recoverable("`example_tool` only shows examples and cannot be called".into()))
    }
}

/// Returns the examples as text, or `None` if the list is empty.
pub(crate) fn format_examples(examples: &[Example]) -> Option<String> {
    if examples.is_empty() {
        return None;
    }
    let mut text = String::from("<EXAMPLES>\nThese conversations show how you are to answer.\n");
    for (index, example) in examples.iter().enumerate() {
        text.push_str(&format!("\nEXAMPLE {}:\n[user]\n{}\n", index + 1, example.input.text()));
        example.output.iter().for_each(|content| write_content(content, &mut text));
    }
    text.push_str("</EXAMPLES>");
    Some(text)
}

fn write_content(content: &Content, text: &mut String) {
    text.push_str(&format!("[{}]\n", content.role.as_deref().unwrap_or("model")));
    for part in &content.parts {
        match &part.data {
            PartData::Text(line) => text.push_str(&format!("{line}\n")),
            PartData::FunctionCall(call) => {
                text.push_str(&format!("calls {}({})\n", call.name, Value::Object(call.args.clone())));
            }
            PartData::FunctionResponse(response) => {
                text.push_str(&format!("{} answers {}\n", response.name, Value::Object(response.response.clone())));
            }
            PartData::Other
            | PartData::InlineData(_)
            | PartData::FileData(_)
            | PartData::ExecutableCode(_)
            | PartData::CodeExecutionResult(_) => {}
        }
    }
}
