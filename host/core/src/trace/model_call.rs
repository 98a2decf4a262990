//! The progress of a model call.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::data::{PROVIDER_NAME, SpanOperation};
use super::{Span, SpanContext, SpanPosition};
use crate::error::{ModelError, RunError};
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
    /// The span of the call, which keeps the request and so this value.
    position: Weak<SpanPosition>,
    header: Option<String>,
    provider: Mutex<Option<&'static str>>,
    retries: AtomicU64,
    first_chunk: OnceLock<Duration>,
}

impl ModelCallProgress {
    /// Starts to record the call of the current span.
    pub(super) fn begin(context: &SpanContext) -> Self {
        let begin = |position: &Arc<SpanPosition>| Progress {
            started: Instant::now(),
            position: Arc::downgrade(position),
            header: context.header(),
            provider: Mutex::default(),
            retries: AtomicU64::default(),
            first_chunk: OnceLock::new(),
        };
        Self { recorded: context.0.as_ref().map(|position| Arc::new(begin(position))), retries: None }
    }

    /// Returns the header `traceparent` for requests to the provider. `None` if no exporter samples the trace.
    pub fn trace_parent(&self) -> Option<&str> {
        self.recorded.as_ref()?.header.as_deref()
    }

    /// Records the provider that serves the call, as `gen_ai.provider.name` names it. Of several, such as the
    /// providers of a fallback, the last one counts.
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

    /// Begins an attempt of the call: a request to the provider. The first one has the number 1.
    pub fn start_attempt(&self, model: &str, number: u32) -> ModelAttempt {
        let position = self.recorded.as_ref().and_then(|progress| progress.position.upgrade());
        let mut span = SpanContext(position).start(SpanOperation::ModelAttempt, number);
        span.record(|data| {
            data.set_some(PROVIDER_NAME, self.provider());
            data.set("gen_ai.request.model", model.to_owned());
            data.set("hatchery.model.attempt", u64::from(number));
        });
        ModelAttempt(span)
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

/// An attempt of a model call in progress, from the request to the head of the response. Its span is exported when it
/// is dropped.
#[must_use]
pub struct ModelAttempt(Span);

impl ModelAttempt {
    /// Ends a successful attempt. `status` is the HTTP status, if it is known.
    pub fn succeed(&mut self, status: Option<u16>) {
        self.0.end();
        self.set_status(status);
    }

    /// Ends a failed attempt. `category` is the category of the error.
    pub fn fail(&mut self, error: &ModelError, category: &'static str) {
        self.0.end();
        self.set_status(error.status);
        self.0.record(|data| data.set("hatchery.model.error_category", category));
        if self.0.is_recorded() {
            self.0.set_error(&RunError::Model(error.clone()));
        }
    }

    /// Sets the delay before the next attempt.
    pub fn set_retry_delay(&mut self, delay: Duration) {
        self.0.record(|data| data.set("hatchery.model.retry_delay", delay.as_secs_f64()));
    }

    fn set_status(&mut self, status: Option<u16>) {
        self.0.record(|data| data.set_some("http.response.status_code", status.map(u64::from)));
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
