//! A model made of rules: it answers from a table, and asks for a tool when an order's number is named.
//!
//! To the host it is a model as any other, `component:help-desk/rules`: agents in YAML and in other components can ask it too. It costs
//! nothing, says the same every time, and streams word by word.

use hatchery_guest::prelude::*;
use hatchery_guest::{FunctionCall, PartData};

/// Words that a question may have, and what is answered when it has one of them.
const RULES: &[(&[&str], &str)] = &[
    (&["open", "hours", "closed"], "We are here from 9 to 17, Monday to Friday."),
    (&["return", "refund", "exchange"], "You can send anything back within 30 days; the money comes within 3."),
    (&["ship", "delivery", "postage"], "Parcels take two days. Above 50 the postage is on us."),
    (&["hello", "hi", "hey"], "Hello! Ask me about opening hours, returns, delivery, or tell me your order's number."),
];

const LOST: &str = "I know about opening hours, returns, delivery and orders. What is your order's number?";

/// Answers by rules.
#[model]
async fn rules(request: LlmRequest, answer: Answer) -> Result<(), Error> {
    let Some(last) = request.contents.last() else { return say(&answer, LOST).await };
    if let Some(status) = last.function_responses().find_map(|response| response.response.get("result")?.as_str()) {
        return say(&answer, status).await;
    }
    let said = last.text();
    let knows_orders = request.tools.iter().any(|tool| tool.name == "order_status");
    match order_in(&said).filter(|_| knows_orders) {
        Some(order) => {
            let args = [("order".to_owned(), order.into())].into_iter().collect();
            let call = FunctionCall { name: "order_status".into(), args, ..FunctionCall::default() };
            answer.send(Part::from(PartData::FunctionCall(call))).await
        }
        None => say(&answer, rule_for(&said)).await,
    }
}

/// Says a text word by word.
async fn say(answer: &Answer, text: &str) -> Result<(), Error> {
    for word in text.split_inclusive(' ') {
        answer.say(word).await?;
    }
    Ok(())
}

fn rule_for(said: &str) -> &'static str {
    let words: Vec<String> = words(said).map(str::to_lowercase).collect();
    let fits = |(keys, _): &&(&[&str], &str)| keys.iter().any(|key| words.iter().any(|word| word.starts_with(key)));
    RULES.iter().find(fits).map_or(LOST, |(_, answer)| answer)
}

fn order_in(said: &str) -> Option<u32> {
    words(said).find_map(|word| word.parse().ok())
}

fn words(said: &str) -> impl Iterator<Item = &str> {
    said.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// What `order_status` needs.
#[derive(Deserialize, JsonSchema)]
struct Order {
    /// The order's number.
    order: u32,
}

/// Tells where an order is.
#[tool]
async fn order_status(Order { order }: Order) -> String {
    let place = match order % 3 {
        0 => "has been delivered",
        1 => "is being packed",
        _ => "is on its way",
    };
    format!("Order {order} {place}.")
}

/// Answers customers' questions.
#[agent]
fn help_desk() -> LlmAgent {
    LlmAgent::new("help-desk").model("component:help-desk/rules").tool(order_status)
}

hatchery_guest::export! { agents: [help_desk], tools: [order_status], models: [rules] }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_found_by_the_beginning_of_a_word() {
        assert!(rule_for("When do you OPEN?").starts_with("We are here"));
        assert!(rule_for("How does returning work?").contains("30 days"));
        assert_eq!(rule_for("What is this?"), LOST, "`this` does not begin with `hi`");
    }

    #[test]
    fn an_order_is_a_number() {
        assert_eq!(order_in("where is #17, please?"), Some(17));
        assert_eq!(order_in("where is it?"), None);
    }
}
