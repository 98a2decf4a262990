//! The context of one call of a tool or a callback.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use crate::agent_context::AgentHost;
use crate::caller::Caller;
use crate::confirmation::ToolConfirmation;
use crate::content::Part;
use crate::error::{RunError, StoreError};
use crate::event::EventActions;
use crate::invocation::Invocation;
use crate::memory::MemoryEntry;
use crate::state::{State, is_state_removal};
use crate::sync::MutexExt;

/// The context of one call of a tool or a callback, or of one run of an agent. Changes are collected as the
/// [`EventActions`] of the event that reports the call. They are visible at once to code that reads state through the
/// same context. Clones share their changes.
#[derive(Clone)]
pub struct CallContext {
    /// The run.
    pub invocation: Arc<Invocation>,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The agent's branch; `None` outside parallel agents.
    pub branch: Option<Arc<str>>,
    /// The id of the function call, in tools and tool callbacks.
    pub function_call_id: Option<Arc<str>>,
    confirmation: Option<Arc<ToolConfirmation>>,
    host: Option<Arc<dyn AgentHost>>,
    actions: Arc<Mutex<EventActions>>,
}

impl CallContext {
    /// Creates a context without changes.
    pub fn new(invocation: Arc<Invocation>, agent: impl Into<Arc<str>>, branch: Option<Arc<str>>) -> Self {
        Self {
            invocation,
            agent: agent.into(),
            branch,
            function_call_id: None,
            confirmation: None,
            host: None,
            actions: Arc::default(),
        }
    }

    /// Sets the engine's services for running code.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn AgentHost>) -> Self {
        self.host = Some(host);
        self
    }

    /// Returns the engine's services for running code.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the context was created without an engine.
    pub fn host(&self) -> Result<&Arc<dyn AgentHost>, RunError> {
        self.host.as_ref().ok_or_else(|| RunError::BadInput("this call runs outside an agent".into()))
    }

    /// Returns the context of a function call, which collects its own changes.
    #[must_use]
    pub fn for_call(&self, id: Option<&str>) -> Self {
        Self { function_call_id: id.map(Into::into), confirmation: None, actions: Arc::default(), ..self.clone() }
    }

    /// Sets a person's decision about the call.
    #[must_use]
    pub fn with_confirmation(mut self, confirmation: Option<ToolConfirmation>) -> Self {
        self.confirmation = confirmation.map(Arc::new);
        self
    }

    /// Returns a person's decision about this call; `None` if nobody was asked.
    pub fn confirmation(&self) -> Option<&ToolConfirmation> {
        self.confirmation.as_deref()
    }

    /// Requests a person's decision about this call. The tool should return a result that says that it waits. After the
    /// decision the tool is called again with the same arguments, and [`CallContext::confirmation`] returns the
    /// decision.
    ///
    /// # Errors
    /// [`RunError::BadInput`] outside a function call, and inside an agent that is called as a tool.
    pub fn request_confirmation(&self, hint: impl Into<String>, payload: Option<Value>) -> Result<(), RunError> {
        let Some(id) = self.function_call_id.as_deref() else {
            return Err(RunError::BadInput("a confirmation can only be requested in a tool call".into()));
        };
        if self.invocation.depth > 0 {
            let message = "a confirmation cannot be requested inside an agent that is called as a tool";
            return Err(RunError::BadInput(message.into()));
        }
        let request = ToolConfirmation { hint: hint.into(), confirmed: false, payload };
        // It consists of strings, a bool and JSON, so this cannot fail.
        let request = serde_json::to_value(request).unwrap_or_default();
        self.actions().requested_tool_confirmations.insert(id.into(), request);
        Ok(())
    }

    /// Returns the user or process that requested the run.
    pub fn caller(&self) -> &Caller {
        &self.invocation.caller
    }

    /// Returns the value of a state key, changes of this call included.
    pub fn state(&self, key: &str) -> Option<Value> {
        if let Some(value) = self.actions().state_delta.get(key) {
            return (!is_state_removal(value)).then(|| value.clone());
        }
        self.invocation.read_session().state.get(key).cloned()
    }

    /// Returns all state, changes of this call included.
    pub fn full_state(&self) -> State {
        let mut state = self.invocation.state();
        state.apply(&self.actions().state_delta);
        state
    }

    /// Sets a state key; `null` deletes it. Tool calls of one model response run concurrently: each sees the state from
    /// before all of them and its own changes. If several set the same key, the last of them in the model's order wins,
    /// except that objects are merged member by member.
    pub fn set_state(&self, key: impl Into<String>, value: Value) {
        self.actions().state_delta.insert(key.into(), value);
    }

    /// Transfers the conversation to the agent named `target` after this call of a tool or a callback.
    ///
    /// # Errors
    /// As [`AgentHost::check_transfer`]; [`RunError::BadInput`] if the context was created without an engine.
    pub fn transfer_to(&self, target: &str) -> Result<(), RunError> {
        self.host()?.check_transfer(self, target)?;
        self.actions().transfer_to_agent = Some(target.into());
        Ok(())
    }

    /// Locks the changes, to read or to extend them. Do not hold the guard across an `await`.
    pub fn actions(&self) -> MutexGuard<'_, EventActions> {
        self.actions.lock_unpoisoned()
    }

    /// Takes the changes out.
    pub fn take_actions(&self) -> EventActions {
        std::mem::take(&mut *self.actions())
    }

    /// Saves an artifact and records it in the changes. Returns the new version.
    pub async fn save_artifact(&self, name: &str, part: &Part) -> Result<u64, StoreError> {
        let version = self.invocation.services.artifacts.save(&self.invocation.session_key, name, part).await?;
        self.actions().artifact_delta.insert(name.into(), version);
        Ok(version)
    }

    /// Loads a version of an artifact; the newest if `version` is `None`.
    pub async fn load_artifact(&self, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        self.invocation.services.artifacts.load(&self.invocation.session_key, name, version).await
    }

    /// Returns the names of the artifacts of the session and its user, sorted.
    pub async fn list_artifacts(&self) -> Result<Vec<String>, StoreError> {
        self.invocation.services.artifacts.list(&self.invocation.session_key).await
    }

    /// Searches the user's earlier sessions in this app.
    pub async fn search_memory(&self, query: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let key = &self.invocation.session_key;
        self.invocation.services.memory.search(&key.app, &key.user, query).await
    }
}
