//! Settings of components that change while they serve: in force at once, for the code that is loaded already.

use std::path::PathBuf;
use std::sync::Arc;

use super::load::{Loaded, check_folders, check_trust};
use super::{Loader, SETTLE};
use crate::catalog::scan::Kind;
use crate::catalog::settings::{ComponentSettings, Settings};
use crate::contract::component::Component;
use crate::error::LoadError;

/// What a load has given, with the settings that are in force.
pub(super) enum Current {
    /// The bytes are those that serve already.
    Unchanged,
    Component {
        component: Arc<Component>,
        is_from_cache: bool,
        /// False when it described itself with settings that are not in force any more.
        is_described: bool,
    },
}

/// Gives a component that was loaded with older settings the present ones.
pub(super) fn bring_up_to_date(loaded: Loaded, settings: &Settings, name: &str) -> Result<Current, LoadError> {
    let Loaded::Component { component, is_from_cache } = loaded else { return Ok(Current::Unchanged) };
    let now = settings.of(name);
    if *component.settings() == now {
        return Ok(Current::Component { component, is_from_cache, is_described: true });
    }
    let is_described = !affects_description(component.settings(), &now);
    let component = Arc::new(with_settings(&component, settings, now)?);
    Ok(Current::Component { component, is_from_cache, is_described })
}

/// True when a component may describe itself differently. It describes itself without any rights, so its grants are not among the reasons.
fn affects_description(old: &ComponentSettings, new: &ComponentSettings) -> bool {
    old.config != new.config || old.limits != new.limits
}

/// Returns the component with the settings that are in force, if it may have them.
fn with_settings(component: &Component, settings: &Settings, now: ComponentSettings) -> Result<Component, LoadError> {
    check_trust(settings, component.name())?;
    check_folders(settings, component.name())?;
    component.with_settings(now)
}

impl Loader {
    /// Takes over the settings of components. Those that serve have them as soon as the next catalog is published; one that cannot have its
    /// grants is dropped. Nothing is compiled or read for this.
    pub(crate) fn configure(&mut self, settings: Settings) {
        let before = std::mem::replace(&mut self.options.settings, settings);
        let mut stale = Vec::new();
        for (path, known) in self.files.iter_mut().filter(|(_, known)| known.kind == Kind::Component) {
            let (old, new) = (before.of(&known.name), self.options.settings.of(&known.name));
            if old == new {
                continue;
            }
            let Some(component) = &known.component else {
                // It may have been rejected for its settings.
                known.is_loaded = false;
                known.seen = known.seen.checked_sub(SETTLE).unwrap_or(known.seen);
                continue;
            };
            self.has_changed = true;
            let must_describe = affects_description(component.settings(), &new);
            match with_settings(component, &self.options.settings, new) {
                Ok(component) => {
                    known.component = Some(Arc::new(component));
                    known.is_described &= !must_describe;
                    // A load under way ends with the settings of then.
                    if must_describe && !self.tasks.contains(path) {
                        stale.push(path.clone());
                    }
                }
                Err(error) => {
                    tracing::warn!(component = known.name, "stops serving: {error}");
                    known.component = None;
                    // The next look loads it, and shows the reason if that fails.
                    known.is_loaded = false;
                    known.seen = known.seen.checked_sub(SETTLE).unwrap_or(known.seen);
                }
            }
        }
        for path in stale {
            self.describe_again(path);
        }
    }

    /// Starts to ask the component of a file again what it offers.
    pub(super) fn describe_again(&mut self, path: PathBuf) {
        let Some(known) = self.files.get(&path) else { return };
        let Some(component) = known.component.clone() else { return };
        let settings = self.options.settings.of(&known.name);
        let described = settings.clone();
        self.tasks.start(path, known.stamp, settings, |mut permit| async move {
            permit.enter().await;
            let component = Arc::new(component.describe_again(described).await?);
            Ok(Loaded::Component { component, is_from_cache: true })
        });
    }
}
