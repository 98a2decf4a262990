//! Events of the host about its catalog, from the difference of two reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_telemetry::{HostEventKind, HostEvents};
use tokio::sync::watch;

use crate::source::{AppSource, CatalogReport, FileReport};

/// Records changes of the catalog until it is dropped.
pub(super) async fn record_changes(mut changes: watch::Receiver<u64>, apps: Arc<dyn AppSource>, events: HostEvents) {
    let mut before = CatalogReport::default();
    // Files that were loaded before the subscription are changes too.
    changes.mark_changed();
    while changes.changed().await.is_ok() {
        changes.mark_unchanged();
        let after = apps.report();
        for event in differences(&before, &after) {
            events.add(event);
        }
        before = after;
    }
}

/// Returns the events between two reports.
fn differences(before: &CatalogReport, after: &CatalogReport) -> Vec<HostEventKind> {
    let mut found = file_differences(before, after);
    let mut old: BTreeMap<_, _> = before.components.iter().map(|it| (&it.name, &it.sha256)).collect();
    for component in &after.components {
        let (name, sha256) = (component.name.clone(), component.sha256.clone());
        match old.remove(&component.name) {
            None => found.push(HostEventKind::ComponentAdded { name, sha256 }),
            Some(from) if *from != sha256 => {
                found.push(HostEventKind::ComponentReplaced { name, from: from.clone(), to: sha256 });
            }
            Some(_) => {}
        }
    }
    let removed = old.into_iter().map(|(name, sha256)| (name.clone(), sha256.clone()));
    found.extend(removed.map(|(name, sha256)| HostEventKind::ComponentRemoved { name, sha256 }));
    let is_gone = |name: &str, sha256: &str| !after.draining.iter().any(|it| it.name == name && it.sha256 == sha256);
    let drained = before.draining.iter().filter(|it| is_gone(&it.name, &it.sha256));
    found.extend(drained.map(|it| HostEventKind::RevisionDrained { name: it.name.clone(), sha256: it.sha256.clone() }));
    found
}

fn file_differences(before: &CatalogReport, after: &CatalogReport) -> Vec<HostEventKind> {
    let mut old: BTreeMap<_, _> = before.files.iter().map(|file| (&file.path, file)).collect();
    let mut found = Vec::new();
    for file in &after.files {
        let known = old.remove(&file.path);
        let is_same = |known: &FileReport| {
            (&known.state, &known.reason, &known.sha256) == (&file.state, &file.reason, &file.sha256)
                && known.since == file.since
        };
        if !known.is_some_and(is_same) {
            found.extend(file_event(file, known));
        }
    }
    let removed = old.into_values().map(|file| (file.path.clone(), file.name.clone()));
    found.extend(removed.map(|(path, name)| HostEventKind::FileRemoved { path, name }));
    found
}

fn file_event(file: &FileReport, known: Option<&FileReport>) -> Option<HostEventKind> {
    let (path, name) = (file.path.clone(), file.name.clone());
    let is_loading = |state: &str| matches!(state, "pending" | "compiling");
    match (file.state.as_str(), &file.reason) {
        ("loaded", _) => Some(HostEventKind::FileLoaded { path, name }),
        (state, None) if is_loading(state) => {
            let has_begun = known.is_none_or(|known| !is_loading(&known.state));
            has_begun.then_some(HostEventKind::FileLoading { path, name })
        }
        (_, reason) => Some(HostEventKind::FileRejected {
            path,
            name,
            reason: reason.clone().unwrap_or_default(),
            previous_serves: file.previous_serves,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{ComponentReport, DrainingReport};

    fn report(sha256: &str, state: &str, reason: Option<&str>) -> CatalogReport {
        let component = ComponentReport { name: "dice".into(), sha256: sha256.into(), ..ComponentReport::default() };
        let file = FileReport {
            path: "dice.wasm".into(),
            name: "dice".into(),
            state: state.into(),
            reason: reason.map(Into::into),
            previous_serves: reason.is_some(),
            ..FileReport::default()
        };
        CatalogReport { components: vec![component], files: vec![file], ..CatalogReport::default() }
    }

    fn kinds(before: &CatalogReport, after: &CatalogReport) -> Vec<String> {
        let kind = |event| serde_json::to_value(event).unwrap()["kind"].as_str().unwrap().to_owned();
        differences(before, after).into_iter().map(kind).collect()
    }

    #[test]
    fn files_and_components_come_change_and_go() {
        let (none, first) = (CatalogReport::default(), report("aa", "loaded", None));
        assert_eq!(kinds(&none, &first), ["fileLoaded", "componentAdded"]);
        let compiling = report("aa", "compiling", None);
        assert_eq!(kinds(&first, &compiling), ["fileLoading"]);
        assert_eq!(kinds(&report("aa", "pending", None), &compiling), [""; 0]);
        assert_eq!(kinds(&compiling, &report("bb", "loaded", None)), ["fileLoaded", "componentReplaced"]);
        assert_eq!(kinds(&first, &report("aa", "rejected", Some("no"))), ["fileRejected"]);
        assert_eq!(kinds(&first, &first), [""; 0]);
        assert_eq!(kinds(&first, &none), ["fileRemoved", "componentRemoved"]);
    }

    #[test]
    fn the_end_of_a_replaced_revision_happens() {
        let draining = DrainingReport { name: "dice".into(), sha256: "aa".into(), ..DrainingReport::default() };
        let before = CatalogReport { draining: vec![draining], ..CatalogReport::default() };
        assert_eq!(kinds(&before, &CatalogReport::default()), ["revisionDrained"]);
    }
}
