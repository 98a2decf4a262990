//! A plugin that answers in place of every agent.

use crate::bindings::exports::hatchery::agent::sync_guest_plugins::{
    Content, Error, Event, Guest, LlmRequest, LlmResponse, ModelAction, PluginSpec, ToolAction, ToolCall,
};
use crate::bindings::hatchery::agent::log;
use crate::{Blocking, content, text};

impl Guest for Blocking {
    fn describe() -> Vec<PluginSpec> {
        let hooks = ["on-user-message", "before-agent", "after-run", "close"].map(Into::into).into();
        vec![PluginSpec { name: "answerer".into(), hooks }]
    }

    fn on_user_message(_: String, message: Content) -> Result<Option<Content>, Error> {
        Ok(Some(content("user", &text(&message).to_uppercase())))
    }

    fn before_run(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn on_event(_: String, _: Event) -> Result<Option<Event>, Error> {
        Ok(None)
    }

    fn after_run(_: String) -> Result<(), Error> {
        log::write("info", "a run has ended", &[])
    }

    fn on_run_error(_: String, _: Error) -> Result<(), Error> {
        Ok(())
    }

    fn close(_: String) -> Result<(), Error> {
        log::write("info", "the plugin is closed", &[])
    }

    fn before_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(Some(content("model", "the plugin answers")))
    }

    fn after_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn on_agent_error(_: String, _: Error) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    fn before_model(_: String, _: LlmRequest) -> Result<ModelAction, Error> {
        Ok(ModelAction::Proceed)
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
