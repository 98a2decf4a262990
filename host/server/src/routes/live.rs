//! Live runs: `WebSocket /run_live`. Frames are the JSON of live requests and of events.
//!
//! The error of an invalid request is sent in a close frame, because a browser hides the response of a failed
//! handshake.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{WebSocketUpgrade, close_code};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::routing::get;
use hatchery_core::{CallerOrigin, LiveConnectConfig, LiveRequestQueue, RunConfig, TraceParent};
use hatchery_engine::{App, LiveRunRequest};
use serde_json::json;

use super::run::trace_parent;
use crate::api_document::ApiRouter;
use crate::auth::{Credentials, Principal};
use crate::extract::QueryParams;
use crate::live::{LiveEnd, LiveLimits, LiveSender, LiveSession};
use crate::state::AppState;
use crate::websocket::{self, Socket, SocketResources};

/// Maximum number of unread requests of a run. The server stops reading from the client until the run catches up.
const MAX_UNREAD_REQUESTS: usize = 16;

/// The kinds of output.
const MODALITIES: [&str; 3] = ["TEXT", "AUDIO", "VIDEO"];

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().route("/run_live", get(run_live))
}

async fn run_live(
    State(state): State<AppState>,
    principal: Principal,
    credentials: Option<Extension<Credentials>>,
    QueryParams(query): QueryParams<Vec<(String, String)>>,
    headers: HeaderMap,
    resources: SocketResources,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let max_frame = state.config().small_body_limit.bytes();
    let upgrade = match websocket::accept(upgrade, max_frame) {
        Ok(upgrade) => upgrade,
        Err(response) => return *response,
    };
    let trace_parent = trace_parent(&headers);
    let credentials = credentials.map(|Extension(credentials)| credentials);
    upgrade.on_upgrade(move |socket| async move {
        let socket = Socket::new(socket, max_frame, &resources);
        converse(state, &principal, credentials, socket, &query, trace_parent).await;
        drop(resources);
    })
}

/// Serves a connection until its end.
async fn converse(
    state: AppState,
    principal: &Principal,
    credentials: Option<Credentials>,
    socket: Socket,
    query: &[(String, String)],
    trace_parent: Option<TraceParent>,
) {
    let connection = state.live().open();
    let queue = LiveRequestQueue::new(MAX_UNREAD_REQUESTS);
    let config = state.config();
    let limits =
        LiveLimits { memory: state.body_budget().clone(), idle: config.live_idle_timeout, ping: config.keep_alive };
    let session = LiveSession::new(socket, queue.clone(), limits);
    let (app, request) = match request(&state, principal, query) {
        Ok((app, request)) => {
            let max_message_bytes = state.config().body_limit.bytes();
            (app, LiveRunRequest { trace_parent, max_message_bytes, ..request })
        }
        Err(end) => return session.close(&end).await,
    };
    let permit = match state.acquire_run_permit() {
        Ok(permit) => permit,
        Err(error) => return session.close(&LiveEnd::refused(error)).await,
    };
    let sender = LiveSender { state: state.clone(), credentials, app: app.name.clone(), user: request.user.clone() };
    let started = state.runner().run_live(app, request, queue).await;
    // The run counts from here on, as long as the connection is open.
    drop(permit);
    match started {
        Ok(run) => session.serve(run, &sender, connection.stop.clone()).await,
        Err(error) => session.close(&LiveEnd::Failed(error)).await,
    }
}

/// Parses the parameters, in camelCase or snake_case. Unknown ones are ignored, as by ADK's servers.
fn request(
    state: &AppState,
    principal: &Principal,
    query: &[(String, String)],
) -> Result<(Arc<App>, LiveRunRequest), LiveEnd> {
    let app = require(query, "app_name", "appName")?;
    let user = require(query, "user_id", "userId")?;
    let session = require(query, "session_id", "sessionId")?;
    let save_live_audio_as_artifacts = is_set(query, "save_live_blob", "saveLiveBlob");
    let config = RunConfig { live: Some(live_config(query)?), save_live_audio_as_artifacts, ..RunConfig::default() };
    let app = principal.check_app(app).and_then(|()| state.app(app)).map_err(|error| LiveEnd::no_app(&error))?;
    principal.check_user(user).map_err(|error| LiveEnd::Refused(close_code::POLICY, error.detail))?;
    Ok((app, LiveRunRequest { config, origin: CallerOrigin::Http, ..LiveRunRequest::new(user, session) }))
}

fn live_config(query: &[(String, String)]) -> Result<LiveConnectConfig, LiveEnd> {
    let lists = values(query, "modalities", "modalities");
    let modalities: Vec<_> = lists.flat_map(|list| list.split(',')).map(|one| one.trim().to_uppercase()).collect();
    if let Some(wrong) = modalities.iter().find(|one| !MODALITIES.contains(&one.as_str())) {
        let reason = format!("`{wrong}` is not a modality; use {}", MODALITIES.join(", "));
        return Err(LiveEnd::Refused(close_code::POLICY, reason));
    }
    let proactive = is_set(query, "proactive_audio", "proactiveAudio");
    let affective = is_set(query, "enable_affective_dialog", "enableAffectiveDialog");
    Ok(LiveConnectConfig {
        response_modalities: modalities,
        proactivity: proactive.then(|| json!({"proactiveAudio": true})),
        enable_affective_dialog: affective.then_some(true),
        ..LiveConnectConfig::default()
    })
}

fn is_set(query: &[(String, String)], snake: &'static str, camel: &'static str) -> bool {
    values(query, snake, camel).any(|value| value.eq_ignore_ascii_case("true"))
}

fn values<'a>(
    query: &'a [(String, String)],
    snake: &'static str,
    camel: &'static str,
) -> impl Iterator<Item = &'a str> {
    query.iter().filter(move |(name, _)| name == snake || name == camel).map(|(_, value)| value.as_str())
}

fn require<'a>(query: &'a [(String, String)], snake: &'static str, camel: &'static str) -> Result<&'a str, LiveEnd> {
    values(query, snake, camel).find(|value| !value.trim().is_empty()).ok_or_else(|| {
        let reason = format!("{snake} query parameter is required and cannot be empty");
        LiveEnd::Refused(close_code::POLICY, reason)
    })
}
