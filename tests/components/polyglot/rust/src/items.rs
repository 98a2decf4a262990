//! Items other than tools and callbacks.

use hatchery_guest::prelude::*;
use hatchery_guest::{DynamicTool, ToolUse, ToolsetExport, Transcription};

use crate::clerk;
use crate::services::{bake, compare, delegate, keep_diary, learn, stop};

/// Says one line.
#[agent]
async fn helper(cx: AgentContext) -> Result<(), Error> {
    cx.say("I help").await
}

async fn supervise(cx: AgentContext) -> Result<(), Error> {
    cx.run_sub_agent("helper").await?;
    cx.say("that was all").await
}

/// Relays the events of its sub-agent, and has the last word.
#[agent]
pub fn foreman() -> CustomAgent {
    CustomAgent::new("foreman", supervise).sub_agent(helper)
}

/// Tries to change the session, and returns the code of the error.
async fn meddle(cx: Context) -> Result<String, Error> {
    Ok(cx.set_state("meddled", true).err().map_or_else(|| "changed".into(), |error| error.code))
}

/// Has every kind of tool.
#[agent]
pub fn chief() -> LlmAgent {
    LlmAgent::new("chief")
        .model("any")
        .instruction_fn(meddle)
        .tool(ToolUse::new("scale").confirm())
        .tool(ToolUse::new("look").arg("limit", 3))
        .tool(ToolUse::agent(clerk))
        .tool(delegate)
        .tool(keep_diary)
        .tool(learn)
        .tool(compare)
        .tool(bake)
        .tool(stop)
        .toolset("keys")
        .examples_from(echo_examples)
        .planner(Planner::PlanReAct)
        .run_code(CodeRunner::new(reverse).code_delimiters("<<", ">>").result_delimiters("[[", "]]"))
        .include_contents(IncludeContents::None)
}

/// One tool, which is named after the user.
pub fn keys() -> ToolsetExport {
    ToolsetExport::new("keys", async |cx: Context| {
        let user = cx.info()?.user;
        let name = format!("greet_{user}");
        let greet = DynamicTool::new(name, "Greets the user.", move |args, cx: ToolContext| {
            let user = user.clone();
            async move {
                cx.set_state("greeted", &user)?;
                Ok(json!({ "greeted": user, "args": args }))
            }
        });
        Ok(vec![greet])
    })
}

/// Changes messages, requests and events, and writes what happens to the log.
pub struct Answerer;

#[plugin]
impl Answerer {
    async fn on_user_message(message: Content) -> Result<Option<Content>, Error> {
        Ok(Some(Content::user(message.text().to_uppercase())))
    }

    async fn before_model(request: &mut LlmRequest, cx: CallbackContext) -> Result<Option<LlmResponse>, Error> {
        let arguments: Option<Value> = cx.arguments()?;
        let text = arguments.as_ref().and_then(|arguments| arguments["text"].as_str());
        request.system_instructions.push(text.unwrap_or("no advice").into());
        Ok(None)
    }

    async fn on_event(mut event: Event) -> Result<Option<Event>, Error> {
        event.extra.insert("customMetadata".into(), json!({ "seen": true }));
        Ok(Some(event))
    }

    async fn after_run() -> Result<(), Error> {
        log::info("a run has ended", &[]);
        Ok(())
    }

    async fn on_run_error(error: Error) -> Result<(), Error> {
        log::info(format!("a run has failed: {}", error.code), &[]);
        Ok(())
    }

    async fn close() -> Result<(), Error> {
        log::info("the plugin is closed", &[]);
        Ok(())
    }
}

/// Writes the code backwards.
#[code_executor]
pub async fn reverse(input: CodeInput) -> Result<CodeOutput, ToolError> {
    if input.code.is_empty() {
        return Err(ToolError::recoverable("there is no code"));
    }
    let stdout = input.code.chars().rev().collect();
    Ok(CodeOutput { stdout, stderr: String::new(), output_files: input.input_files })
}

/// Counts the events.
#[summarizer]
pub async fn count(events: Vec<Event>) -> Result<Option<Content>, Error> {
    Ok((!events.is_empty()).then(|| Content::model(format!("{} events", events.len()))))
}

/// Says yes to the user's message.
#[examples(name = "echo")]
pub async fn echo_examples(query: String) -> Result<Vec<Example>, Error> {
    Ok(vec![Example::new(query, "Yes.")])
}

/// Repeats the last message.
#[model]
pub async fn parrot(request: LlmRequest, answer: Answer) -> Result<(), Error> {
    let reply = request.contents.last().map(Content::text).unwrap_or_default();
    if reply == "nothing" {
        return Err(Error::new("MODEL_BAD_REQUEST", "there is nothing to say"));
    }
    for word in reply.split_inclusive(' ') {
        if word == "stop" {
            return Err(Error::new("MODEL_UNAVAILABLE", "it stopped"));
        }
        answer.say(word).await?;
    }
    Ok(())
}

/// Repeats messages.
#[live_model]
pub async fn starling(_request: LlmRequest, connection: LiveConnection) -> Result<(), Error> {
    while let Some(request) = connection.receive().await? {
        match request {
            LiveRequest::Content { content, .. } if content.text() == "stop" => {
                return Err(Error::new("MODEL_RATE_LIMITED", "it stopped"));
            }
            LiveRequest::Content { content, .. } => connection.say(content.text()).await?,
            LiveRequest::Blob(blob) => {
                let heard = Transcription { text: format!("{} bytes", blob.data.len()), finished: true };
                connection.send(LiveResponse::OutputTranscription(heard)).await?;
            }
            LiveRequest::ActivityStart
            | LiveRequest::ActivityEnd
            | LiveRequest::AudioStreamEnd
            | LiveRequest::ToolResponses(_) => {}
        }
        connection.send(LiveResponse::TurnComplete).await?;
    }
    Ok(())
}
