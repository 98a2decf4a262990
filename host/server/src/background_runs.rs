//! Continues background runs whose host has ended.

use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::state::AppState;

/// Interval between searches for runs of dead hosts.
const INTERVAL: Duration = Duration::from_secs(2);

/// Maximum number of concurrently continued runs.
const MAX_RUNS: usize = 64;

/// Continues the background runs of dead hosts. Never returns.
pub(crate) async fn continue_interrupted(state: &AppState) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // The runs of an app that is missing wait: it may still be loading, or come back.
        let apps = state.source().app_names();
        let runs = match state.runner().interrupted_runs(&apps, MAX_RUNS).await {
            Ok(runs) => runs,
            Err(error) => {
                tracing::warn!(code = error.code(), "interrupted runs were not read: {error}");
                continue;
            }
        };
        for run in runs {
            let Ok(app) = state.app(&run.session.app) else { continue };
            let Ok(_permit) = state.acquire_run_permit() else { break };
            tracing::info!(run = run.id, session = %run.session, attempts = run.attempts, "continuing a background run");
            if let Err(error) = state.runner().continue_run(app, &run, CancellationToken::new()).await {
                tracing::warn!(run = run.id, code = error.code(), "a background run was not continued: {error}");
            }
        }
    }
}
