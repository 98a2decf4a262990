//! Callbacks: one for each hook.

use hatchery_guest::prelude::*;

/// Counts the visits, and answers instead of the butler if the house is closed.
#[callback(before_agent)]
pub async fn welcome(cx: CallbackContext) -> Result<Option<Content>, Error> {
    if cx.user_content()?.text().contains("closed") {
        return Ok(Some(Content::model("The house is closed.")));
    }
    let visits = cx.state::<u32>("visits")?.unwrap_or(0) + 1;
    cx.set_state("visits", visits)?;
    Ok(None)
}

/// Records that the user was served, and answers a good bye.
#[callback(after_agent)]
pub async fn farewell(cx: CallbackContext) -> Result<Option<Content>, Error> {
    cx.set_state("served", true)?;
    Ok(cx.user_content()?.text().contains("good bye").then(|| Content::model("Do come again.")))
}

/// Adds an instruction to be brief, and answers messages that need no model.
#[callback(before_model)]
pub async fn house_rules(request: &mut LlmRequest) -> Result<Option<LlmResponse>, Error> {
    if request.contents.iter().any(|content| content.text().contains("opening hours")) {
        return Ok(Some(LlmResponse::text("From nine to five.")));
    }
    request.system_instructions.push("Answer in one sentence.".into());
    Ok(None)
}

/// Redacts the combination of the safe.
#[callback(after_model)]
pub async fn blot(response: LlmResponse) -> Result<Option<LlmResponse>, Error> {
    let reply = response.text_content();
    let blotted = reply.contains("1234").then(|| Content::model(reply.replace("1234", "····")));
    Ok(blotted.map(|content| LlmResponse { content: Some(content), ..response }))
}

/// Converts keys to lower case, and refuses the key of the safe.
#[callback(before_tool)]
pub async fn check_key(call: &mut ToolCall) -> Result<Option<Value>, Error> {
    let key = call.args.get("key").and_then(Value::as_str).unwrap_or_default().to_lowercase();
    if key == "safe" {
        return Ok(Some(json!({ "error": "the safe is none of your business" })));
    }
    call.args.insert("key".into(), key.into());
    Ok(None)
}

/// Adds a stamp to results that contain a setting.
#[callback(after_tool)]
pub async fn stamp(call: &ToolCall, mut response: Value) -> Result<Option<Value>, Error> {
    let Some(answer) = response.as_object_mut().filter(|answer| answer.contains_key("result")) else {
        return Ok(None);
    };
    answer.insert("stamp".into(), json!({ "tool": call.tool, "args": call.args }));
    Ok(Some(response))
}

/// Answers for an agent that has failed.
#[callback(on_agent_error)]
pub async fn mend_agent(error: Error) -> Result<Option<Content>, Error> {
    Ok(Some(Content::model(format!("The agent failed with {}.", error.code))))
}

/// Answers for a model that has failed.
#[callback(on_model_error)]
pub async fn mend_model(_request: &LlmRequest, error: Error) -> Result<Option<LlmResponse>, Error> {
    Ok(Some(LlmResponse::text(format!("The model failed with {}.", error.code))))
}

/// Answers for a tool that has failed.
#[callback(on_tool_error)]
pub async fn mend_tool(call: &ToolCall, error: Error) -> Result<Option<Value>, Error> {
    Ok(Some(json!({ "tool": call.tool, "mended": error.message })))
}
