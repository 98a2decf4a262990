//! The context of a custom agent, and the services that the engine offers to running code.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use crate::auth::REQUEST_CREDENTIAL;
use crate::call_context::CallContext;
use crate::confirmation::REQUEST_CONFIRMATION;
use crate::content::Content;
use crate::error::{RunError, ToolError};
use crate::event::{Event, EventData, USER_AUTHOR};
use crate::invocation::Invocation;
use crate::json::JsonMap;
use crate::model::Model;
use crate::plugin::Plugin;
use crate::provenance::{Claim, remove_proof};
use crate::time::Timestamp;
use crate::tool::ToolAuthorizer;

/// The destination of an agent's events: the session's log, or an agent that relays them.
#[async_trait]
pub trait EventSink: Send + Sync {
    /// Accepts an event. When this returns, the event is stored, unless it is partial, and is visible in the session.
    /// Returns the stored event, which a plugin may have replaced.
    ///
    /// # Errors
    /// If the event cannot be stored, or the run is cancelled: the agent must stop.
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError>;
}

/// The engine's services for running code: sub-agents, tools and the agent's model. Implemented by the engine.
#[async_trait]
pub trait AgentHost: Send + Sync {
    /// Runs the agent named `name`, which must be below the agent of `cx`, and sends its events to `sink`.
    ///
    /// # Errors
    /// [`RunError::NotFound`] if there is no such agent, and the error of its run.
    async fn run_sub_agent(&self, cx: &CallContext, name: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError>;

    /// Checks an event that the agent of `cx` is about to emit, complete except for its proof. Returns the claim that
    /// the host proves for it, if any.
    ///
    /// # Errors
    /// If the agent may not emit this event.
    fn admit(&self, cx: &CallContext, event: &EventData) -> Result<Option<Claim>, RunError> {
        let _ = (cx, event);
        Ok(None)
    }

    /// Returns true if the next event of the agent of `cx` will be replaced by an event that was recorded before its
    /// run was interrupted. The default is false.
    fn is_replaying(&self, cx: &CallContext) -> bool {
        let _ = cx;
        false
    }

    /// Checks that the agent of `cx` may transfer the conversation to the agent named `target`. The default accepts any
    /// name.
    ///
    /// # Errors
    /// If there is no such agent, or the transfer is not allowed. The message lists the agents that are.
    fn check_transfer(&self, cx: &CallContext, target: &str) -> Result<(), RunError> {
        let _ = (cx, target);
        Ok(())
    }

    /// Returns the plugins that also apply to agents which are called as tools. The default is none.
    fn plugins(&self) -> Vec<Arc<dyn Plugin>> {
        Vec::new()
    }

    /// Calls one of the tools of the agent of `cx`. Plugin hooks run before and after it.
    ///
    /// # Errors
    /// The error of the tool. An unknown name is a recoverable error that lists the valid names.
    async fn call_tool(&self, cx: &CallContext, name: &str, args: JsonMap) -> Result<Value, ToolError> {
        self.call_checked_tool(cx, name, args, &|_| Ok(())).await
    }

    /// Calls one of the tools of the agent of `cx` if `check` accepts its [qualified
    /// name](crate::Tool::qualified_name).
    ///
    /// # Errors
    /// The error of the check, without a call; otherwise as [`AgentHost::call_tool`].
    async fn call_checked_tool(
        &self,
        cx: &CallContext,
        name: &str,
        args: JsonMap,
        check: ToolAuthorizer<'_>,
    ) -> Result<Value, ToolError>;

    /// Returns the agent's model and its name, or the model of the nearest ancestor with one.
    ///
    /// # Errors
    /// If no agent has one, or it cannot be found.
    fn model(&self, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError>;
}

/// The context of one run of a custom agent.
#[derive(Clone)]
pub struct AgentContext {
    /// State, artifacts, memory, tools and the run.
    pub call: CallContext,
    /// The destination of the agent's events.
    pub sink: Arc<dyn EventSink>,
}

impl AgentContext {
    /// Completes an event (author, branch, invocation, pending state changes) and sends it. A proof that it carries is
    /// removed, and a timestamp in the future becomes the current time.
    ///
    /// # Errors
    /// As [`EventSink::emit`] and [`AgentHost::admit`]. Also if the author is the user, or if the event requests a
    /// confirmation or a credential in the name of another agent, whose tool would then run.
    pub async fn emit(&self, data: EventData) -> Result<Arc<Event>, RunError> {
        self.complete(data, None).await
    }

    /// Sends an event with a proof of its claim. Only the engine should call this, because only it knows whether the
    /// claim is true.
    ///
    /// # Errors
    /// As [`AgentContext::emit`].
    pub async fn emit_with_proof(&self, data: EventData, claim: Claim) -> Result<Arc<Event>, RunError> {
        self.complete(data, Some(claim)).await
    }

    async fn complete(&self, mut data: EventData, claim: Option<Claim>) -> Result<Arc<Event>, RunError> {
        if data.author.is_empty() {
            data.author = self.call.agent.to_string();
        } else if data.author == USER_AUTHOR {
            let message = format!("may not emit events as `{USER_AUTHOR}`; leave the author of its events empty");
            return Err(self.error(message));
        } else if data.author != *self.call.agent && requests_answer(&data) {
            let message = format!(
                "may not request a confirmation or a credential as `{}`; that agent requests it itself",
                data.author
            );
            return Err(self.error(message));
        }
        let admitted = match self.call.host() {
            Ok(host) => host.admit(&self.call, &data)?,
            Err(_) => None,
        };
        data.invocation_id.clone_from(&self.call.invocation.id);
        data.timestamp = data.timestamp.min(Timestamp::now());
        if data.branch.is_none() {
            data.branch = self.call.branch.as_deref().map(Into::into);
        }
        if !data.partial {
            let mut actions = self.call.take_actions();
            actions.merge(std::mem::take(&mut data.actions));
            actions.state_delta = self.call.invocation.apply_temp_state(actions.state_delta);
            data.actions = actions;
        }
        let Invocation { signer, session_key, run_config, .. } = self.call.invocation.as_ref();
        match claim.or(admitted).filter(|_| !data.partial) {
            Some(claim) => signer.sign(session_key, &mut data, claim),
            None => remove_proof(&mut data),
        }
        run_config.add_custom_metadata(&mut data);
        let event = self.sink.emit(Event::new(data)).await?;
        if !event.partial {
            self.call.span().add_event(&event.id);
        }
        Ok(event)
    }

    fn error(&self, message: String) -> RunError {
        RunError::Agent { agent: self.call.agent.to_string(), code: "AGENT_FAILED".into(), message }
    }

    /// Emits pending changes as their own event, so that other agents see them. Does nothing if there are none.
    ///
    /// # Errors
    /// As [`EventSink::emit`].
    pub async fn flush(&self) -> Result<(), RunError> {
        if !self.call.actions().is_empty() {
            self.emit(EventData::default()).await?;
        }
        Ok(())
    }

    /// Emits an event with this text.
    ///
    /// # Errors
    /// As [`EventSink::emit`].
    pub async fn say(&self, text: impl Into<String>) -> Result<Arc<Event>, RunError> {
        let content = Some(Arc::new(Content::model(text)));
        self.emit(EventData { content, ..EventData::default() }).await
    }

    /// Runs a sub-agent, whose events go to the same sink. It sees the changes that this agent has made.
    ///
    /// # Errors
    /// As [`AgentHost::run_sub_agent`].
    pub async fn run_sub_agent(&self, name: &str) -> Result<(), RunError> {
        self.flush().await?;
        self.call.host()?.run_sub_agent(&self.call, name, self.sink.clone()).await
    }
}

fn requests_answer(data: &EventData) -> bool {
    let mut calls = data.content.iter().flat_map(|content| content.function_calls());
    calls.any(|call| call.name == REQUEST_CONFIRMATION || call.name == REQUEST_CREDENTIAL)
}
