//! Log messages for clients that ask for them: the events of their runs.

#![expect(deprecated, reason = "clients of revisions before 2026-07-28 ask for log messages")]

use hatchery_core::Event;
use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::RequestContext;
use serde_json::json;

/// The name of the logger.
const LOGGER: &str = "hatchery";

/// Sends a message about an event, if the request asks for messages of its level.
pub(super) async fn log_event(context: &RequestContext<RoleServer>, event: &Event) {
    let Some(lowest) = context.meta.log_level() else { return };
    let level = match &event.error_code {
        Some(_) => LoggingLevel::Error,
        None => LoggingLevel::Info,
    };
    // The levels are declared in their order.
    if (level as u8) < lowest as u8 {
        return;
    }
    let calls: Vec<_> = event.function_calls().map(|call| call.name.as_str()).collect();
    let data = json!({"author": event.author, "calls": calls, "error": event.error_message.as_ref()});
    let params = LoggingMessageNotificationParam::new(level, data).with_logger(LOGGER);
    // Fails if the client is gone, which also ends the run.
    let _ = context.peer.notify_logging_message(params).await;
}
