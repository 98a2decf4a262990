//! Bridge from [`Plugin`] to the plugins of components: the hooks that callbacks do not have. Each call runs in a
//! separate instance. A hook that the plugin does not list costs nothing.

use async_trait::async_trait;
use hatchery_core::{CallContext, Content, Event, EventData, ItemKind, Plugin, PluginInfo, RunError, escape_control};

use super::callback::{ComponentCallback, HookInterface};
use super::hook::Hook;
use crate::contract::bindings::exports::hatchery::agent::{guest_plugins, sync_guest_plugins};
use crate::contract::convert::{FromWit, ToWit, truncate_error, truncate_event_error, wit};
use crate::policy::{Access, Permission};
use crate::runtime::store::{CallOrigin, Sandbox};

/// The async and the sync profile have an interface for plugins each. Their generated types share no trait.
macro_rules! plugin_interface {
    ($module:ident) => {
        impl HookInterface for $module::GuestIndices {
            const KIND: ItemKind = ItemKind::Plugin;

            fn check_unlisted(_: &ComponentCallback<Self>, _: Hook, _: &CallContext) -> Result<(), RunError> {
                Ok(())
            }

            fn guest_error(name: String, _: &CallContext, error: wit::Error) -> RunError {
                RunError::Extension { kind: Self::KIND, name, code: error.code.into(), message: error.message }
            }
        }

        #[async_trait]
        impl Plugin for ComponentCallback<$module::GuestIndices> {
            async fn on_user_message(&self, cx: &CallContext, message: &Content) -> Result<Option<Content>, RunError> {
                if !self.has_hook(Hook::OnUserMessage, cx)? {
                    return Ok(None);
                }
                let (name, message) = (self.hooked.name.clone(), message.to_wit());
                let call = self.call(cx, |accessor, guest| {
                    Box::pin(async move { guest.call_on_user_message(accessor, name, message).await })
                });
                self.content(cx, call.await?)
            }

            async fn before_run(&self, cx: &CallContext) -> Result<Option<Content>, RunError> {
                if !self.has_hook(Hook::BeforeRun, cx)? {
                    return Ok(None);
                }
                let name = self.hooked.name.clone();
                let call = self
                    .call(cx, |accessor, guest| Box::pin(async move { guest.call_before_run(accessor, name).await }));
                self.content(cx, call.await?)
            }

            async fn on_event(&self, cx: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
                if !self.has_hook(Hook::OnEvent, cx)? {
                    return Ok(None);
                }
                let Sandbox { grants, component, .. } = &self.component.sandbox;
                let (name, before, visible) =
                    (self.hooked.name.clone(), &event.actions.state_delta, grants.redact_state(event.to_wit()));
                let call = self.call(cx, |accessor, guest| {
                    Box::pin(async move { guest.call_on_event(accessor, name, visible).await })
                });
                let mut revised = self.accept(cx, call.await?, |event| {
                    event.map(truncate_event_error).map(EventData::from_wit).transpose()
                })?;
                let delta = revised.iter().flat_map(|revised| &revised.actions.state_delta);
                for (key, _) in delta.filter(|(key, value)| before.get(*key) != Some(value)) {
                    grants
                        .check(component, Permission::State(Access::Write, key))
                        .map_err(|denial| denial.run_error(cx))?;
                }
                if let Some(revised) = &mut revised {
                    // Keys that the plugin cannot read stay in the event.
                    let hidden = before.iter().filter(|(key, _)| !grants.can_read_state(key));
                    revised.actions.state_delta.extend(hidden.map(|(key, value)| (key.clone(), value.clone())));
                }
                Ok(revised)
            }

            fn info(&self) -> PluginInfo {
                PluginInfo {
                    name: self.hooked.name.clone(),
                    hooks: self.hooked.hooks.iter().map(|hook| hook.name().into()).collect(),
                    component: Some(self.component.name.to_string()),
                    revision: Some(self.component.sha256.clone()),
                }
            }

            async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
                if !self.has_hook(Hook::AfterRun, cx)? {
                    return Ok(());
                }
                let name = self.hooked.name.clone();
                let call = self
                    .call(cx, |accessor, guest| Box::pin(async move { guest.call_after_run(accessor, name).await }));
                call.await
            }

            async fn close(&self) {
                if !self.hooked.hooks.contains(&Hook::Close) {
                    return;
                }
                let (name, exports) = (self.hooked.name.clone(), self.exports.clone());
                let call = self.component.sandbox.run(CallOrigin::Close, |mut store, instance| {
                    Box::pin(async move {
                        let guest = exports.load(&mut store, &instance)?;
                        store.run_concurrent(async move |accessor| guest.call_close(accessor, name).await).await?
                    })
                });
                let error = match call.await {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => truncate_error(error).message,
                    Err(error) => error.to_string(),
                };
                tracing::warn!("`close` of plugin `{}` failed: {}", self.qualified_name(), escape_control(&error));
            }

            async fn on_run_error(&self, cx: &CallContext, error: &RunError) {
                if !self.has_hook(Hook::OnRunError, cx).unwrap_or(false) {
                    return;
                }
                let (name, failure) = (self.hooked.name.clone(), error.to_wit());
                let call = self.call(cx, |accessor, guest| {
                    Box::pin(async move { guest.call_on_run_error(accessor, name, failure).await })
                });
                if let Err(error) = call.await {
                    // The error that ended the run is the one to report.
                    let (plugin, invocation) = (self.qualified_name(), &cx.invocation.id);
                    let error = error.to_string();
                    let error = escape_control(&error);
                    tracing::warn!(invocation, "after a run that failed, plugin `{plugin}` failed too: {error}");
                }
            }
        }
    };
}

plugin_interface!(guest_plugins);
plugin_interface!(sync_guest_plugins);
