//! Files that ADK's web client has changed and not saved yet, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use hatchery::Texts;
use hatchery_core::sync::MutexExt;

use crate::error::ApiError;

/// Maximum number of bytes of all drafts.
const MAX_BYTES: usize = 8 << 20;

/// The drafts of apps. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Drafts(Arc<Mutex<BTreeMap<String, Texts>>>);

impl Drafts {
    /// Adds files to the draft of an app.
    ///
    /// # Errors
    /// If the drafts would take more than 8 MiB.
    pub(crate) fn add(&self, app: &str, texts: Texts) -> Result<(), ApiError> {
        let mut drafts = self.0.lock_unpoisoned();
        let bytes: usize = drafts.values().flatten().chain(&texts).map(|(path, text)| path.len() + text.len()).sum();
        if bytes > MAX_BYTES {
            return Err(ApiError::busy("the drafts of apps use all of their memory; save or cancel one"));
        }
        drafts.entry(app.to_owned()).or_default().extend(texts);
        Ok(())
    }

    /// Returns a file of a draft.
    pub(crate) fn read(&self, app: &str, path: &str) -> Option<String> {
        self.0.lock_unpoisoned().get(app)?.get(path).cloned()
    }

    /// Returns the draft of an app; empty if there is none.
    pub(crate) fn files(&self, app: &str) -> Texts {
        self.0.lock_unpoisoned().get(app).cloned().unwrap_or_default()
    }

    pub(crate) fn remove(&self, app: &str) {
        self.0.lock_unpoisoned().remove(app);
    }
}
