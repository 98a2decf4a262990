//! Deletes sessions by the rules of the operator.

use std::time::Duration;

use hatchery::RetentionConfig;
use hatchery_core::{ExpiryRule, StoreError, Timestamp};
use hatchery_mcp::TOOL_CALL_APP;
use tokio::time::{Instant, sleep};

use crate::state::AppState;

/// The time between two searches for sessions to delete, at least.
const MIN_INTERVAL: Duration = Duration::from_secs(60);

/// The time until the next search, in durations of the last one. Some services ask for the sessions of each user.
const INTERVAL_PER_SEARCH: u32 = 100;

/// Days after which a session of one call of an MCP client is deleted: its host has died during the call.
const ABANDONED_CALL_DAYS: u32 = 1;

/// Deletes expired sessions as long as there are rules, and starts over when the rules change. Never returns.
pub(crate) async fn follow_rules(state: &AppState) {
    let mut changes = state.retention();
    loop {
        let rules = *changes.borrow_and_update();
        tokio::select! {
            () = delete_expired(state, rules) => {}
            // The state has the sender.
            _ = changes.changed() => {}
        }
    }
}

async fn delete_expired(state: &AppState, rules: RetentionConfig) {
    if rule(&rules) == ExpiryRule::default() {
        return std::future::pending().await;
    }
    loop {
        let started = Instant::now();
        let mut apps: Vec<_> = state.source().app_names().into_iter().map(|app| (app, rules)).collect();
        if !apps.iter().any(|(app, _)| app == TOOL_CALL_APP) {
            let max_idle_days = Some(ABANDONED_CALL_DAYS);
            apps.push((TOOL_CALL_APP.into(), RetentionConfig { max_idle_days, ..RetentionConfig::default() }));
        }
        for (app, rules) in apps {
            match state.runner().delete_expired(&app, &rule(&rules)).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(app, count, "deleted sessions by the rules of `retention`"),
                Err(error @ StoreError::InvalidRequest(_)) if !state.services().sessions.has_retention() => {
                    tracing::error!(code = error.code(), "`retention` has no effect: {error}");
                    return std::future::pending().await;
                }
                Err(error) => tracing::warn!(app, code = error.code(), "sessions were not deleted: {error}"),
            }
        }
        sleep(started.elapsed().saturating_mul(INTERVAL_PER_SEARCH).max(MIN_INTERVAL)).await;
    }
}

fn rule(config: &RetentionConfig) -> ExpiryRule {
    let age = |days: u32| Duration::from_secs(u64::from(days) * 24 * 60 * 60);
    let now = Timestamp::now().as_micros();
    let since = |days| now.saturating_sub(i64::try_from(age(days).as_micros()).unwrap_or(i64::MAX));
    ExpiryRule {
        idle_since: config.max_idle_days.map(|days| Timestamp::from_micros(since(days))),
        user_sessions: config.user_sessions,
    }
}
