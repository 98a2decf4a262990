//! A custom agent: code instead of a model.
//!
//! It stores the user's name for all sessions of that user (`user:name`), and counts the visits in this session
//! (`visits`). It emits its answer as several events, which a client receives one by one.

use hatchery_guest::prelude::*;

/// Greets people by their names.
#[agent]
async fn greeter(cx: AgentContext) -> Result<(), Error> {
    let visits = cx.state::<u32>("visits")?.unwrap_or(0) + 1;
    cx.set_state("visits", visits)?;

    let message = cx.user_content()?.text();
    if let Some(name) = name_in(&message) {
        cx.set_state("user:name", name)?;
        cx.say(format!("Nice to meet you, {name}.")).await?;
        return cx.say("I will know you the next time.").await;
    }
    match cx.state::<String>("user:name")? {
        Some(name) => cx.say(format!("Hello again, {name}!")).await?,
        None => cx.say("Hello! What is your name?").await?,
    }
    log::info("greeted", &[("visits", &visits)]);
    cx.say(match visits {
        1 => "This is your first visit.".to_owned(),
        more => format!("This is visit number {more}."),
    })
    .await
}

/// Returns the name in `my name is …`, up to the end of the sentence.
fn name_in(message: &str) -> Option<&str> {
    const PHRASE: &str = "my name is ";
    let start = message.to_ascii_lowercase().find(PHRASE)? + PHRASE.len();
    let name = message.get(start..)?.split(['.', ',', '!', '?', '\n']).next()?.trim();
    (!name.is_empty()).then_some(name)
}

hatchery_guest::requests! { state: { write: ["user:name"] } because "it remembers the names of users" }

hatchery_guest::export! { agents: [greeter] }

#[cfg(test)]
mod tests {
    use hatchery_guest::testing::Host;

    use super::*;

    fn answers(host: &Host) -> Vec<String> {
        host.run(greeter).iter().map(Event::text_content).collect()
    }

    #[test]
    fn a_name_is_remembered_for_the_next_session() {
        let host = Host::new().user_says("Hi, my name is Ada.");
        assert_eq!(answers(&host), ["Nice to meet you, Ada.", "I will know you the next time."]);
        let host = host.user_says("Hi");
        assert_eq!(answers(&host), ["Hello again, Ada!", "This is visit number 2."]);
        assert_eq!(host.log_lines()[0].to_string(), "info greeted visits=2");
    }

    #[test]
    fn a_stranger_is_asked_for_a_name() {
        let host = Host::new().user_says("Hi");
        assert_eq!(answers(&host), ["Hello! What is your name?", "This is your first visit."]);
    }

    #[test]
    fn a_name_is_found_in_a_sentence() {
        assert_eq!(name_in("Hi, My name is Ada Lovelace. And yours?"), Some("Ada Lovelace"));
        assert_eq!(name_in("my name is Zoë!"), Some("Zoë"));
    }

    #[test]
    fn a_sentence_without_a_name_has_none() {
        assert_eq!(name_in("What is my name?"), None);
        assert_eq!(name_in("my name is ."), None);
    }
}
