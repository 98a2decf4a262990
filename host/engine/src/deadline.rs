//! The deadline of a run, which its `max_run_time` sets.

use std::time::Duration;

use hatchery_core::RunConfig;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Time that each hook of a plugin has, after the deadline, to report the failure of the run.
const REPORT_PERIOD: Duration = Duration::from_secs(5);

/// The time at which a run ends at the latest; `None` without a limit.
#[derive(Clone, Copy)]
pub(crate) struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the deadline of a run that begins now.
    pub(crate) fn new(config: &RunConfig) -> Self {
        let limit = Some(config.max_run_time).filter(|limit| !limit.is_zero());
        Self(limit.and_then(|limit| Instant::now().checked_add(limit)))
    }

    /// Awaits `work` until the deadline. Returns `None` if it has not ended then.
    pub(crate) async fn run_until<T>(self, work: impl Future<Output = T>) -> Option<T> {
        match self.0 {
            Some(deadline) => timeout_at(deadline, work).await.ok(),
            None => Some(work.await),
        }
    }

    /// Waits until a hook that begins now has no more time for the report of a failure.
    pub(crate) async fn wait_for_report_end(self) {
        let Some(deadline) = self.0 else { return std::future::pending().await };
        match deadline.max(Instant::now()).checked_add(REPORT_PERIOD) {
            Some(end) => sleep_until(end).await,
            None => std::future::pending().await,
        }
    }
}
