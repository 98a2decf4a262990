//! Progress of calls, as events of their runs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, ToolProgress, excerpt};
use rmcp::RoleClient;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{RequestHandle, ServiceError};
use tokio::sync::Mutex as AsyncMutex;

/// Maximum number of reports of one call. Later progress only extends its time.
const MAX_REPORTS: u32 = 1000;

/// Maximum size in bytes of a message.
const MAX_MESSAGE: usize = 500;

/// The calls of a connection that report progress.
#[derive(Default)]
pub(super) struct ProgressReports {
    /// Held while a request is sent, whose token is known afterwards.
    sending: AsyncMutex<()>,
    calls: Mutex<HashMap<ProgressToken, ReportingCall>>,
}

struct ReportingCall {
    tool: Arc<str>,
    cx: CallContext,
    last: Option<f64>,
    count: u32,
}

impl ProgressReports {
    /// Sends a request for a tool. Its progress is reported in `cx` until the guard is dropped.
    pub(super) async fn send(
        &self,
        request: impl Future<Output = Result<RequestHandle<RoleClient>, ServiceError>>,
        tool: &str,
        cx: &CallContext,
    ) -> Result<(RequestHandle<RoleClient>, ReportingGuard<'_>), ServiceError> {
        let sending = self.sending.lock().await;
        let handle = request.await?;
        let token = handle.progress_token.clone();
        let call = ReportingCall { tool: tool.into(), cx: cx.clone(), last: None, count: 0 };
        self.calls.lock_unpoisoned().insert(token.clone(), call);
        drop(sending);
        Ok((handle, ReportingGuard { reports: self, token }))
    }

    /// Reports progress to the run of its call, unless the call has ended or reports too much.
    pub(super) async fn report(&self, params: ProgressNotificationParam) {
        drop(self.sending.lock().await);
        let Some((tool, cx)) = self.admit(&params) else { return };
        let message = params.message.map(|message| excerpt(&message, MAX_MESSAGE));
        let progress = ToolProgress { progress: params.progress, total: params.total, message };
        if let Err(error) = cx.report_progress(&tool, &progress).await {
            tracing::debug!("progress of `{tool}` was not reported: {error}");
        }
    }

    /// Returns the call with more progress.
    fn admit(&self, params: &ProgressNotificationParam) -> Option<(Arc<str>, CallContext)> {
        let mut calls = self.calls.lock_unpoisoned();
        let call = calls.get_mut(&params.progress_token)?;
        // Notifications are handled concurrently, so an earlier one can be late.
        if call.last.is_some_and(|last| params.progress <= last) || call.count == MAX_REPORTS {
            return None;
        }
        (call.last, call.count) = (Some(params.progress), call.count + 1);
        Some((call.tool.clone(), call.cx.clone()))
    }
}

/// Ends the reports of a call when it is dropped.
pub(super) struct ReportingGuard<'a> {
    reports: &'a ProgressReports,
    token: ProgressToken,
}

impl Drop for ReportingGuard<'_> {
    fn drop(&mut self) {
        self.reports.calls.lock_unpoisoned().remove(&self.token);
    }
}
