//! `GET /stats`: the current activity of the host, for operators.

use std::fs;

use axum::Json;
use axum::extract::State;
use hatchery_engine::RunInProgress;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::routes;

use crate::api_document::ApiRouter;
use crate::state::AppState;

/// Maximum number of listed runs.
const MAX_RUNS: usize = 100;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(stats))
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Stats {
    version: &'static str,
    uptime_seconds: f64,
    memory: MemoryStats,
    runs: RunStats,
    apps: usize,
    components: Vec<ComponentStats>,
    /// The files that could not be loaded, with the reasons.
    failed: Vec<FailedFile>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MemoryStats {
    /// Resident memory of the process in bytes; left out if the system does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
    /// Memory of request bodies in bytes.
    body_bytes: usize,
    max_body_bytes: usize,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RunStats {
    /// The runs that are in progress or queued, with open live runs.
    active: usize,
    max: usize,
    /// At most 100 runs with a known id, longest running first.
    in_progress: Vec<RunEntry>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct RunEntry {
    id: String,
    app_name: String,
    user_id: String,
    session_id: String,
    seconds: f64,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ComponentStats {
    name: String,
    /// Calls in progress.
    calls: usize,
    /// Idle pooled instances.
    waiting_instances: usize,
}

#[derive(Serialize, ToSchema)]
struct FailedFile {
    path: String,
    reason: String,
}

impl From<RunInProgress> for RunEntry {
    fn from(run: RunInProgress) -> Self {
        Self {
            id: run.id,
            app_name: run.session.app.to_string(),
            user_id: run.session.user.to_string(),
            session_id: run.session.id.to_string(),
            seconds: run.elapsed.as_secs_f64(),
        }
    }
}

/// Returns the current memory usage, runs and components of the host.
#[utoipa::path(
    get,
    path = "/stats",
    tag = "host",
    responses((status = 200, description = "The current activity of the host", body = Stats))
)]
async fn stats(State(state): State<AppState>) -> Json<Stats> {
    let report = state.source().report();
    let max_body_bytes = state.config().body_memory.bytes();
    let body_bytes = max_body_bytes.saturating_sub(state.available_body_memory());
    let components = report.components.into_iter().map(|component| ComponentStats {
        name: component.name,
        calls: component.calls,
        waiting_instances: component.waiting_instances,
    });
    let failed = report.files.into_iter().filter_map(|file| Some(FailedFile { path: file.path, reason: file.reason? }));
    Json(Stats {
        version: hatchery_core::VERSION,
        uptime_seconds: state.uptime().as_secs_f64(),
        memory: MemoryStats { resident_bytes: resident_bytes(), body_bytes, max_body_bytes },
        runs: RunStats {
            active: state.runner().active_runs(),
            max: state.config().max_concurrent_runs,
            in_progress: state.runner().runs_in_progress(MAX_RUNS).into_iter().map(RunEntry::from).collect(),
        },
        apps: state.source().app_names().len(),
        components: components.collect(),
        failed: failed.collect(),
    })
}

/// Returns the resident memory of the process in bytes. `None` if the system has no `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
