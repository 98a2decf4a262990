//! Progress of tool calls: reports of guests as partial events of their runs, at a limited rate.

use std::time::Duration;

use futures::future::join;
use hatchery_core::{CallContext, ToolProgress};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::runtime::store::CallOrigin;

/// Minimum time between two events with the progress of one call. The last event does not wait for it.
const INTERVAL: Duration = Duration::from_millis(100);

/// Takes the reports of a tool call. Only the newest is kept until it is sent.
pub(crate) struct ProgressReporter(watch::Sender<ToolProgress>);

impl ProgressReporter {
    /// Replaces the newest report.
    pub(crate) fn report(&self, progress: ToolProgress) {
        self.0.send_replace(progress);
    }
}

/// Runs a call of the tool named `tool` to its end, and sends its progress to the clients of the run. `call` gets the
/// origin of the call, and must have dropped it when it ends.
pub(crate) async fn with_progress<F: Future>(
    cx: &CallContext,
    tool: &str,
    call: impl FnOnce(CallOrigin) -> F,
) -> F::Output {
    let (newest, reports) = watch::channel(ToolProgress::default());
    let call = call(CallOrigin::Tool(cx.clone(), ProgressReporter(newest)));
    // Beside the call, not inside of it: an event can call plugins in other Wasmtime stores.
    join(call, send_reports(reports, cx, tool)).await.0
}

/// Sends the newest report of each interval, until the call has ended and its last report is sent.
async fn send_reports(mut reports: watch::Receiver<ToolProgress>, cx: &CallContext, tool: &str) {
    while reports.changed().await.is_ok() {
        let progress = reports.borrow_and_update().clone();
        if let Err(error) = cx.report_progress(tool, &progress).await {
            tracing::debug!("progress of `{tool}` was not reported: {error}");
            return;
        }
        let _ = timeout(INTERVAL, end_of_call(reports.clone())).await;
    }
}

/// Waits until the reporter is dropped.
async fn end_of_call(mut reports: watch::Receiver<ToolProgress>) {
    while reports.changed().await.is_ok() {}
}
