//! A custom agent with two agents below it, one with a model and one that is code. It relays all events of the first, relays those of
//! the second but the first one, and adds its own. A second root, `asker`, asks the model itself.
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

/// Lets others speak.
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

/// Asks the model without an agent between, and passes its answer on as it comes.
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
