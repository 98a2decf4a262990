//! A plugin that keeps personal data out of sessions and away from models: e-mail addresses, card numbers, bank accounts and telephone
//! numbers become `[email]`, `[card]`, `[iban]` and `[phone]`.
//!
//! It looks at what users say before it is stored, at what tools answer before a model reads it, and at what agents say before it is
//! stored and sent. `components.pii-guard.config.keep` in `hatchery.yaml` lists kinds that stay as they are.
//!
//! It finds what is written as such things usually are. It does not know names or addresses, and it is no proof against somebody who wants
//! to get something past it.

mod redact;

use hatchery_guest::PartData;
use hatchery_guest::prelude::*;
use redact::{Kind, redacted};

/// Blots out personal data.
pub struct Redact;

#[plugin]
impl Redact {
    async fn on_user_message(message: Content, cx: CallbackContext) -> Result<Option<Content>, Error> {
        Ok(clean(&message, &wanted(&cx)?))
    }

    async fn after_tool(_: &ToolCall, response: Value, cx: CallbackContext) -> Result<Option<Value>, Error> {
        let kinds = wanted(&cx)?;
        let mut cleaned = response.clone();
        clean_json(&mut cleaned, &kinds);
        Ok((cleaned != response).then_some(cleaned))
    }

    async fn on_event(mut event: Event, cx: CallbackContext) -> Result<Option<Event>, Error> {
        let kinds = wanted(&cx)?;
        let Some(content) = event.content.as_ref().and_then(|content| clean(content, &kinds)) else { return Ok(None) };
        event.content = Some(content);
        Ok(Some(event))
    }
}

/// The kinds that are to be blotted out.
fn wanted(cx: &Context) -> Result<Vec<Kind>, Error> {
    let kept = cx.config::<Vec<Kind>>("keep")?.unwrap_or_default();
    Ok(Kind::ALL.into_iter().filter(|kind| !kept.contains(kind)).collect())
}

/// The content without personal data; nothing when it has none.
fn clean(content: &Content, kinds: &[Kind]) -> Option<Content> {
    let mut cleaned = content.clone();
    for part in &mut cleaned.parts {
        match &mut part.data {
            PartData::Text(text) => clean_text(text, kinds),
            PartData::FunctionCall(call) => call.args.values_mut().for_each(|value| clean_json(value, kinds)),
            PartData::FunctionResponse(answer) => {
                answer.response.values_mut().for_each(|value| clean_json(value, kinds));
            }
            _ => {}
        }
    }
    (cleaned != *content).then_some(cleaned)
}

fn clean_json(value: &mut Value, kinds: &[Kind]) {
    match value {
        Value::String(text) => clean_text(text, kinds),
        Value::Array(items) => items.iter_mut().for_each(|item| clean_json(item, kinds)),
        Value::Object(map) => map.values_mut().for_each(|item| clean_json(item, kinds)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn clean_text(text: &mut String, kinds: &[Kind]) {
    if let Some(cleaned) = redacted(text, kinds) {
        *text = cleaned;
    }
}

hatchery_guest::export! { plugins: [Redact] }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_answers_of_tools_are_cleaned_too() {
        let mut value = json!({"to": ["ada@example.com", 3], "note": null});
        clean_json(&mut value, &Kind::ALL);
        assert_eq!(value, json!({"to": ["[email]", 3], "note": null}));
    }

    #[test]
    fn what_holds_nothing_stays_untouched() {
        assert_eq!(clean(&Content::user("Roll 3 dice"), &Kind::ALL), None);
    }
}
