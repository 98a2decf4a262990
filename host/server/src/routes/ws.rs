//! Many runs over one connection: `WebSocket /ws`. Frames are the JSON of [requests](message::SocketRequest) and
//! [messages](message::SocketMessage); `GET /ws/schema` returns their schema.

mod connection;
mod message;
mod streams;

use axum::Extension;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use utoipa_axum::routes;

use super::run::trace_parent;
use crate::api_document::ApiRouter;
use crate::auth::Credentials;
use crate::state::AppState;
use crate::websocket::{self, Socket, SocketResources};
use connection::Connection;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(open)).routes(routes!(schema))
}

/// Opens a WebSocket for any number of runs. `GET /ws/schema` returns the schema of its messages.
#[utoipa::path(
    get,
    path = "/ws",
    tag = "ws",
    responses((status = 101, description = "The connection is open"))
)]
async fn open(
    State(state): State<AppState>,
    headers: HeaderMap,
    credentials: Option<Extension<Credentials>>,
    resources: SocketResources,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let max_frame = state.config().body_limit.bytes();
    let upgrade = match websocket::accept(upgrade, max_frame) {
        Ok(upgrade) => upgrade,
        Err(response) => return *response,
    };
    let trace_parent = trace_parent(&headers);
    let credentials = credentials.map(|Extension(credentials)| credentials);
    upgrade.on_upgrade(move |socket| async move {
        let open = state.live().open();
        let socket = Socket::new(socket, max_frame, &resources);
        Connection::new(state, socket, credentials, trace_parent).serve(&open.stop).await;
        drop(resources);
    })
}

/// Returns the JSON Schema of the messages of `/ws`: clients send `SocketRequest`, the host sends `SocketMessage`.
#[utoipa::path(
    get,
    path = "/ws/schema",
    tag = "ws",
    responses((status = 200, description = "The schema", body = Object))
)]
async fn schema() -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], message::SCHEMA.clone()).into_response()
}
