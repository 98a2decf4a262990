//! One agent that emits the same text in three events. The text is `SWAP_TEXT` of the build's environment, so that two
//! builds can be distinguished.

use hatchery_guest::prelude::*;

const TEXT: &str = match option_env!("SWAP_TEXT") {
    Some(text) => text,
    None => "unset",
};

/// Returns the name of its build.
#[agent]
async fn swap(cx: AgentContext) -> Result<(), Error> {
    for number in 1..=3 {
        cx.say(format!("{TEXT} {number}")).await?;
    }
    Ok(())
}

hatchery_guest::export! { agents: [swap] }
