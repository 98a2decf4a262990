//! A custom agent with two sub-agents, an LLM agent and a custom agent. It relays all events of the first, all but the
//! first event of the second, and adds its own. A second root, `asker`, calls the model itself.
//!
//! Both use the model `scripted:relay.yaml`.

use hatchery_guest::prelude::*;

/// Talks, with a model.
#[agent]
fn talker() -> LlmAgent {
    LlmAgent::new("talker").model("scripted:relay.yaml").instruction("Answer the user.")
}

/// Counts to three.
#[agent]
async fn counter(cx: AgentContext) -> Result<(), Error> {
    for word in ["one", "two", "three"] {
        cx.emit(Event::text(word).with_state("counted", word)).await?;
    }
    Ok(())
}

/// Runs other agents.
#[agent(sub_agents = [talker, counter])]
async fn relay(cx: AgentContext) -> Result<(), Error> {
    cx.run_sub_agent("talker").await?;
    let mut events = cx.sub_agent("counter").await?;
    let mut dropped = None;
    while let Some(event) = events.next().await? {
        match dropped {
            None => dropped = Some(event.text_content()),
            Some(_) => cx.relay(event).await?,
        }
    }
    cx.say(format!("dropped: {}", dropped.unwrap_or_default())).await
}

/// Calls the model directly, and emits its response as it is streamed.
#[agent(model = "scripted:relay.yaml")]
async fn asker(cx: AgentContext) -> Result<(), Error> {
    let question = LlmRequest::new("", cx.user_content()?.text()).with_instruction("Answer the user.");
    let mut answer = cx.stream(question.clone()).await?;
    while let Some(response) = answer.next().await? {
        cx.emit(response).await?;
    }
    let again = cx.generate(question).await?;
    cx.say(format!("again: {}", again.text_content())).await
}

hatchery_guest::export! { agents: [relay, asker] }
