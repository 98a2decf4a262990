//! A component's callbacks, and the part of its plugins that is the same: an instance per call.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, ItemKind, JsonMap, LlmRequest, LlmResponse, ModelError, RunError, ToolError,
};
use wasmtime::Store;
use wasmtime::component::{Accessor, Instance};

use super::Component;
use super::hook::Hook;
use super::offer::Hooked;
use crate::contract::bindings::exports::hatchery::agent::{guest_callbacks, guest_plugins, sync_guest_callbacks};
use crate::contract::convert::{BadValue, FromWit, ToWit, Weigh, bounded, object, text, wit};
use crate::error::CallError;
use crate::policy::Permission;
use crate::runtime::store::{HostState, Sandbox};

/// A callback or a plugin; `I` is the interface that its functions are in.
pub(super) struct Hooks<I> {
    pub(super) component: Arc<Component>,
    pub(super) exports: I,
    pub(super) hooked: Hooked,
}

/// An interface with hooks.
pub(super) trait Interface: Sized {
    /// Its functions in an instance.
    type Guest;

    /// What has the hooks.
    const KIND: ItemKind;

    fn load(&self, store: &mut Store<HostState>, instance: &Instance) -> wasmtime::Result<Self::Guest>;

    /// What it means that something is to be called for a hook that it does not list.
    fn unlisted(hooks: &Hooks<Self>, hook: Hook, cx: &CallContext) -> Result<(), RunError>;

    /// The guest's own error.
    fn failed(name: String, cx: &CallContext, error: wit::Error) -> RunError;
}

/// Callbacks are in two interfaces of the contract that have nothing in common but their functions' names.
macro_rules! interface {
    ($module:ident) => {
        impl Interface for $module::GuestIndices {
            type Guest = $module::Guest;

            const KIND: ItemKind = ItemKind::Callback;

            fn load(&self, store: &mut Store<HostState>, instance: &Instance) -> wasmtime::Result<Self::Guest> {
                self.load(store, instance)
            }

            fn unlisted(hooks: &Hooks<Self>, hook: Hook, cx: &CallContext) -> Result<(), RunError> {
                unlisted_callback(hooks, hook, cx)
            }

            fn failed(callback: String, cx: &CallContext, error: wit::Error) -> RunError {
                failed_callback(callback, cx, error)
            }
        }
    };
}

interface!(guest_callbacks);
interface!(sync_guest_callbacks);

fn unlisted_callback<I: Interface + Sync>(hooks: &Hooks<I>, hook: Hook, cx: &CallContext) -> Result<(), RunError> {
    let made_for = Hook::names(&hooks.hooked.hooks);
    let message = format!("it cannot be used as `{}`; it is made for {made_for}", hook.name());
    Err(I::failed(hooks.qualified_name(), cx, wit::Error { code: "CALLBACK_FAILED".into(), message }))
}

fn failed_callback(callback: String, cx: &CallContext, error: wit::Error) -> RunError {
    RunError::Callback { callback, agent: cx.agent.to_string(), code: error.code.into(), message: error.message }
}

/// What a guest function gives.
pub(super) type Answer<T> = wasmtime::Result<Result<T, wit::Error>>;

impl<I: Interface + Sync> Hooks<I> {
    /// True when the guest is to be called.
    pub(super) fn is_wanted(&self, hook: Hook, cx: &CallContext) -> Result<bool, RunError> {
        if self.hooked.hooks.contains(&hook) {
            return Ok(true);
        }
        I::unlisted(self, hook, cx).map(|()| false)
    }

    /// Calls a function of the guest.
    pub(super) async fn run<T>(
        &self,
        cx: &CallContext,
        work: impl AsyncFnOnce(&Accessor<HostState>, I::Guest) -> Answer<T>,
    ) -> Result<T, RunError> {
        let load = |store: &mut Store<HostState>, instance: &Instance| self.exports.load(store, instance);
        let answer = self.component.sandbox.call(cx, load, work).await.map_err(|error| self.broke(error))?;
        answer.map_err(|error| I::failed(self.qualified_name(), cx, bounded(error)))
    }

    /// Checks an answer's size and understands it.
    pub(super) fn accept<W: Weigh, T>(
        &self,
        answer: W,
        understand: impl FnOnce(W) -> Result<T, BadValue>,
    ) -> Result<T, RunError> {
        self.component.accept(answer, understand).map_err(|error| self.broke(error))
    }

    pub(super) fn optional_content(&self, content: Option<wit::Content>) -> Result<Option<Content>, RunError> {
        self.accept(content, |content| content.map(Content::from_wit).transpose())
    }

    fn optional_response(&self, response: Option<wit::LlmResponse>) -> Result<Option<LlmResponse>, RunError> {
        self.accept(response, |response| response.map(LlmResponse::from_wit).transpose())
    }

    fn optional_object(&self, answer: Option<String>) -> Result<Option<JsonMap>, RunError> {
        self.accept(answer, |json| json.map(|json| object(&json, "the answer")).transpose())
    }

    /// A request that is revised to ask another model needs a grant for that one.
    fn check_model(&self, cx: &CallContext, before: &str, after: &str) -> Result<(), RunError> {
        if before == after {
            return Ok(());
        }
        let Sandbox { grants, component, .. } = &self.component.sandbox;
        grants.check(component, Permission::Model(after)).map_err(|denial| denial.end(cx))
    }

    fn broke(&self, error: CallError) -> RunError {
        error.into_item_error(&self.component.name, I::KIND, &self.hooked.name)
    }

    pub(super) fn qualified_name(&self) -> String {
        format!("{}/{}", self.component.name, self.hooked.name)
    }
}

