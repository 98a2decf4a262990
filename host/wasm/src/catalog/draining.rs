//! Draining of replaced revisions and apps: runs keep using the versions that they started with. Revisions whose runs
//! do not end within the timeout are cut off, so that they are eventually freed.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hatchery_core::Timestamp;
use hatchery_engine::App;
use serde::Serialize;

use crate::catalog::Catalog;
use crate::contract::component::Component;

/// A revision that was replaced or removed, but is still used by runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainingRevision {
    /// Name of the component.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// Number of running calls. A run can hold the revision without calling it currently.
    pub calls: usize,
    /// When the revision was replaced.
    pub since: Timestamp,
    /// True if its runs did not end in time and its calls are cut off.
    pub is_cut_off: bool,
}

/// Replaced revisions and apps that are still used.
pub(crate) struct DrainingRevisions {
    timeout: Duration,
    revisions: Vec<ReplacedRevision>,
    /// Closed when no one else holds them.
    apps: Vec<Arc<App>>,
}

struct ReplacedRevision {
    component: Weak<Component>,
    name: String,
    sha256: String,
    since: Timestamp,
    replaced_at: Instant,
    is_cut_off: bool,
}

impl DrainingRevisions {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, revisions: Vec::new(), apps: Vec::new() }
    }

    /// Sets the time for which replaced revisions may still be used, including those already replaced.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Adds the components and apps of `current` that are not in `next`.
    pub(crate) fn replace(&mut self, current: &Catalog, next: &Catalog) {
        for (name, component) in &current.components {
            let successor = next.components.get(name);
            if successor.is_some_and(|successor| Arc::ptr_eq(successor, component)) {
                continue;
            }
            component.retire();
            let (sha256, calls) = (component.sha256().to_owned(), component.running_calls());
            match successor {
                Some(by) => tracing::info!(component = name, sha256, by = by.sha256(), calls, "replaced"),
                None => tracing::info!(component = name, sha256, calls, "removed"),
            }
            self.revisions.push(ReplacedRevision {
                component: Arc::downgrade(component),
                name: name.clone(),
                sha256,
                since: Timestamp::now(),
                replaced_at: Instant::now(),
                is_cut_off: false,
            });
        }
        let is_gone = |(name, app): &(&String, &Arc<App>)| next.apps.get(*name).is_none_or(|it| !Arc::ptr_eq(it, app));
        self.apps.extend(current.apps.iter().filter(is_gone).map(|(_, app)| app.clone()));
    }

    /// Removes revisions that are no longer used, and cuts off those whose time is up. Returns apps that are no longer
    /// used, to be closed.
    pub(crate) fn sweep(&mut self) -> Vec<Arc<App>> {
        // All copies of an app share its agents, with any settings.
        let is_unused = |app: &mut Arc<App>| Arc::strong_count(app) == 1 && Arc::strong_count(&app.tree) == 1;
        let unused = self.apps.extract_if(.., is_unused).collect();
        self.revisions.retain_mut(|revision| revision.is_in_use(self.timeout));
        unused
    }

    /// Returns the revisions that are still used.
    pub(crate) fn report(&self) -> Vec<DrainingRevision> {
        let in_use = self.revisions.iter().filter_map(|revision| Some((revision, revision.component.upgrade()?)));
        in_use
            .map(|(revision, component)| DrainingRevision {
                name: revision.name.clone(),
                sha256: revision.sha256.clone(),
                calls: component.running_calls(),
                since: revision.since,
                is_cut_off: revision.is_cut_off,
            })
            .collect()
    }
}

impl ReplacedRevision {
    /// Returns false if the revision is no longer used. Cuts it off when its time is up.
    fn is_in_use(&mut self, timeout: Duration) -> bool {
        let (name, sha256, elapsed) = (&self.name, &self.sha256, self.replaced_at.elapsed());
        let Some(component) = self.component.upgrade() else {
            tracing::info!(component = name, sha256, took = ?elapsed, "drained");
            return false;
        };
        if elapsed >= timeout && !self.is_cut_off {
            self.is_cut_off = true;
            let calls = component.running_calls();
            tracing::warn!(
                component = name, sha256, took = ?elapsed, calls,
                "cut off: its runs have not ended in time; `hot_reload.drain_timeout` in hatchery.yaml gives them more"
            );
            component.cancel_calls();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use hatchery_engine::AppSettings;
    use hatchery_engine::build::llm;

    use super::*;

    fn catalog(app: Option<&Arc<App>>) -> Catalog {
        let apps = app.map(|app| (app.name.clone(), app.clone())).into_iter().collect();
        Catalog { apps, ..Catalog::default() }
    }

    #[test]
    fn an_app_is_closed_when_no_run_has_its_agents_any_more() {
        let agent = llm("root").instruction("x").build().unwrap();
        let app = Arc::new(App::new("dice", agent).unwrap());
        let mut draining = DrainingRevisions::new(Duration::ZERO);
        let run = Arc::new(App::clone(&app).with_settings(AppSettings::default()));
        draining.replace(&catalog(Some(&app)), &catalog(Some(&app)));
        drop(app);
        assert!(draining.sweep().is_empty() && draining.apps.is_empty(), "an app that still serves is not closed");
        let app = Arc::new(App::clone(&run));
        draining.replace(&catalog(Some(&app)), &catalog(None));
        drop(app);
        assert!(draining.sweep().is_empty(), "a run still uses the same agents");
        drop(run);
        assert_eq!(draining.sweep().iter().map(|app| app.name.as_str()).collect::<Vec<_>>(), ["dice"]);
        assert!(draining.sweep().is_empty());
    }
}
