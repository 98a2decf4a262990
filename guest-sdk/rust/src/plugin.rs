//! Plugins: hooks into every run, whatever its app.

use serde_json::Value;

use crate::bindings::plugins::exports::hatchery::agent::guest_plugins as wit;
use crate::bindings::wit::types;
use crate::callback::{Before, Run, ToolCall, answer, read_answer};
use crate::content::Content;
use crate::context::CallbackContext;
use crate::error::Error;
use crate::event::Event;
use crate::export::{Offer, find};
use crate::model::{LlmRequest, LlmResponse};

/// A plugin, as [`#[plugin]`](macro@crate::plugin) makes it of a type's functions.
pub trait Plugin {
    /// What `hatchery.yaml` calls it.
    const NAME: &'static str;

    /// Its code.
    #[doc(hidden)]
    const HOOKS: Hooks;
}

/// A plugin as data.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct AnyPlugin {
    name: &'static str,
    hooks: Hooks,
}

impl AnyPlugin {
    /// The plugin that `P` is.
    #[must_use]
    pub fn of<P: Plugin>() -> Self {
        Self { name: P::NAME, hooks: P::HOOKS }
    }
}

/// Hooks by the names that the contract has for them.
macro_rules! hooks {
    ($($hook:ident = $name:literal: $input:ty => $output:ty;)*) => {
        /// The code of a plugin: a hook that it does not have is never called.
        #[doc(hidden)]
        #[derive(Debug, Clone, Copy)]
        pub struct Hooks {
            $( pub $hook: Option<Run<$input, $output>>, )*
        }

        impl Hooks {
            /// No hooks.
            pub const NONE: Self = Self { $( $hook: None, )* };

            fn names(&self) -> Vec<String> {
                let names = [$( self.$hook.map(|_| $name) ),*];
                names.into_iter().flatten().map(Into::into).collect()
            }
        }
    };
}

hooks! {
    on_user_message = "on-user-message": Content => Option<Content>;
    before_run = "before-run": () => Option<Content>;
    on_event = "on-event": Event => Option<Event>;
    after_run = "after-run": () => ();
    on_run_error = "on-run-error": Error => ();
    before_agent = "before-agent": () => Option<Content>;
    after_agent = "after-agent": () => Option<Content>;
    on_agent_error = "on-agent-error": Error => Option<Content>;
    before_model = "before-model": LlmRequest => Before<LlmRequest, LlmResponse>;
    after_model = "after-model": LlmResponse => Option<LlmResponse>;
    on_model_error = "on-model-error": (LlmRequest, Error) => Option<LlmResponse>;
    before_tool = "before-tool": ToolCall => Before<ToolCall, Value>;
    after_tool = "after-tool": (ToolCall, Value) => Option<Value>;
    on_tool_error = "on-tool-error": (ToolCall, Error) => Option<Value>;
}

/// Runs a hook of the plugin of this name.
macro_rules! run {
    ($offer:ty, $name:expr, $hook:ident, $input:expr) => {{
        let hooks = find(<$offer>::items(), "plugin", &$name, |plugin| plugin.name)?.hooks;
        let run = hooks.$hook.ok_or_else(|| {
            let (name, hook) = (&$name, stringify!($hook));
            Error::new(
                "NOT_FOUND",
                format!("plugin `{name}` has no hook `{hook}`; it has {}", hooks.names().join(", ")),
            )
        })?;
        run($input, CallbackContext::new()).await?
    }};
}

impl<S: Offer<AnyPlugin>> wit::Guest for S {
    fn describe() -> Vec<wit::PluginSpec> {
        let spec = |plugin: AnyPlugin| wit::PluginSpec { name: plugin.name.into(), hooks: plugin.hooks.names() };
        S::items().into_iter().map(spec).collect()
    }

    async fn on_user_message(name: String, message: types::Content) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, on_user_message, message.try_into()?).map(Into::into))
    }

    async fn before_run(name: String) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, before_run, ()).map(Into::into))
    }

    async fn on_event(name: String, event: types::Event) -> Result<Option<types::Event>, types::Error> {
        Ok(run!(S, name, on_event, event.try_into()?).map(Into::into))
    }

    async fn after_run(name: String) -> Result<(), types::Error> {
        run!(S, name, after_run, ());
        Ok(())
    }

    async fn on_run_error(name: String, failure: types::Error) -> Result<(), types::Error> {
        run!(S, name, on_run_error, failure.into());
        Ok(())
    }

    async fn before_agent(name: String) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, before_agent, ()).map(Into::into))
    }

    async fn after_agent(name: String) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, after_agent, ()).map(Into::into))
    }

    async fn on_agent_error(name: String, failure: types::Error) -> Result<Option<types::Content>, types::Error> {
        Ok(run!(S, name, on_agent_error, failure.into()).map(Into::into))
    }

    async fn before_model(name: String, request: types::LlmRequest) -> Result<types::ModelAction, types::Error> {
        Ok(run!(S, name, before_model, request.try_into()?).into())
    }

    async fn after_model(
        name: String,
        response: types::LlmResponse,
    ) -> Result<Option<types::LlmResponse>, types::Error> {
        Ok(run!(S, name, after_model, response.try_into()?).map(Into::into))
    }

    async fn on_model_error(
        name: String,
        request: types::LlmRequest,
        failure: types::Error,
    ) -> Result<Option<types::LlmResponse>, types::Error> {
        Ok(run!(S, name, on_model_error, (request.try_into()?, failure.into())).map(Into::into))
    }

    async fn before_tool(name: String, call: types::ToolCall) -> Result<types::ToolAction, types::Error> {
        Ok(run!(S, name, before_tool, call.try_into()?).into())
    }

    async fn after_tool(name: String, call: types::ToolCall, response: String) -> Result<Option<String>, types::Error> {
        Ok(run!(S, name, after_tool, (call.try_into()?, read_answer(&response)?)).map(answer))
    }

    async fn on_tool_error(
        name: String,
        call: types::ToolCall,
        failure: types::Error,
    ) -> Result<Option<String>, types::Error> {
        Ok(run!(S, name, on_tool_error, (call.try_into()?, failure.into())).map(answer))
    }
}