/// The same nine functions are in three interfaces of the contract, and so in three types that have nothing in common.
macro_rules! callback {
    ($interface:ty) => {
        #[async_trait]
        impl Callback for Hooks<$interface> {
            fn name(&self) -> &str {
                &self.hooked.name
            }

            async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
                if !self.is_wanted(Hook::BeforeAgent, cx)? {
                    return Ok(None);
                }
                let name = self.hooked.name.clone();
                let call = self.run(cx, async move |accessor, guest| guest.call_before_agent(accessor, name).await);
                self.optional_content(call.await?)
            }

            async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
                if !self.is_wanted(Hook::AfterAgent, cx)? {
                    return Ok(None);
                }
                let name = self.hooked.name.clone();
                let call = self.run(cx, async move |accessor, guest| guest.call_after_agent(accessor, name).await);
                self.optional_content(call.await?)
            }

            async fn on_agent_error(&self, cx: &CallContext, error: &RunError) -> Result<Option<Content>, RunError> {
                if !self.is_wanted(Hook::OnAgentError, cx)? {
                    return Ok(None);
                }
                let (name, failure) = (self.hooked.name.clone(), error.to_wit());
                let call =
                    self.run(cx, async move |accessor, guest| guest.call_on_agent_error(accessor, name, failure).await);
                self.optional_content(call.await?)
            }

            async fn before_model(
                &self,
                cx: &CallContext,
                request: &mut LlmRequest,
            ) -> Result<Option<LlmResponse>, RunError> {
                if !self.is_wanted(Hook::BeforeModel, cx)? {
                    return Ok(None);
                }
                let (name, sent) = (self.hooked.name.clone(), request.to_wit());
                let call =
                    self.run(cx, async move |accessor, guest| guest.call_before_model(accessor, name, sent).await);
                match call.await? {
                    wit::ModelAction::Proceed => Ok(None),
                    wit::ModelAction::Revise(revised) => {
                        let revised = self.accept(revised, LlmRequest::from_wit)?;
                        self.check_model(cx, &request.model, &revised.model)?;
                        *request = revised;
                        Ok(None)
                    }
                    wit::ModelAction::Respond(response) => self.accept(response, LlmResponse::from_wit).map(Some),
                }
            }

            async fn after_model(
                &self,
                cx: &CallContext,
                response: &LlmResponse,
            ) -> Result<Option<LlmResponse>, RunError> {
                if !self.is_wanted(Hook::AfterModel, cx)? {
                    return Ok(None);
                }
                let (name, received) = (self.hooked.name.clone(), response.to_wit());
                let call =
                    self.run(cx, async move |accessor, guest| guest.call_after_model(accessor, name, received).await);
                self.optional_response(call.await?)
            }

            async fn on_model_error(
                &self,
                cx: &CallContext,
                request: &LlmRequest,
                error: &ModelError,
            ) -> Result<Option<LlmResponse>, RunError> {
                if !self.is_wanted(Hook::OnModelError, cx)? {
                    return Ok(None);
                }
                let (name, sent, failure) = (self.hooked.name.clone(), request.to_wit(), error.to_wit());
                let call = self.run(cx, async move |accessor, guest| {
                    guest.call_on_model_error(accessor, name, sent, failure).await
                });
                self.optional_response(call.await?)
            }

            async fn before_tool(
                &self,
                cx: &CallContext,
                tool: &str,
                args: &mut JsonMap,
            ) -> Result<Option<JsonMap>, RunError> {
                if !self.is_wanted(Hook::BeforeTool, cx)? {
                    return Ok(None);
                }
                let (name, tool_call) = (self.hooked.name.clone(), tool_call(tool, args));
                let call =
                    self.run(cx, async move |accessor, guest| guest.call_before_tool(accessor, name, tool_call).await);
                match call.await? {
                    wit::ToolAction::Proceed => Ok(None),
                    wit::ToolAction::Revise(revised) => {
                        *args = self.accept(revised, |json| object(&json, "the revised arguments"))?;
                        Ok(None)
                    }
                    wit::ToolAction::Respond(answer) => self.optional_object(Some(answer)),
                }
            }

            async fn after_tool(
                &self,
                cx: &CallContext,
                tool: &str,
                args: &JsonMap,
                response: &JsonMap,
            ) -> Result<Option<JsonMap>, RunError> {
                if !self.is_wanted(Hook::AfterTool, cx)? {
                    return Ok(None);
                }
                let (name, tool_call, answer) = (self.hooked.name.clone(), tool_call(tool, args), text(response));
                let call = self.run(cx, async move |accessor, guest| {
                    guest.call_after_tool(accessor, name, tool_call, answer).await
                });
                self.optional_object(call.await?)
            }

            async fn on_tool_error(
                &self,
                cx: &CallContext,
                tool: &str,
                args: &JsonMap,
                error: &ToolError,
            ) -> Result<Option<JsonMap>, RunError> {
                if !self.is_wanted(Hook::OnToolError, cx)? {
                    return Ok(None);
                }
                let (name, tool_call, failure) = (self.hooked.name.clone(), tool_call(tool, args), error.to_wit());
                let call = self.run(cx, async move |accessor, guest| {
                    guest.call_on_tool_error(accessor, name, tool_call, failure).await
                });
                self.optional_object(call.await?)
            }
        }
    };
}

callback!(guest_callbacks::GuestIndices);
callback!(sync_guest_callbacks::GuestIndices);
callback!(guest_plugins::GuestIndices);

fn tool_call(tool: &str, args: &JsonMap) -> wit::ToolCall {
    wit::ToolCall { tool: tool.into(), args: text(args) }
}
