//! Map of the active runs of a plugin.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::CallContext;
use hatchery_core::sync::MutexExt;

/// One value per active run, keyed by invocation id.
pub(crate) struct RunMap<T>(Mutex<HashMap<String, Arc<T>>>);

impl<T> Default for RunMap<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> RunMap<T> {
    pub(crate) fn insert(&self, cx: &CallContext, run: T) {
        self.lock().insert(cx.invocation.id.clone(), Arc::new(run));
    }

    pub(crate) fn get(&self, cx: &CallContext) -> Option<Arc<T>> {
        self.lock().get(&cx.invocation.id).cloned()
    }

    pub(crate) fn remove(&self, cx: &CallContext) -> Option<Arc<T>> {
        self.lock().remove(&cx.invocation.id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<T>>> {
        self.0.lock_unpoisoned()
    }
}
