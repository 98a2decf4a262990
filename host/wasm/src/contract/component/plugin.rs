//! A component's plugin: the hooks that callbacks do not have. Each call has an instance for itself, and hooks that the plugin does not list
//! cost nothing.

use async_trait::async_trait;
use hatchery_core::{CallContext, Content, Event, EventData, ItemKind, Plugin, RunError};
use wasmtime::Store;
use wasmtime::component::Instance;

use super::callback::{Hooks, Interface};
use super::hook::Hook;
use crate::contract::bindings::exports::hatchery::agent::guest_plugins::{Guest, GuestIndices};
use crate::contract::convert::{FromWit, ToWit, bounded_event, wit};
use crate::policy::{Access, Permission};
use crate::runtime::store::{HostState, Sandbox};

impl Interface for GuestIndices {
    type Guest = Guest;

    const KIND: ItemKind = ItemKind::Plugin;

    fn load(&self, store: &mut Store<HostState>, instance: &Instance) -> wasmtime::Result<Guest> {
        self.load(store, instance)
    }

    fn unlisted(_: &Hooks<Self>, _: Hook, _: &CallContext) -> Result<(), RunError> {
        Ok(())
    }

    fn failed(name: String, _: &CallContext, error: wit::Error) -> RunError {
        RunError::Extension { kind: Self::KIND, name, code: error.code.into(), message: error.message }
    }
}

#[async_trait]
impl Plugin for Hooks<GuestIndices> {
    async fn on_user_message(&self, cx: &CallContext, message: &Content) -> Result<Option<Content>, RunError> {
        if !self.is_wanted(Hook::OnUserMessage, cx)? {
            return Ok(None);
        }
        let (name, message) = (self.hooked.name.clone(), message.to_wit());
        let call = self.run(cx, async move |accessor, guest| guest.call_on_user_message(accessor, name, message).await);
        self.optional_content(call.await?)
    }

    async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
        if !self.is_wanted(Hook::BeforeRun, cx)? {
            return Ok(None);
        }
        let name = self.hooked.name.clone();
        let call = self.run(cx, async move |accessor, guest| guest.call_before_run(accessor, name).await);
        self.optional_content(call.await?)
    }

    async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        if !self.is_wanted(Hook::OnEvent, cx)? {
            return Ok(None);
        }
        let Sandbox { grants, component, .. } = &self.component.sandbox;
        let (name, before, shown) =
            (self.hooked.name.clone(), &event.actions.state_delta, grants.visible(event.to_wit()));
        let call = self.run(cx, async move |accessor, guest| guest.call_on_event(accessor, name, shown).await);
        let mut revised =
            self.accept(call.await?, |event| event.map(bounded_event).map(EventData::from_wit).transpose())?;
        let delta = revised.iter().flat_map(|revised| &revised.actions.state_delta);
        for (key, _) in delta.filter(|(key, value)| before.get(*key) != Some(value)) {
            grants.check(component, Permission::State(Access::Write, key)).map_err(|denial| denial.end(cx))?;
        }
        if let Some(revised) = &mut revised {
            // What it was not shown is not its to take away.
            let hidden = before.iter().filter(|(key, _)| !grants.shows_state(key));
            revised.actions.state_delta.extend(hidden.map(|(key, value)| (key.clone(), value.clone())));
        }
        Ok(revised)
    }

    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        if !self.is_wanted(Hook::AfterRun, cx)? {
            return Ok(());
        }
        let name = self.hooked.name.clone();
        let call = self.run(cx, async move |accessor, guest| guest.call_after_run(accessor, name).await);
        call.await
    }

    async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
        // A hook that is not listed is no error for a plugin.
        if !self.is_wanted(Hook::OnRunError, cx).unwrap_or(false) {
            return;
        }
        let (name, failure) = (self.hooked.name.clone(), error.to_wit());
        let call = self.run(cx, async move |accessor, guest| guest.call_on_run_error(accessor, name, failure).await);
        if let Err(error) = call.await {
            // The run has failed already; its own error is the one that counts.
            let (plugin, invocation) = (self.qualified_name(), &cx.invocation.id);
            tracing::warn!(invocation, "after a run that failed, plugin `{plugin}` failed too: {error}");
        }
    }
}
