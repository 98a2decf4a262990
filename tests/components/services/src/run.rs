//! The run: its properties, its remaining limits, and ending it.

use hatchery_guest::StreamingMode;
use hatchery_guest::prelude::*;

use crate::settings::{plugins, shred};

/// Returns the host's information about the run.
#[tool]
pub async fn info(cx: ToolContext) -> Result<Value, Error> {
    let info = cx.info()?;
    let mode = match info.streaming_mode {
        StreamingMode::None => "none",
        StreamingMode::Sse => "sse",
        StreamingMode::Bidi => "bidi",
    };
    let left = info.remaining;
    Ok(json!({
        "mode": mode,
        "resumable": info.is_resumable,
        "depth": info.depth,
        "left": { "calls": left.model_calls, "tokens": left.tokens, "events": left.events, "bytes": left.bytes },
    }))
}

/// Ends the run.
#[tool]
pub async fn stop(cx: ToolContext) -> Result<&'static str, Error> {
    cx.end_invocation()?;
    Ok("stopped")
}

/// An agent to hand over to.
#[derive(Deserialize, JsonSchema)]
pub struct Successor {
    /// Its name.
    agent: String,
}

/// Hands over to another agent.
#[tool]
pub async fn hand_over(successor: Successor, cx: ToolContext) -> Result<&'static str, Error> {
    cx.transfer_to(&successor.agent)?;
    Ok("handed over")
}

/// Hands over to the agent that the user names after `divert to`.
#[callback(after_model)]
pub async fn divert(_: &mut LlmResponse, cx: CallbackContext) -> Result<Option<LlmResponse>, Error> {
    if let Some(agent) = cx.user_content()?.text().strip_prefix("divert to ") {
        cx.transfer_to(agent)?;
    }
    Ok(None)
}

/// Answers after a transfer.
#[agent]
fn caretaker() -> LlmAgent {
    LlmAgent::new("caretaker").model("scripted:services.yaml").instruction("Take care.")
}

/// Transfers by a tool and by a callback.
#[agent]
pub fn porter() -> LlmAgent {
    LlmAgent::new("porter")
        .model("scripted:services.yaml")
        .instruction("Open the door.")
        .tool(hand_over)
        .after_model(divert)
        .sub_agent(caretaker)
}

/// Ends the run if the user's message requests it.
#[callback(before_agent)]
pub async fn stopper(cx: CallbackContext) -> Result<Option<Content>, Error> {
    if cx.user_content()?.text().contains("callback") {
        cx.end_invocation()?;
    }
    Ok(None)
}

/// Emits an event, ends the run if the user's message requests it, and continues.
#[agent]
async fn watchman(cx: AgentContext) -> Result<(), Error> {
    cx.say("All is well.").await?;
    if cx.user_content()?.text().contains("agent") {
        cx.end_invocation().await?;
    }
    cx.say("Still well.").await
}

/// Comes after the watchman.
#[agent]
async fn relief(cx: AgentContext) -> Result<(), Error> {
    cx.say("Good morning.").await
}

/// Two agents, the second of which runs only if the run is not ended.
#[agent]
pub fn night_watch() -> SequentialAgent {
    SequentialAgent::new("night_watch").before_agent(stopper).sub_agent(watchman).sub_agent(relief)
}

/// Tries to change the session, and returns the result.
async fn meddle(cx: Context) -> Result<String, Error> {
    let state = cx.set_state("meddled", true).map_err(|error| error.code);
    let artifact = cx.artifacts().save("note", Part::text("a note")).await.map_err(|error| error.to_string());
    Ok(format!("{state:?}, {artifact:?}"))
}

/// Has an instruction that tries to change the session.
#[agent]
pub fn scribe() -> LlmAgent {
    LlmAgent::new("scribe")
        .model("scripted:services.yaml")
        .instruction_fn(meddle)
        .tool(info)
        .tool(stop)
        .tool(plugins)
        .tool(shred)
}
