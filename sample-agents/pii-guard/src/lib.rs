//! A plugin that redacts personal data before it is stored or sent to a model: e-mail addresses, card numbers, bank
//! accounts and telephone numbers become `[email]`, `[card]`, `[iban]` and `[phone]`.
//!
//! It redacts messages of users, results of tools, and events of agents. `components.pii-guard.config.keep` in
//! `hatchery.yaml` lists the kinds that are not redacted.
//!
//! It recognizes the usual notations only. It does not know names or postal addresses, and can be evaded on purpose.

mod redact;

use hatchery_guest::PartData;
use hatchery_guest::prelude::*;
use redact::{Kind, redact};

/// Redacts personal data.
pub struct Redact;

#[plugin]
impl Redact {
    async fn on_user_message(message: Content, cx: CallbackContext) -> Result<Option<Content>, Error> {
        Ok(redact_content(&message, &redacted_kinds(&cx)?))
    }

    async fn after_tool(_: &ToolCall, response: Value, cx: CallbackContext) -> Result<Option<Value>, Error> {
        let kinds = redacted_kinds(&cx)?;
        let mut redacted = response.clone();
        redact_json(&mut redacted, &kinds);
        Ok((redacted != response).then_some(redacted))
    }

    async fn on_event(mut event: Event, cx: CallbackContext) -> Result<Option<Event>, Error> {
        let kinds = redacted_kinds(&cx)?;
        let Some(content) = event.content.as_ref().and_then(|content| redact_content(content, &kinds)) else {
            return Ok(None);
        };
        event.content = Some(content);
        Ok(Some(event))
    }
}

/// Returns the kinds to redact.
fn redacted_kinds(cx: &Context) -> Result<Vec<Kind>, Error> {
    let kept = cx.config::<Vec<Kind>>("keep")?.unwrap_or_default();
    Ok(Kind::ALL.into_iter().filter(|kind| !kept.contains(kind)).collect())
}

/// Returns the content without personal data. `None` if it has none.
fn redact_content(content: &Content, kinds: &[Kind]) -> Option<Content> {
    let mut redacted = content.clone();
    for part in &mut redacted.parts {
        match &mut part.data {
            PartData::Text(text) => redact_text(text, kinds),
            PartData::FunctionCall(call) => call.args.values_mut().for_each(|value| redact_json(value, kinds)),
            PartData::FunctionResponse(answer) => {
                answer.response.values_mut().for_each(|value| redact_json(value, kinds));
            }
            _ => {}
        }
    }
    (redacted != *content).then_some(redacted)
}

fn redact_json(value: &mut Value, kinds: &[Kind]) {
    match value {
        Value::String(text) => redact_text(text, kinds),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_json(item, kinds)),
        Value::Object(map) => map.values_mut().for_each(|item| redact_json(item, kinds)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn redact_text(text: &mut String, kinds: &[Kind]) {
    if let Some(redacted) = redact(text, kinds) {
        *text = redacted;
    }
}

hatchery_guest::export! { plugins: [Redact] }

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_and_results_of_tools_are_redacted() {
        let mut value = json!({"to": ["ada@example.com", 3], "note": null});
        redact_json(&mut value, &Kind::ALL);
        assert_eq!(value, json!({"to": ["[email]", 3], "note": null}));
    }

    #[test]
    fn content_without_personal_data_is_unchanged() {
        assert_eq!(redact_content(&Content::user("Roll 3 dice"), &Kind::ALL), None);
    }
}
