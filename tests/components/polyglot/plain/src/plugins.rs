//! A plugin that changes messages, requests and events, and writes what happens to the log.

use serde_json::Value;

use crate::bindings::exports::hatchery::agent::sync_guest_plugins::{
    Content, Error, Event, Guest, LlmRequest, LlmResponse, ModelAction, PluginSpec, ToolAction, ToolCall,
};
use crate::bindings::hatchery::agent::{config, log};
use crate::{Plain, content, text_of};

impl Guest for Plain {
    fn describe() -> Vec<PluginSpec> {
        let hooks = ["on-user-message", "before-model", "on-event", "after-run", "on-run-error", "close"];
        let hooks = hooks.map(Into::into).into();
        vec![PluginSpec { name: "answerer".into(), hooks }]
    }

    fn on_user_message(_: String, message: Content) -> Result<Option<Content>, Error> {
        Ok(Some(content("user", &text_of(Some(&message)).to_uppercase())))
    }

    fn before_run(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn on_event(_: String, mut event: Event) -> Result<Option<Event>, Error> {
        event.extra = Some(r#"{"customMetadata": {"seen": true}}"#.into());
        Ok(Some(event))
    }

    fn after_run(_: String) -> Result<(), Error> {
        log::write("info", "a run has ended", &[])
    }

    fn on_run_error(_: String, failure: Error) -> Result<(), Error> {
        log::write("info", &format!("a run has failed: {}", failure.code), &[])
    }

    fn close(_: String) -> Result<(), Error> {
        log::write("info", "the plugin is closed", &[])
    }

    fn before_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn after_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn on_agent_error(_: String, _: Error) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn before_model(_: String, mut request: LlmRequest) -> Result<ModelAction, Error> {
        let arguments: Value = config::arguments()?.map(|json| crate::parsed(&json)).unwrap_or_default();
        request
            .system_instructions
            .push(arguments.get("text").and_then(|text| text.as_str()).unwrap_or("no advice").into());
        Ok(ModelAction::Revise(request))
    }

    fn after_model(_: String, _: LlmResponse) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    fn on_model_error(_: String, _: LlmRequest, _: Error) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    fn before_tool(_: String, _: ToolCall) -> Result<ToolAction, Error> {
        Ok(ToolAction::Proceed)
    }

    fn after_tool(_: String, _: ToolCall, _: String) -> Result<Option<String>, Error> {
        Ok(None)
    }

    fn on_tool_error(_: String, _: ToolCall, _: Error) -> Result<Option<String>, Error> {
        Ok(None)
    }
}
