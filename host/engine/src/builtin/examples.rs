//! Few-shot examples.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Example, FunctionDeclaration, JsonMap, LlmRequest, PartData, RunError, Tool, ToolError,
};
use serde_json::Value;

use super::declaration;

/// Shows the model examples before it is asked. The model does not see a tool.
pub struct ExampleTool {
    declaration: Arc<FunctionDeclaration>,
    text: String,
}

impl ExampleTool {
    /// Shows these.
    pub fn new(examples: &[Example]) -> Self {
        Self { declaration: declaration("example_tool", "Shows examples.", None), text: told(examples) }
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

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        request.system_instructions.push(self.text.clone());
        Ok(())
    }

    async fn call(&self, _: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Err(ToolError::Model("`example_tool` only shows examples and cannot be called".into()))
    }
}

fn told(examples: &[Example]) -> String {
    let mut text = String::from("<EXAMPLES>\nThese conversations show how you are to answer.\n");
    for (index, example) in examples.iter().enumerate() {
        text.push_str(&format!("\nEXAMPLE {}:\n[user]\n{}\n", index + 1, example.input.text()));
        for content in &example.output {
            let speaker = content.role.as_deref().unwrap_or("model");
            text.push_str(&format!("[{speaker}]\n"));
            for part in &content.parts {
                match &part.data {
                    PartData::Text(said) => text.push_str(&format!("{said}\n")),
                    PartData::FunctionCall(call) => {
                        text.push_str(&format!("calls {}({})\n", call.name, Value::Object(call.args.clone())));
                    }
                    PartData::FunctionResponse(answer) => {
                        text.push_str(&format!("{} answers {}\n", answer.name, Value::Object(answer.response.clone())));
                    }
                    PartData::Other
                    | PartData::InlineData(_)
                    | PartData::FileData(_)
                    | PartData::ExecutableCode(_)
                    | PartData::CodeExecutionResult(_) => {}
                }
            }
        }
    }
    text.push_str("</EXAMPLES>");
    text
}
