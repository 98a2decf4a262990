//! The state of one file of the served folder.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hatchery_core::Timestamp;

use super::DEBOUNCE;
use crate::catalog::FileState;
use crate::catalog::scan::{FileKind, FileVersion};
use crate::contract::component::Component;

/// A file of the served folder that the loader tracks.
pub(super) struct TrackedFile {
    pub(super) kind: FileKind,
    /// Name of the component, or of the app's folder.
    pub(super) name: String,
    pub(super) version: FileVersion,
    /// When the file was first found with this version, or first found missing.
    pub(super) seen: Instant,
    pub(super) is_missing: bool,
    /// True once this version was loaded or rejected.
    pub(super) is_loaded: bool,
    pub(super) state: FileState,
    /// When the file entered `state`.
    pub(super) since: Timestamp,
    /// The granted folder that did not exist when the component was loaded.
    pub(super) needs_folder: Option<PathBuf>,
    /// The component of the last good version.
    pub(super) component: Option<Arc<Component>>,
    /// False if `component` described itself with settings that are no longer in force.
    pub(super) is_described: bool,
    /// True if the policy of the host has changed since `component` was loaded.
    pub(super) needs_admission: bool,
}

impl TrackedFile {
    pub(super) fn new(kind: FileKind, name: String, version: FileVersion) -> Self {
        Self {
            kind,
            name,
            version,
            seen: Instant::now(),
            is_missing: false,
            is_loaded: false,
            state: FileState::Pending,
            since: Timestamp::now(),
            needs_folder: None,
            component: None,
            is_described: false,
            needs_admission: false,
        }
    }

    /// Returns true if the file has not changed since it was last loaded.
    pub(super) fn is_up_to_date(&self) -> bool {
        self.is_loaded && !self.is_missing
    }

    /// Returns true if the file must be loaded and has not changed for `debounce`.
    pub(super) fn is_ready(&self, debounce: Duration) -> bool {
        !self.is_loaded && !self.is_missing && self.seen.elapsed() >= debounce
    }

    pub(super) fn set_state(&mut self, state: FileState) {
        if self.state != state {
            self.state = state;
            self.since = Timestamp::now();
        }
    }

    /// Restores the state before a load that was aborted.
    pub(super) fn reset_state(&mut self) {
        self.set_state(if self.component.is_some() { FileState::Loaded } else { FileState::Pending });
    }

    /// Restarts the time for which the file must be unchanged before it is loaded.
    pub(super) fn restart_debounce(&mut self) {
        self.seen = Instant::now();
        self.is_loaded = false;
    }

    /// Loads the file with the next scan, without the debounce delay.
    pub(super) fn reload_soon(&mut self) {
        self.is_loaded = false;
        self.seen = self.seen.checked_sub(DEBOUNCE).unwrap_or(self.seen);
    }
}
