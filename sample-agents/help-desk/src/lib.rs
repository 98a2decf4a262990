//! A model made of rules: it answers from a table, and calls a tool if the message contains the number of an order.
//!
//! To the host it is a model like any other, `component:help-desk/rules`, which agents in YAML and in other components
//! can use too. It costs nothing, always gives the same answer, and streams word by word.

use hatchery_guest::prelude::*;
use hatchery_guest::{FunctionCall, PartData};

/// Beginnings of words in a question, and the answer to a question that contains one of them.
const RULES: &[(&[&str], &str)] = &[
    (&["open", "hours", "closed"], "We are here from 9 to 17, Monday to Friday."),
    (&["return", "refund", "exchange"], "You can send anything back within 30 days; the money comes within 3."),
    (&["ship", "delivery", "postage"], "Parcels take two days. Above 50 the postage is on us."),
    (&["hello", "hi", "hey"], "Hello! Ask me about opening hours, returns, delivery, or tell me your order's number."),
];

const DEFAULT_ANSWER: &str = "I know about opening hours, returns, delivery and orders. What is your order's number?";

/// Answers by rules.
#[model]
async fn rules(request: LlmRequest, answer: Answer) -> Result<(), Error> {
    let Some(last) = request.contents.last() else { return say(&answer, DEFAULT_ANSWER).await };
    if let Some(status) = last.function_responses().find_map(|response| response.response.get("result")?.as_str()) {
        return say(&answer, status).await;
    }
    let question = last.text();
    let knows_orders = request.tools.iter().any(|tool| tool.name == "order_status");
    match order_in(&question).filter(|_| knows_orders) {
        Some(order) => {
            let args = [("order".to_owned(), order.into())].into_iter().collect();
            let call = FunctionCall { name: "order_status".into(), args, ..FunctionCall::default() };
            answer.send(Part::from(PartData::FunctionCall(call))).await
        }
        None => say(&answer, rule_for(&question)).await,
    }
}

/// Streams a text word by word.
async fn say(answer: &Answer, text: &str) -> Result<(), Error> {
    for word in text.split_inclusive(' ') {
        answer.say(word).await?;
    }
    Ok(())
}

fn rule_for(question: &str) -> &'static str {
    let words: Vec<String> = words(question).map(str::to_lowercase).collect();
    let fits = |(keys, _): &&(&[&str], &str)| keys.iter().any(|key| words.iter().any(|word| word.starts_with(key)));
    RULES.iter().find(fits).map_or(DEFAULT_ANSWER, |(_, answer)| answer)
}

fn order_in(question: &str) -> Option<u32> {
    words(question).find_map(|word| word.parse().ok())
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// The arguments of `order_status`.
#[derive(Deserialize, JsonSchema)]
struct Order {
    /// The number of the order.
    order: u32,
}

/// Returns the status of an order.
#[tool]
async fn order_status(Order { order }: Order) -> String {
    let place = match order % 3 {
        0 => "has been delivered",
        1 => "is being packed",
        _ => "is on its way",
    };
    format!("Order {order} {place}.")
}

/// Answers questions of customers.
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
        assert_eq!(rule_for("What is this?"), DEFAULT_ANSWER, "`this` does not begin with `hi`");
    }

    #[test]
    fn an_order_is_a_number() {
        assert_eq!(order_in("where is #17, please?"), Some(17));
        assert_eq!(order_in("where is it?"), None);
    }
}
