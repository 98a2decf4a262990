//! Progress of calls: the progress of a tool, or the events of a run.

use hatchery_core::{Event, TOOL_PROGRESS_KEY};
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;

use super::logging::log_progress;

/// Reports an event as progress.
pub(super) async fn report_event(context: &RequestContext<RoleServer>, count: usize, event: &Event) {
    let Some(token) = context.meta.get_progress_token() else { return };
    let calls: Vec<_> = event.function_calls().map(|call| call.name.as_str()).collect();
    let message =
        if calls.is_empty() { event.author.clone() } else { format!("{} calls {}", event.author, calls.join(", ")) };
    let params = ProgressNotificationParam::new(token, count as f64).with_message(message);
    // Fails if the client is gone, which also ends the run.
    let _ = context.peer.notify_progress(params).await;
}

/// Reports the progress of a tool, and its message as a log message. Returns false if the event has none.
pub(super) async fn report_tool(context: &RequestContext<RoleServer>, event: &Event) -> bool {
    let metadata = event.custom_metadata.as_deref().and_then(|metadata| metadata.get(TOOL_PROGRESS_KEY));
    let number = |key: &str| metadata?.get(key)?.as_f64();
    let text = |key: &str| metadata?.get(key)?.as_str();
    let Some(progress) = number("progress") else { return false };
    if let Some(message) = text("message") {
        log_progress(context, text("name").unwrap_or_default(), message).await;
    }
    if let Some(token) = context.meta.get_progress_token() {
        let mut params = ProgressNotificationParam::new(token, progress);
        params.total = number("total");
        params.message = text("message").map(Into::into);
        // Fails if the client is gone, which also ends the run.
        let _ = context.peer.notify_progress(params).await;
    }
    true
}
