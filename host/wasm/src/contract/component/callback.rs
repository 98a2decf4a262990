//! Bridge from [`Callback`] to the callbacks and plugins of components. Each call runs in its own instance.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, HookPoint, ItemKind, JsonMap, LlmRequest, LlmResponse, ModelError, RunError,
    ToolError,
};
use wasmtime::component::Accessor;

use super::Component;
use super::exports::Indices;
use super::hook::Hook;
use super::manifest::HookedItem;
use crate::contract::bindings::exports::hatchery::agent::{
    guest_callbacks, guest_plugins, sync_guest_callbacks, sync_guest_plugins,
};
use crate::contract::convert::{
    BadValue, EstimateSize, FromWit, ParsedSize, ToWit, parse_object, to_json, truncate_error, wit,
};
use crate::error::CallError;
use crate::policy::Permission;
use crate::runtime::store::{GuestFuture, HostState, Sandbox};

/// A callback or plugin of a component. `I` is the interface that exports its functions.
pub(super) struct ComponentCallback<I> {
    pub(super) component: Arc<Component>,
    pub(super) exports: I,
    pub(super) hooked: HookedItem,
    /// The arguments with which the configuration uses it.
    pub(super) arguments: Option<Arc<JsonMap>>,
}

/// An interface of the contract that exports hooks.
pub(super) trait HookInterface: Indices + Sized {
    /// The kind of item that it exports.
    const KIND: ItemKind;

    /// Checks that a hook may be called although the item does not list it; it then has no effect.
    ///
    /// # Errors
    /// If the item must list each hook at which it is used.
    fn check_unlisted(item: &ComponentCallback<Self>, hook: Hook, cx: &CallContext) -> Result<(), RunError>;

    /// Converts an error that the guest returned.
    fn guest_error(name: String, cx: &CallContext, error: wit::Error) -> RunError;
}

/// The async and the sync profile have an interface for callbacks each. Their generated types share no trait.
macro_rules! callback_interface {
    ($module:ident) => {
        impl HookInterface for $module::GuestIndices {
            const KIND: ItemKind = ItemKind::Callback;

            fn check_unlisted(item: &ComponentCallback<Self>, hook: Hook, cx: &CallContext) -> Result<(), RunError> {
                let made_for = Hook::names(&item.hooked.hooks);
                let message = format!("it cannot be used as `{}`; it is made for {made_for}", hook.name());
                let error = wit::Error { code: "CALLBACK_FAILED".into(), message };
                Err(Self::guest_error(item.qualified_name(), cx, error))
            }

            fn guest_error(callback: String, cx: &CallContext, error: wit::Error) -> RunError {
                let wit::Error { code, message } = error;
                RunError::Callback { callback, agent: cx.agent.to_string(), code: code.into(), message }
            }
        }
    };
}

callback_interface!(guest_callbacks);
callback_interface!(sync_guest_callbacks);

impl<I: HookInterface + Sync> ComponentCallback<I> {
    /// Returns true if the guest's function for this hook is to be called.
    ///
    /// # Errors
    /// For a callback that does not list the hook. A plugin need not list it.
    pub(super) fn has_hook(&self, hook: Hook, cx: &CallContext) -> Result<bool, RunError> {
        if self.hooked.hooks.contains(&hook) {
            return Ok(true);
        }
        I::check_unlisted(self, hook, cx).map(|()| false)
    }

    /// Calls a function of the guest.
    pub(super) async fn call<T: Send>(
        &self,
        cx: &CallContext,
        call: impl FnOnce(&Accessor<HostState>, I::Guest) -> GuestFuture<'_, Result<T, wit::Error>> + Send,
    ) -> Result<T, RunError> {
        let answer = self
            .component
            .sandbox
            .call(&cx.with_arguments(self.arguments.clone()), self.exports.loader(), call)
            .await
            .map_err(|error| self.call_error(error))?;
        answer.map_err(|error| I::guest_error(self.qualified_name(), cx, truncate_error(error)))
    }

    /// Checks the size of an answer and converts it.
    pub(super) fn accept<W: EstimateSize + ParsedSize, T>(
        &self,
        cx: &CallContext,
        answer: W,
        convert: impl FnOnce(W) -> Result<T, BadValue>,
    ) -> Result<T, RunError> {
        self.component.convert(cx, answer, convert).map_err(|error| self.call_error(error))
    }

    pub(super) fn content(&self, cx: &CallContext, content: Option<wit::Content>) -> Result<Option<Content>, RunError> {
        self.accept(cx, content, |content| content.map(Content::from_wit).transpose())
    }

    fn response(&self, cx: &CallContext, response: Option<wit::LlmResponse>) -> Result<Option<LlmResponse>, RunError> {
        self.accept(cx, response, |response| response.map(LlmResponse::from_wit).transpose())
    }

    fn json_object(&self, cx: &CallContext, answer: Option<String>) -> Result<Option<JsonMap>, RunError> {
        self.accept(cx, answer, |json| json.map(|json| parse_object(&json, "the answer")).transpose())
    }

