//! Few-shot examples in the system instruction.

use hatchery_core::{CallContext, Content, Example, Examples, PartData, RunError};
use serde_json::Value;

/// Returns the instruction with the agent's examples. `None` if there are none for the user's message.
pub(super) async fn instruction(examples: Option<&Examples>, cx: &CallContext) -> Result<Option<String>, RunError> {
    match examples {
        None => Ok(None),
        Some(Examples::Fixed(examples)) => Ok(format_examples(examples)),
        Some(Examples::Chosen(provider)) => {
            let query = cx.invocation.user_content().text();
            Ok(format_examples(&provider.examples(&query, cx).await?))
        }
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
