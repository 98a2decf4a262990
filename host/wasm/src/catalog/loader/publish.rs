//! The next catalog from what is loaded.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Loader, TrackedFile};
use crate::catalog::names::StoredNames;
use crate::catalog::scan::Kind;
use crate::catalog::{Catalog, FileState, FileStatus, Sources};

impl Loader {
    /// Returns the catalog that follows `current`, or `None` if nothing has changed. One whose files only have other states has the same
    /// generation.
    pub(crate) async fn publish(&mut self, current: &Arc<Catalog>) -> Option<Catalog> {
        if self.has_changed || current.generation == 0 {
            self.has_changed = false;
            return self.make(current).await;
        }
        let files = self.statuses();
        (files != current.files).then(|| current.with_files(files))
    }

    /// The catalog of what serves now; none when making it breaks off, which is a defect.
    async fn make(&mut self, current: &Arc<Catalog>) -> Option<Catalog> {
        let mut sources = Sources {
            written: self.options.settings.written(),
            native_items: self.options.native_items.clone(),
            ..Sources::default()
        };
        for (path, known) in &self.files {
            if let Some(component) = &known.component {
                sources.components.insert(known.name.clone(), component.clone());
                sources.component_files.insert(known.name.clone(), path.clone());
            } else if known.kind == Kind::Component && !matches!(known.state, FileState::Conflict { .. }) {
                sources.awaited.insert(path.clone(), known.name.clone());
            }
            if known.kind == Kind::RootAgent {
                sources.root_agents.insert(path.clone(), known.is_settled());
            }
        }
        // As of the last catalog: what was loaded since then competes with what is in it.
        let is_starting = self.starting.as_ref().is_some_and(|starting| !starting.is_empty());
        if let Some(starting) = &mut self.starting {
            starting.retain(|path| self.tasks.contains(path));
        }
        let previous = if is_starting {
            Arc::new(Catalog { generation: current.generation, ..self.initial() })
        } else {
            current.clone()
        };
        let made = tokio::task::spawn_blocking(move || previous.next(sources)).await;
        let made = made.inspect_err(|error| tracing::error!("making the catalog broke off: {error}"));
        let (mut next, mut issues) = made.ok()?;
        if self.waits_for_components() {
            // What is missing may be on its way.
            for state in issues.values_mut().filter(|state| matches!(state, FileState::Rejected { .. })) {
                *state = FileState::Pending;
            }
        }
        self.issues = issues;
        self.record_issues();
        next.files = self.statuses();
        log_conflicts(current, &next);
        if self.starting.as_ref().is_some_and(BTreeSet::is_empty) {
            self.keep_names(&next).await;
        }
        Some(next)
    }

    /// Writes down which names belong to whom in `catalog`, if that has changed.
    async fn keep_names(&mut self, catalog: &Catalog) {
        let Some(file) = self.options.names_file.clone() else { return };
        let names = StoredNames::new(&self.directory, &self.owners, &catalog.app_files, &catalog.owners);
        if names == self.names_file {
            return;
        }
        self.names_file = names.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || names.write(&file)).await {
            tracing::error!("keeping names broke off: {error}");
        }
    }

    /// True while a component is loaded for the first time.
    fn waits_for_components(&self) -> bool {
        let is_first = |known: &TrackedFile| known.kind == Kind::Component && known.component.is_none();
        self.files.iter().any(|(path, known)| is_first(known) && self.tasks.contains(path))
    }

    /// YAML apps are loaded with the catalog, so their states are known only now.
    fn record_issues(&mut self) {
        let settled = |known: &TrackedFile| known.kind == Kind::RootAgent && known.is_settled();
        for (path, known) in self.files.iter_mut().filter(|(_, known)| settled(known)) {
            let state = self.issues.get(path).cloned().unwrap_or(FileState::Loaded);
            if let FileState::Rejected { reason, .. } = &state
                && known.state != state
            {
                tracing::warn!("{}: rejected: {reason}", path.display());
            }
            known.set(state);
        }
    }

    /// Status by file. A component that loaded but whose agents do not fit shows that.
    fn statuses(&self) -> Vec<FileStatus> {
        let shown = self.files.iter().filter(|(_, known)| known.kind != Kind::Yaml);
        shown
            .map(|(path, known)| {
                let issue = self.issues.get(path).filter(|_| known.state == FileState::Loaded);
                let state = issue.unwrap_or(&known.state).clone();
                FileStatus { path: path.clone(), name: known.name.clone(), state, since: known.since }
            })
            .collect()
    }
}

/// Logs which names belong to others since `previous`.
fn log_conflicts(previous: &Catalog, next: &Catalog) {
    for file in &next.files {
        if let FileState::Conflict { reason } = &file.state
            && previous.file(&file.path).is_none_or(|before| before.state != file.state)
        {
            tracing::warn!("{}: conflict: {reason}", file.path.display());
        }
    }
    for (component, sentences) in &next.shadowed {
        for sentence in sentences.iter().filter(|it| !previous.shadowed(component).contains(it)) {
            tracing::warn!(component, "conflict: {sentence}");
        }
    }
}
