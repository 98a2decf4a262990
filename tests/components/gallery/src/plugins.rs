//! A plugin with some of the hooks.

use hatchery_guest::PartData;
use hatchery_guest::prelude::*;

/// Keeps conversations polite.
pub struct Censor;

#[plugin]
impl Censor {
    /// Removes bad words from user messages.
    async fn on_user_message(message: Content) -> Result<Option<Content>, Error> {
        Ok(censored(&message))
    }

    async fn before_model(request: &mut LlmRequest) -> Result<Option<LlmResponse>, Error> {
        request.system_instructions.push("Be polite.".into());
        Ok(None)
    }

    /// Removes bad words from events, and marks the event.
    async fn on_event(mut event: Event) -> Result<Option<Event>, Error> {
        let Some(content) = event.content.as_ref().and_then(censored) else { return Ok(None) };
        event.content = Some(content);
        event.extra.insert("customMetadata".into(), json!({ "censored": true }));
        Ok(Some(event))
    }

    /// Counts the runs of the app.
    async fn after_run(cx: CallbackContext) -> Result<(), Error> {
        let runs = cx.state::<u32>("app:censor_runs")?.unwrap_or(0);
        cx.set_state("app:censor_runs", runs + 1)
    }

    async fn on_run_error(error: Error) -> Result<(), Error> {
        log::warn("a run has failed", &[("code", &error.code)]);
        Ok(())
    }
}

/// Returns the content without bad words; `None` if it has none.
fn censored(content: &Content) -> Option<Content> {
    if !content.text().contains("damn") {
        return None;
    }
    let mut content = content.clone();
    for part in &mut content.parts {
        if let PartData::Text(text) = &mut part.data {
            *text = text.replace("damn", "****");
        }
    }
    Some(content)
}
