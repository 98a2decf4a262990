//! The progress of a model call.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use super::SpanContext;
use crate::run_usage::RunUsage;
use crate::sync::MutexExt;

/// Observations of a model call in progress, for its [`Span`](super::Span): a part of the request that is not sent to
/// the model. Clones share it, all values are equal, and the default records nothing.
#[derive(Clone, Default)]
pub struct ModelCallProgress {
    /// `None` without a trace.
    recorded: Option<Arc<Progress>>,
    /// `None` without a limit.
    retries: Option<RetryBudget>,
}

/// The retries of a run.
#[derive(Clone)]
struct RetryBudget {
    usage: Arc<RunUsage>,
    max: u32,
}

struct Progress {
    started: Instant,
    header: Option<String>,
    provider: Mutex<Option<&'static str>>,
    retries: AtomicU64,
    first_chunk: OnceLock<Duration>,
}

impl ModelCallProgress {
    /// Begins to record the call of the current span.
    pub(super) fn begin(context: &SpanContext) -> Self {
        let begin = || Progress {
            started: Instant::now(),
            header: context.header(),
            provider: Mutex::default(),
            retries: AtomicU64::default(),
            first_chunk: OnceLock::new(),
        };
        Self { recorded: context.is_recorded().then(|| Arc::new(begin())), retries: None }
    }

    /// Returns the header `traceparent` for requests to the provider. `None` if no exporter samples the trace.
    pub fn trace_parent(&self) -> Option<&str> {
        self.recorded.as_ref()?.header.as_deref()
    }

    /// Records the provider that serves the call, as `gen_ai.provider.name` names it. Of several, such as those of a
    /// fallback, the last one counts.
    pub fn set_provider(&self, name: &'static str) {
        if let Some(progress) = &self.recorded {
            *progress.provider.lock_unpoisoned() = Some(name);
        }
    }

    /// Limits the retries of all calls of a run to `max`, if that is not 0.
    pub fn limit_retries(&mut self, usage: &Arc<RunUsage>, max: u32) {
        self.retries = (max > 0).then(|| RetryBudget { usage: usage.clone(), max });
    }

    /// Returns the number of retries that a run may have, if it has had that many. No request is sent again then.
    pub fn exhausted_retries(&self) -> Option<u32> {
        let RetryBudget { usage, max } = self.retries.as_ref()?;
        (usage.model_retries.load(Ordering::Relaxed) >= *max).then_some(*max)
    }

    /// Counts a request that is sent again.
    pub fn count_retry(&self) {
        if let Some(budget) = &self.retries {
            budget.usage.model_retries.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(progress) = &self.recorded {
            progress.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that a chunk of a streamed response has arrived. Later chunks change nothing.
    pub fn set_responded(&self) {
        if let Some(progress) = &self.recorded {
            progress.first_chunk.get_or_init(|| progress.started.elapsed());
        }
    }

    pub(super) fn provider(&self) -> Option<&'static str> {
        *self.recorded.as_ref()?.provider.lock_unpoisoned()
    }

    pub(super) fn retries(&self) -> u64 {
        self.recorded.as_ref().map_or(0, |progress| progress.retries.load(Ordering::Relaxed))
    }

    pub(super) fn first_chunk(&self) -> Option<Duration> {
        self.recorded.as_ref()?.first_chunk.get().copied()
    }
}

impl PartialEq for ModelCallProgress {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for ModelCallProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelCallProgress").field("retries", &self.retries()).finish_non_exhaustive()
    }
}
