//! An assistant that forwards questions to another app, reads the user's session of that app, and searches earlier
//! conversations.

use hatchery_guest::EventWindow;
use hatchery_guest::prelude::*;

/// The app that answers questions about orders.
const HELP_DESK: &str = "help-desk";

/// The user's session of the help desk for all questions of the concierge.
const DESK_SESSION: &str = "concierge";

hatchery_guest::requests! {
    runs: ["help-desk"] because "it forwards questions to the help desk",
    sessions: { read: ["help-desk"] } because "it lists the questions in its session there",
    memory: read because "it searches earlier conversations",
}

/// The arguments of `ask_help_desk`.
#[derive(Deserialize, JsonSchema)]
struct Question {
    /// The question, in the user's words.
    question: String,
}

/// Asks the help desk about orders, delivery, returns and opening hours.
#[tool]
async fn ask_help_desk(args: Question, cx: ToolContext) -> Result<String, Error> {
    let request = RunRequest::new(HELP_DESK, args.question).session(DESK_SESSION);
    cx.runner().run(request).await?.text().await
}

/// Lists the user's last questions to the help desk.
#[tool]
async fn list_questions(cx: ToolContext) -> Result<Vec<String>, Error> {
    let sessions = cx.sessions(HELP_DESK);
    if sessions.get(DESK_SESSION).await?.is_none() {
        return Ok(Vec::new());
    }
    let events = sessions.events(DESK_SESSION, EventWindow::all().recent(20), 0, 20).await?;
    Ok(events.iter().filter(|event| event.author == "user").map(Event::text_content).collect())
}

/// The arguments of `recall`.
#[derive(Deserialize, JsonSchema)]
struct Topic {
    /// Words that occurred in the conversation.
    topic: String,
}

/// Returns messages about a topic from earlier conversations, best match first.
#[tool]
async fn recall(args: Topic, cx: ToolContext) -> Result<Vec<String>, Error> {
    let current = cx.user_content()?.text();
    let found = cx.memory().search(args.topic).await?;
    let texts = found.into_iter().map(|entry| entry.content.text());
    Ok(texts.filter(|text| !text.is_empty() && *text != current).take(3).collect())
}

/// Forwards questions to the help desk, and remembers earlier conversations.
#[agent]
fn concierge() -> LlmAgent {
    LlmAgent::new("concierge")
        .model("scripted:concierge/answers.yaml")
        .instruction("Ask the help desk about orders. Recall what was said before if the user refers to it.")
        .tool(ask_help_desk)
        .tool(list_questions)
        .tool(recall)
}

hatchery_guest::export! { agents: [concierge], tools: [ask_help_desk, list_questions, recall] }

#[cfg(test)]
mod tests {
    use hatchery_guest::testing::Host;

    use super::*;

    #[test]
    fn a_question_is_answered_by_the_help_desk_in_one_session() {
        let host = Host::new().runs_app(HELP_DESK, |request| [Event::text(format!("Re: {}", request.message.text()))]);
        let answer = host.call::<String>(ask_help_desk, json!({ "question": "Where is it?" }));
        assert_eq!(answer, Ok("Re: Where is it?".into()));
        assert_eq!(host.run_requests()[0].session.as_deref(), Some(DESK_SESSION));
    }

    #[test]
    fn only_questions_of_the_user_are_listed() {
        let prompt = Event { author: "user".into(), ..Event::text("Where is it?") };
        let host = Host::new().other_session(HELP_DESK, DESK_SESSION, [prompt, Event::text("On its way.")]);
        assert_eq!(host.call::<Vec<String>>(list_questions, ()), Ok(vec!["Where is it?".into()]));
        assert_eq!(Host::new().call::<Vec<String>>(list_questions, ()), Ok(Vec::new()));
    }

    #[test]
    fn the_question_itself_is_not_recalled() {
        let host =
            Host::new().remembers("Order 17 is on its way.").remembers("And order 17?").user_says("And order 17?");
        let recalled = host.call::<Vec<String>>(recall, json!({ "topic": "order 17" }));
        assert_eq!(recalled, Ok(vec!["Order 17 is on its way.".into()]));
    }
}
