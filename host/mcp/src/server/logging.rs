//! Log messages for clients that ask for them: the events of their runs, and the progress of their tools.

#![expect(deprecated, reason = "clients of revisions before 2026-07-28 ask for log messages")]

use hatchery_core::Event;
use rmcp::RoleServer;
use rmcp::model::{LoggingLevel, LoggingMessageNotificationParam};
use rmcp::service::RequestContext;
use serde_json::{Value, json};

/// The name of the logger.
const LOGGER: &str = "hatchery";

/// Sends a message about an event.
pub(super) async fn log_event(context: &RequestContext<RoleServer>, event: &Event) {
    let level = match &event.error_code {
        Some(_) => LoggingLevel::Error,
        None => LoggingLevel::Info,
    };
    let calls: Vec<_> = event.function_calls().map(|call| call.name.as_str()).collect();
    log(context, level, json!({"author": event.author, "calls": calls, "error": event.error_message.as_ref()})).await;
}

/// Sends a message of a tool about its progress.
pub(super) async fn log_progress(context: &RequestContext<RoleServer>, tool: &str, message: &str) {
    log(context, LoggingLevel::Info, json!({"tool": tool, "message": message})).await;
}

/// Sends a message, if the request asks for messages of its level.
async fn log(context: &RequestContext<RoleServer>, level: LoggingLevel, data: Value) {
    // The levels are declared in their order.
    if context.meta.log_level().is_none_or(|lowest| (level as u8) < lowest as u8) {
        return;
    }
    let params = LoggingMessageNotificationParam::new(level, data).with_logger(LOGGER);
    // Fails if the client is gone, which also ends the run.
    let _ = context.peer.notify_logging_message(params).await;
}
