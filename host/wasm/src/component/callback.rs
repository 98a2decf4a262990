//! A component's callback: a fresh instance per call.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Callback, Content, JsonMap, LlmRequest, LlmResponse, RunError};
use wasmtime::Store;

use super::Component;
use crate::bindings::exports::hatchery::agent::guest_callbacks::{
    Guest, GuestIndices, ModelAction, ToolAction, ToolCall,
};
use crate::convert::{BadValue, FromWit, ToWit, Weigh, bounded, object, text, wit};
use crate::error::CallError;
use crate::store::{Caller, HostState};

pub(super) struct ComponentCallback {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
    pub(super) points: Vec<String>,
}

/// What a guest function gives.
type Answer<T> = wasmtime::Result<Result<T, wit::Error>>;

impl ComponentCallback {
    /// Runs `work` in a fresh instance.
    async fn run<T, F>(
        &self,
        point: &str,
        cx: &CallContext,
        work: impl FnOnce(Store<HostState>, Guest) -> F + Send,
    ) -> Result<T, RunError>
    where
        F: Future<Output = Answer<T>> + Send,
        T: Send,
    {
        if !self.points.iter().any(|made_for| made_for == point) {
            let made_for = self.points.join("`, `");
            let message = format!("it cannot be used as `{point}`; it is made for `{made_for}`");
            return Err(self.failed(cx, wit::Error { code: "CALLBACK_FAILED".into(), message }));
        }
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            let guest = self.exports.load(&mut store, &instance)?;
            work(store, guest).await
        });
        let answer = call.await.map_err(|error| error.into_run_error(&self.component.name))?;
        answer.map_err(|error| self.failed(cx, error))
    }

    /// Checks an answer's size and understands it.
    fn accept<W: Weigh, T>(&self, answer: W, understand: impl FnOnce(W) -> Result<T, BadValue>) -> Result<T, RunError> {
        let sized = self.component.check_size(&answer).map(|()| answer);
        sized
            .and_then(|answer| understand(answer).map_err(|error| CallError::Contract(error.to_string())))
            .map_err(|error| error.into_run_error(&self.component.name))
    }

    fn failed(&self, cx: &CallContext, error: wit::Error) -> RunError {
        let callback = format!("{}/{}", self.component.name, self.name);
        let error = bounded(error);
        RunError::Callback { callback, agent: cx.agent.to_string(), code: error.code.into(), message: error.message }
    }

    fn optional_content(&self, content: Option<wit::Content>) -> Result<Option<Content>, RunError> {
        self.accept(content, |content| content.map(Content::from_wit).transpose())
    }
}

#[async_trait]
impl Callback for ComponentCallback {
    fn name(&self) -> &str {
        &self.name
    }

    async fn before_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let name = self.name.clone();
        let call = self.run("before-agent", cx, |mut store, guest| async move {
            store.run_concurrent(async move |accessor| guest.call_before_agent(accessor, name).await).await?
        });
        self.optional_content(call.await?)
    }

    async fn after_agent(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        let name = self.name.clone();
        let call = self.run("after-agent", cx, |mut store, guest| async move {
            store.run_concurrent(async move |accessor| guest.call_after_agent(accessor, name).await).await?
        });
        self.optional_content(call.await?)
    }

    async fn before_model(&self, cx: &CallContext, request: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        let (name, sent) = (self.name.clone(), request.to_wit());
        let call = self.run("before-model", cx, |mut store, guest| async move {
            store.run_concurrent(async move |accessor| guest.call_before_model(accessor, name, sent).await).await?
        });
        match call.await? {
            ModelAction::Proceed => Ok(None),
            ModelAction::Revise(revised) => {
                *request = self.accept(revised, LlmRequest::from_wit)?;
                Ok(None)
            }
            ModelAction::Respond(response) => self.accept(response, LlmResponse::from_wit).map(Some),
        }
    }

    async fn after_model(&self, cx: &CallContext, response: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        let (name, received) = (self.name.clone(), response.to_wit());
        let call = self.run("after-model", cx, |mut store, guest| async move {
            store.run_concurrent(async move |accessor| guest.call_after_model(accessor, name, received).await).await?
        });
        self.accept(call.await?, |response| response.map(LlmResponse::from_wit).transpose())
    }

    async fn before_tool(&self, cx: &CallContext, tool: &str, args: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        let (name, tool_call) = (self.name.clone(), ToolCall { tool: tool.into(), args: text(args) });
        let call = self.run("before-tool", cx, |mut store, guest| async move {
            store.run_concurrent(async move |accessor| guest.call_before_tool(accessor, name, tool_call).await).await?
        });
        match call.await? {
            ToolAction::Proceed => Ok(None),
            ToolAction::Revise(revised) => {
                *args = self.accept(revised, |json| object(&json, "the revised arguments"))?;
                Ok(None)
            }
            ToolAction::Respond(answer) => self.accept(answer, |json| object(&json, "the answer")).map(Some),
        }
    }

    async fn after_tool(
        &self,
        cx: &CallContext,
        tool: &str,
        args: &JsonMap,
        response: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        let (name, answer) = (self.name.clone(), text(response));
        let tool_call = ToolCall { tool: tool.into(), args: text(args) };
        let call = self.run("after-tool", cx, |mut store, guest| async move {
            let called = store
                .run_concurrent(async move |accessor| guest.call_after_tool(accessor, name, tool_call, answer).await);
            called.await?
        });
        self.accept(call.await?, |json| json.map(|json| object(&json, "the answer")).transpose())
    }
}
