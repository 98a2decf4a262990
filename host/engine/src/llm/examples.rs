//! Examples that show a model how to answer, as it is told them.

use hatchery_core::{CallContext, Content, Example, Examples, PartData, RunError};
use serde_json::Value;

/// What the model is told, if there are examples for what the user says.
pub(super) async fn instruction(examples: Option<&Examples>, cx: &CallContext) -> Result<Option<String>, RunError> {
    match examples {
        None => Ok(None),
        Some(Examples::Fixed(examples)) => Ok(told(examples)),
        Some(Examples::Chosen(provider)) => {
            let query = cx.invocation.user_content().text();
            Ok(told(&provider.examples(&query, cx).await?))
        }
    }
}

/// The examples as a text; nothing when there are none.
pub(crate) fn told(examples: &[Example]) -> Option<String> {
    if examples.is_empty() {
        return None;
    }
    let mut text = String::from("<EXAMPLES>\nThese conversations show how you are to answer.\n");
    for (index, example) in examples.iter().enumerate() {
        text.push_str(&format!("\nEXAMPLE {}:\n[user]\n{}\n", index + 1, example.input.text()));
        example.output.iter().for_each(|content| tell(content, &mut text));
    }
    text.push_str("</EXAMPLES>");
    Some(text)
}

fn tell(content: &Content, text: &mut String) {
    text.push_str(&format!("[{}]\n", content.role.as_deref().unwrap_or("model")));
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
