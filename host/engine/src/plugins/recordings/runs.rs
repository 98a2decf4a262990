//! What a plugin keeps of each run under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::CallContext;
use hatchery_core::sync::MutexExt;

/// A value for each run, by the id of its invocation.
pub(super) struct Runs<T>(Mutex<HashMap<String, Arc<T>>>);

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Runs<T> {
    pub(super) fn begin(&self, cx: &CallContext, run: T) {
        self.runs().insert(cx.invocation.id.clone(), Arc::new(run));
    }

    pub(super) fn get(&self, cx: &CallContext) -> Option<Arc<T>> {
        self.runs().get(&cx.invocation.id).cloned()
    }

    pub(super) fn end(&self, cx: &CallContext) -> Option<Arc<T>> {
        self.runs().remove(&cx.invocation.id)
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<String, Arc<T>>> {
        self.0.lock_unpoisoned()
    }
}
