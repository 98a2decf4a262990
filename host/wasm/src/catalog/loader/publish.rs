//! Publishing: builds the next catalog from the loaded files.

use std::collections::BTreeSet;
use std::sync::Arc;

use hatchery_core::escape_control;

use super::{Loader, TrackedFile};
use crate::catalog::names::StoredNames;
use crate::catalog::scan::FileKind;
use crate::catalog::{Catalog, FileState, FileStatus, LoadIssue, Sources};

impl Loader {
    /// Returns the catalog that follows `current`, or `None` if nothing has changed. If only file states have changed,
    /// the generation stays the same.
    pub(crate) async fn publish(&mut self, current: &Arc<Catalog>) -> Option<Catalog> {
        if self.has_changed || current.generation == 0 {
            self.has_changed = false;
            return self.build_catalog(current).await;
        }
        let files = self.statuses();
        (files != current.files).then(|| current.with_files(files))
    }

    /// Builds the catalog of everything that is loaded. `None` if building it panics, which is a bug.
    async fn build_catalog(&mut self, current: &Arc<Catalog>) -> Option<Catalog> {
        let mut sources = Sources {
            agent_classes: self.options.agent_classes.clone(),
            writable_folders: self.options.settings.writable_folders(),
            native_items: self.options.native_items.clone(),
            native_apps: self.options.native_apps.clone(),
            ..Sources::default()
        };
        for (path, file) in &self.files {
            if let Some(component) = &file.component {
                sources.components.insert(file.name.clone(), component.clone());
                sources.component_files.insert(file.name.clone(), path.clone());
            } else if file.kind == FileKind::Component && !matches!(file.state, FileState::Conflict { .. }) {
                sources.pending.insert(path.clone(), file.name.clone());
            }
            if file.kind == FileKind::RootAgent {
                sources.root_agents.insert(path.clone(), file.is_up_to_date());
            }
        }
        // As of the last catalog: components that were loaded since then compete with those in it.
        let is_starting = self.starting.as_ref().is_some_and(|starting| !starting.is_empty());
        if let Some(starting) = &mut self.starting {
            starting.retain(|path| self.tasks.contains(path));
        }
        let previous = if is_starting {
            Arc::new(Catalog { generation: current.generation, ..self.initial() })
        } else {
            current.clone()
        };
        let result = tokio::task::spawn_blocking(move || previous.build_next(sources)).await;
        let result = result.inspect_err(|error| tracing::error!("building the catalog panicked: {error}"));
        let (mut next, mut issues) = result.ok()?;
        if self.waits_for_components() {
            // Missing items may belong to components that are still being loaded.
            for issue in issues.values_mut().filter(|issue| matches!(issue.state, FileState::Rejected { .. })) {
                issue.state = FileState::Pending;
            }
        }
        self.issues = issues;
        self.record_issues();
        next.files = self.statuses();
        log_conflicts(current, &next);
        self.log_unusable_agents(current);
        if self.starting.as_ref().is_some_and(BTreeSet::is_empty) {
            self.store_names(&next).await;
        }
        Some(next)
    }

    /// Logs why agents of loaded components cannot serve. Skips reasons that `previous` has already.
    fn log_unusable_agents(&self, previous: &Catalog) {
        for (path, LoadIssue { state, is_logged }) in &self.issues {
            let is_loaded = self
                .files
                .get(path)
                .is_some_and(|file| file.kind == FileKind::Component && file.state == FileState::Loaded);
            if is_loaded
                && !is_logged
                && let FileState::Rejected { reason, previous_serves } = state
                && previous.file(path).is_none_or(|before| before.state != *state)
            {
                let serving = if *previous_serves { "; the agent before it keeps serving" } else { "" };
                tracing::warn!("{}: loaded, but {}{serving}", path.display(), escape_control(reason));
            }
        }
    }

    /// Stores the owners of names in `catalog`, if they have changed. A failure is tried again with the next catalog.
    async fn store_names(&mut self, catalog: &Catalog) {
        let Some(path) = self.options.names_file.clone().filter(|_| self.options.stores_names) else { return };
        let names = StoredNames::new(&self.directory, &self.owners, &catalog.app_files, &catalog.owners);
        if names == self.stored_names {
            return;
        }
        let written = tokio::task::spawn_blocking(move || names.write(&path).then_some(names)).await;
        match written {
            Ok(Some(names)) => self.stored_names = names,
            Ok(None) => {}
            Err(error) => tracing::error!("storing names panicked: {error}"),
        }
    }

    /// Returns true while a component is loaded for the first time.
    fn waits_for_components(&self) -> bool {
        let is_new = |file: &TrackedFile| file.kind == FileKind::Component && file.component.is_none();
        self.files.iter().any(|(path, file)| is_new(file) && self.tasks.contains(path))
    }

    /// Sets the states of YAML apps, which are loaded while the catalog is built.
    fn record_issues(&mut self) {
        let is_current = |file: &TrackedFile| file.kind == FileKind::RootAgent && file.is_up_to_date();
        for (path, file) in self.files.iter_mut().filter(|(_, file)| is_current(file)) {
            let state = self.issues.get(path).map_or(FileState::Loaded, |issue| issue.state.clone());
            if let FileState::Rejected { reason, .. } = &state
                && file.state != state
            {
                // A reason that is about a line begins with the path.
                let place = format!("{}:", path.display());
                if reason.starts_with(&place) {
                    tracing::warn!("rejected: {reason}");
                } else {
                    tracing::warn!("{place} rejected: {reason}");
                }
            }
            file.set_state(state);
        }
    }

    /// Returns the state of each file, and of each folder that cannot be read. The state of a loaded component has the
    /// reason why its agents cannot serve.
    fn statuses(&self) -> Vec<FileStatus> {
        let visible = self.files.iter().filter(|(_, file)| file.kind != FileKind::Yaml);
        let folders = self.unreadable.iter().map(|(path, folder)| {
            let reason = format!("`{}`: the folder cannot be read: {}", path.display(), folder.reason);
            let previous_serves =
                self.files.iter().any(|(file, tracked)| file.starts_with(path) && tracked.component.is_some());
            FileStatus {
                path: path.clone(),
                name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                state: FileState::Rejected { reason, previous_serves },
                since: folder.since,
            }
        });
        visible
            .map(|(path, file)| {
                let issue = self.issues.get(path).filter(|_| file.state == FileState::Loaded);
                let state = issue.map_or(&file.state, |issue| &issue.state).clone();
                FileStatus { path: path.clone(), name: file.name.clone(), state, since: file.since }
            })
            .chain(folders)
            .collect()
    }
}

/// Logs name conflicts that are new since `previous`.
fn log_conflicts(previous: &Catalog, next: &Catalog) {
    for file in &next.files {
        if let FileState::Conflict { reason } = &file.state
            && previous.file(&file.path).is_none_or(|before| before.state != file.state)
        {
            tracing::warn!("{}: conflict: {reason}", file.path.display());
        }
    }
    for (component, sentences) in &next.shadowed {
        for sentence in sentences.iter().filter(|it| !previous.shadowed_items(component).contains(it)) {
            tracing::warn!(component, "conflict: {sentence}");
        }
    }
}
