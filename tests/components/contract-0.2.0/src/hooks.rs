//! The callback and the plugin.

use crate::bindings::exports::hatchery::agent::guest_callbacks::{self, CallbackSpec};
use crate::bindings::exports::hatchery::agent::guest_plugins::{self, PluginSpec};
use crate::bindings::hatchery::agent::types::{
    Content, Error, Event, LlmRequest, LlmResponse, ModelAction, ToolAction, ToolCall,
};
use crate::bindings::hatchery::agent::{log, plugins, session};
use crate::{Component, message, text};

impl guest_callbacks::Guest for Component {
    fn describe() -> Vec<CallbackSpec> {
        vec![CallbackSpec { name: "closed".into(), points: vec!["before-agent".into()] }]
    }

    async fn before_agent(_: String) -> Result<Option<Content>, Error> {
        let message_text = text(&session::user_content()?);
        Ok(message_text.contains("closed?").then(|| message("We are closed.")))
    }

    async fn after_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    async fn on_agent_error(_: String, failure: Error) -> Result<Option<Content>, Error> {
        Err(failure)
    }

    async fn before_model(_: String, _: LlmRequest) -> Result<ModelAction, Error> {
        Ok(ModelAction::Proceed)
    }

    async fn after_model(_: String, _: LlmResponse) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    async fn before_tool(_: String, _: ToolCall) -> Result<ToolAction, Error> {
        Ok(ToolAction::Proceed)
    }

    async fn after_tool(_: String, _: ToolCall, _: String) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn on_model_error(_: String, _: LlmRequest, failure: Error) -> Result<Option<LlmResponse>, Error> {
        Err(failure)
    }

    async fn on_tool_error(_: String, _: ToolCall, failure: Error) -> Result<Option<String>, Error> {
        Err(failure)
    }
}

impl guest_plugins::Guest for Component {
    fn describe() -> Vec<PluginSpec> {
        vec![PluginSpec { name: "counter".into(), hooks: vec!["before-run".into(), "close".into()] }]
    }

    async fn before_run(_: String) -> Result<Option<Content>, Error> {
        let names: Vec<_> = plugins::list()?.into_iter().map(|plugin| plugin.name).collect();
        session::set_state("plugins", &format!("{names:?}"))?;
        Ok(None)
    }

    async fn close(_: String) -> Result<(), Error> {
        log::write("info", "the plugin is closed", &[])
    }

    async fn on_user_message(_: String, _: Content) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    async fn on_event(_: String, _: Event) -> Result<Option<Event>, Error> {
        Ok(None)
    }

    async fn after_run(_: String) -> Result<(), Error> {
        Ok(())
    }

    async fn on_run_error(_: String, _: Error) -> Result<(), Error> {
        Ok(())
    }

    async fn before_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    async fn after_agent(_: String) -> Result<Option<Content>, Error> {
        Ok(None)
    }

    async fn on_agent_error(_: String, failure: Error) -> Result<Option<Content>, Error> {
        Err(failure)
    }

    async fn before_model(_: String, _: LlmRequest) -> Result<ModelAction, Error> {
        Ok(ModelAction::Proceed)
    }

    async fn after_model(_: String, _: LlmResponse) -> Result<Option<LlmResponse>, Error> {
        Ok(None)
    }

    async fn before_tool(_: String, _: ToolCall) -> Result<ToolAction, Error> {
        Ok(ToolAction::Proceed)
    }

    async fn after_tool(_: String, _: ToolCall, _: String) -> Result<Option<String>, Error> {
        Ok(None)
    }

    async fn on_model_error(_: String, _: LlmRequest, failure: Error) -> Result<Option<LlmResponse>, Error> {
        Err(failure)
    }

    async fn on_tool_error(_: String, _: ToolCall, failure: Error) -> Result<Option<String>, Error> {
        Err(failure)
    }
}
