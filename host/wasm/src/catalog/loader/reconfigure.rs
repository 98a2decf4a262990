//! Applies changed settings to components that are already loaded, without compiling them again.

use std::path::PathBuf;
use std::sync::Arc;

use super::load::{LoadedFile, check_folders, check_trust};
use super::{CatalogItems, CatalogUpdate, Loader, warn_of_missing_grants};
use crate::catalog::scan::FileKind;
use crate::catalog::settings::Settings;
use crate::contract::component::{Component, ComponentSettings};
use crate::error::LoadError;

/// The result of a load, with the settings that are in force.
pub(super) enum LoadOutcome {
    /// The file has the bytes that already serve.
    Unchanged,
    Component {
        component: Arc<Component>,
        is_from_cache: bool,
        /// False if the component described itself with settings that are no longer in force.
        is_described: bool,
    },
}

/// Replaces the settings of a component that was loaded with older ones by the current ones.
pub(super) fn apply_current_settings(
    loaded: LoadedFile,
    settings: &Settings,
    name: &str,
) -> Result<LoadOutcome, LoadError> {
    let LoadedFile::Component { component, is_from_cache } = loaded else { return Ok(LoadOutcome::Unchanged) };
    let now = settings.for_component(name);
    if *component.settings() == now {
        return Ok(LoadOutcome::Component { component, is_from_cache, is_described: true });
    }
    let is_described = !affects_description(component.settings(), &now);
    let component = Arc::new(with_settings(&component, settings, now)?);
    Ok(LoadOutcome::Component { component, is_from_cache, is_described })
}

/// Returns true if the new settings may change the description of a component. Its grants do not matter, because it
/// describes itself without any.
fn affects_description(old: &ComponentSettings, new: &ComponentSettings) -> bool {
    old.config != new.config || old.limits != new.limits || old.descriptions != new.descriptions
}

/// Returns the component with the current settings, if they are allowed.
fn with_settings(component: &Component, settings: &Settings, now: ComponentSettings) -> Result<Component, LoadError> {
    check_trust(settings, component.name())?;
    check_folders(settings, component.name())?;
    component.with_settings(now)
}

impl Loader {
    /// Applies new component settings. Loaded components have them as soon as the next catalog is published; one that
    /// cannot have its grants stops serving. This neither compiles nor reads any file.
    pub(crate) fn configure(&mut self, settings: Settings) {
        let previous = std::mem::replace(&mut self.options.settings, settings);
        let mut stale = Vec::new();
        for (path, file) in self.files.iter_mut().filter(|(_, file)| file.kind == FileKind::Component) {
            let (old, new) = (previous.for_component(&file.name), self.options.settings.for_component(&file.name));
            if old == new {
                continue;
            }
            let Some(component) = &file.component else {
                // It may have been rejected because of its settings.
                file.reload_soon();
                continue;
            };
            self.has_changed = true;
            let needs_description = affects_description(component.settings(), &new);
            match with_settings(component, &self.options.settings, new) {
                Ok(configured) => {
                    warn_of_missing_grants(&configured, Some(component));
                    file.component = Some(Arc::new(configured));
                    file.is_described &= !needs_description;
                    // A running load ends with the current settings.
                    if needs_description && !self.tasks.contains(path) {
                        stale.push(path.clone());
                    }
                }
                Err(error) => {
                    tracing::warn!(component = file.name, "stops serving: {error}");
                    file.component = None;
                    // The next scan loads it, and reports the reason if loading fails.
                    file.reload_soon();
                }
            }
        }
        for path in stale {
            self.describe_again(path);
        }
    }

    /// Replaces options. Loads in progress whose result may differ begin again.
    pub(crate) fn update(&mut self, update: CatalogUpdate) {
        let CatalogUpdate { items, compile, load_policy, drain_timeout, max_revisions } = update;
        if let Some(CatalogItems { agent_classes, native_items }) = items {
            self.options.agent_classes = agent_classes;
            self.options.native_items = native_items;
            self.has_changed = true;
        }
        if let Some(limits) = compile {
            self.options.compiler = self.options.compiler.with_limits(limits);
        }
        if let Some(load_policy) = load_policy {
            self.options.load_policy = load_policy;
            for (path, file) in self.files.iter_mut().filter(|(_, file)| file.kind == FileKind::Component) {
                self.tasks.abort(path);
                file.reset_state();
                file.needs_admission = true;
                file.reload_soon();
            }
        }
        if let Some(drain_timeout) = drain_timeout {
            self.options.drain_timeout = drain_timeout;
        }
        if let (Some(revisions), Some(max)) = (&self.options.revisions, max_revisions) {
            revisions.set_max(max);
        }
    }

    /// Starts a task that runs `describe` of a loaded component again.
    pub(super) fn describe_again(&mut self, path: PathBuf) {
        let Some(file) = self.files.get(&path) else { return };
        let Some(component) = file.component.clone() else { return };
        let settings = self.options.settings.for_component(&file.name);
        let new_settings = settings.clone();
        self.tasks.start(path, file.version, settings, |mut permit| async move {
            permit.acquire().await;
            let component = Arc::new(component.describe_again(new_settings).await?);
            Ok(LoadedFile::Component { component, is_from_cache: true })
        });
    }
}
