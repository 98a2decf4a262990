//! What was replaced and is still in use: runs go on with the revisions and the apps that they began with. Those that do not end in time
//! lose theirs, so that an old revision is gone one day.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use hatchery_core::Timestamp;
use hatchery_engine::App;
use serde::Serialize;

use crate::catalog::Catalog;
use crate::contract::component::Component;

/// A revision of a component that was replaced or removed, and that runs still use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DrainingRevision {
    /// The component.
    pub name: String,
    /// SHA-256 of its file.
    pub sha256: String,
    /// How many of its calls are running. A run can have it without calling it at the moment.
    pub calls: usize,
    /// Since when it is old.
    pub since: Timestamp,
    /// True when its runs have not ended in time: it is not run any more.
    pub is_cut_off: bool,
}

/// All that was replaced and is still in use.
pub(crate) struct Draining {
    timeout: Duration,
    revisions: Vec<ReplacedRevision>,
    /// Closed when nobody else has them.
    apps: Vec<Arc<App>>,
}

struct ReplacedRevision {
    component: Weak<Component>,
    name: String,
    sha256: String,
    since: Timestamp,
    began: Instant,
    is_cut_off: bool,
}

impl Draining {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, revisions: Vec::new(), apps: Vec::new() }
    }

    /// Takes over what `next` has no more.
    pub(crate) fn replace(&mut self, current: &Catalog, next: &Catalog) {
        for (name, component) in &current.components {
            let successor = next.components.get(name);
            if successor.is_some_and(|successor| Arc::ptr_eq(successor, component)) {
                continue;
            }
            component.retire();
            let (sha256, calls) = (component.sha256().to_owned(), component.running());
            match successor {
                Some(by) => tracing::info!(component = name, sha256, by = by.sha256(), calls, "replaced"),
                None => tracing::info!(component = name, sha256, calls, "removed"),
            }
            self.revisions.push(ReplacedRevision {
                component: Arc::downgrade(component),
                name: name.clone(),
                sha256,
                since: Timestamp::now(),
                began: Instant::now(),
                is_cut_off: false,
            });
        }
        let is_gone = |(name, app): &(&String, &Arc<App>)| next.apps.get(*name).is_none_or(|it| !Arc::ptr_eq(it, app));
        self.apps.extend(current.apps.iter().filter(is_gone).map(|(_, app)| app.clone()));
    }

    /// Forgets what is not used any more, and cuts off what was to have ended by now. Gives apps that nobody has: they are to be closed.
    pub(crate) fn sweep(&mut self) -> Vec<Arc<App>> {
        // The agents are shared by all copies of an app, whatever settings these have.
        let is_unused = |app: &mut Arc<App>| Arc::strong_count(app) == 1 && Arc::strong_count(&app.tree) == 1;
        let unused = self.apps.extract_if(.., is_unused).collect();
        self.revisions.retain_mut(|old| old.is_in_use(self.timeout));
        unused
    }

    /// What is still in use.
    pub(crate) fn report(&self) -> Vec<DrainingRevision> {
        let in_use = self.revisions.iter().filter_map(|old| Some((old, old.component.upgrade()?)));
        in_use
            .map(|(old, component)| DrainingRevision {
                name: old.name.clone(),
                sha256: old.sha256.clone(),
                calls: component.running(),
                since: old.since,
                is_cut_off: old.is_cut_off,
            })
            .collect()
    }
}

impl ReplacedRevision {
    /// False when nobody has it any more. Cuts it off when it is due.
    fn is_in_use(&mut self, timeout: Duration) -> bool {
        let (name, sha256, took) = (&self.name, &self.sha256, self.began.elapsed());
        let Some(component) = self.component.upgrade() else {
            tracing::info!(component = name, sha256, ?took, "drained");
            return false;
        };
        if took >= timeout && !self.is_cut_off {
            self.is_cut_off = true;
            let calls = component.running();
            tracing::warn!(component = name, sha256, ?took, calls, "cut off: its runs have not ended in time");
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
        let mut draining = Draining::new(Duration::ZERO);
        let run = Arc::new(App::clone(&app).with_settings(AppSettings::default()));
        draining.replace(&catalog(Some(&app)), &catalog(Some(&app)));
        drop(app);
        assert!(draining.sweep().is_empty() && draining.apps.is_empty(), "an app that serves on is not touched");
        let app = Arc::new(App::clone(&run));
        draining.replace(&catalog(Some(&app)), &catalog(None));
        drop(app);
        assert!(draining.sweep().is_empty(), "a run goes on with the same agents");
        drop(run);
        assert_eq!(draining.sweep().iter().map(|app| app.name.as_str()).collect::<Vec<_>>(), ["dice"]);
        assert!(draining.sweep().is_empty());
    }
}