    /// Applies the decision of `before-model`. A request for another model, or with further tools that run inside the
    /// model, needs a grant for them.
    fn apply_model_action(
        &self,
        cx: &CallContext,
        request: &mut LlmRequest,
        action: wit::ModelAction,
    ) -> Result<Option<LlmResponse>, RunError> {
        match action {
            wit::ModelAction::Proceed => Ok(None),
            wit::ModelAction::Revise(revised) => {
                let revised = self.accept(cx, revised, LlmRequest::from_wit)?;
                let Sandbox { grants, component, .. } = &self.component.sandbox;
                if revised.model != request.model {
                    grants
                        .check(component, Permission::Model(&revised.model))
                        .map_err(|denial| denial.run_error(cx))?;
                }
                grants
                    .check_model_tools(component, &revised.model_tools, &request.model_tools)
                    .map_err(|denial| denial.run_error(cx))?;
                // The contract does not carry these fields.
                *request = LlmRequest {
                    live_connect_config: request.live_connect_config.take(),
                    capabilities: request.capabilities,
                    progress: request.progress.clone(),
                    ..revised
                };
                Ok(None)
            }
            wit::ModelAction::Respond(response) => self.accept(cx, response, LlmResponse::from_wit).map(Some),
        }
    }

    /// Applies the decision of `before-tool`.
    fn apply_tool_action(
        &self,
        cx: &CallContext,
        args: &mut JsonMap,
        action: wit::ToolAction,
    ) -> Result<Option<JsonMap>, RunError> {
        match action {
            wit::ToolAction::Proceed => Ok(None),
            wit::ToolAction::Revise(revised) => {
                *args = self.accept(cx, revised, |json| parse_object(&json, "the revised arguments"))?;
                Ok(None)
            }
            wit::ToolAction::Respond(answer) => self.json_object(cx, Some(answer)),
        }
    }

    fn call_error(&self, error: CallError) -> RunError {
        error.into_item_error(&self.component.name, I::KIND, &self.hooked.name)
    }

    pub(super) fn qualified_name(&self) -> String {
        format!("{}/{}", self.component.name, self.hooked.name)
    }
}

/// Implements [`Callback`] for interfaces of the contract, whose generated types share no trait. A row of the table is
/// a method of `Callback`, the guest function with its arguments, and the conversion of its answer.
macro_rules! bridge {
    ([$($interface:ty),*] $names:tt $table:tt) => { $( bridge! { @ $interface, $names $table } )* };
    (@ $interface:ty, ($item:ident, $cx:ident) { $(
        $hook:ident($($arg:ident: $type:ty),*) -> $replacement:ty:
            $point:ident, $call:ident($($sent:ident = $value:expr),*), |$answer:ident| $convert:expr;
    )* }) => {
        #[async_trait]
        impl Callback for ComponentCallback<$interface> {
            fn name(&self) -> &str {
                &self.hooked.name
            }

            fn check_point(&self, point: HookPoint) -> Result<(), String> {
                let hook = Hook::At(point);
                // A plugin need not list a hook.
                if self.hooked.hooks.contains(&hook) || <$interface as HookInterface>::KIND != ItemKind::Callback {
                    return Ok(());
                }
                Err(format!("it is used as `{}`, but made for {}", hook.name(), Hook::names(&self.hooked.hooks)))
            }

            $(
                async fn $hook(&self, $cx: &CallContext $(, $arg: $type)*) -> Result<Option<$replacement>, RunError> {
                    let $item = self;
                    if !$item.has_hook(Hook::At(HookPoint::$point), $cx)? {
                        return Ok(None);
                    }
                    let name = $item.hooked.name.clone();
                    $( let $sent = $value; )*
                    let call = $item.call($cx, |accessor, guest| {
                        Box::pin(async move { guest.$call(accessor, name $(, $sent)*).await })
                    });
                    let $answer = call.await?;
                    $convert
                }
            )*
        }
    };
}

bridge! {
    [
        guest_callbacks::GuestIndices, sync_guest_callbacks::GuestIndices,
        guest_plugins::GuestIndices, sync_guest_plugins::GuestIndices
    ] (item, cx) {
        before_agent() -> Content: BeforeAgent, call_before_agent(), |answer| item.content(cx, answer);
        after_agent() -> Content: AfterAgent, call_after_agent(), |answer| item.content(cx, answer);
        on_agent_error(error: &RunError) -> Content:
            OnAgentError, call_on_agent_error(failure = error.to_wit()), |answer| item.content(cx, answer);
        before_model(request: &mut LlmRequest) -> LlmResponse:
            BeforeModel, call_before_model(sent = request.to_wit()),
            |action| item.apply_model_action(cx, request, action);
        after_model(response: &LlmResponse) -> LlmResponse:
            AfterModel, call_after_model(received = response.to_wit()), |answer| item.response(cx, answer);
        on_model_error(request: &LlmRequest, error: &ModelError) -> LlmResponse:
            OnModelError, call_on_model_error(sent = request.to_wit(), failure = error.to_wit()),
            |answer| item.response(cx, answer);
        before_tool(tool: &str, args: &mut JsonMap) -> JsonMap:
            BeforeTool, call_before_tool(call = tool_call(tool, args)),
            |action| item.apply_tool_action(cx, args, action);
        after_tool(tool: &str, args: &JsonMap, response: &JsonMap) -> JsonMap:
            AfterTool, call_after_tool(call = tool_call(tool, args), result = to_json(response)),
            |answer| item.json_object(cx, answer);
        on_tool_error(tool: &str, args: &JsonMap, error: &ToolError) -> JsonMap:
            OnToolError, call_on_tool_error(call = tool_call(tool, args), failure = error.to_wit()),
            |answer| item.json_object(cx, answer);
    }
}

fn tool_call(tool: &str, args: &JsonMap) -> wit::ToolCall {
    wit::ToolCall { tool: tool.into(), args: to_json(args) }
}
