//! The events of the host, as a stream of server-sent events that clients can resume.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use hatchery_telemetry::{HostEvent, HostEvents};
use serde::Deserialize;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::routes;

use super::run::event_stream;
use super::runs::last_event_id;
use crate::api_document::ApiRouter;
use crate::error::ApiError;
use crate::extract::QueryParams;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().routes(routes!(follow))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FollowQuery {
    /// The id of the event after which the stream begins.
    after: Option<u64>,
}

/// Streams the recent events of the host, then new ones as they happen, until the server stops.
#[utoipa::path(
    get,
    path = "/events",
    tag = "host",
    params(FollowQuery),
    responses((status = 200, description = "The events of the host", body = String, content_type = "text/event-stream"))
)]
async fn follow(
    State(state): State<AppState>,
    QueryParams(query): QueryParams<FollowQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = last_event_id(&headers)?.or(query.after).unwrap_or_default();
    let reader = Reader {
        events: state.host_events().clone(),
        newest: state.host_events().subscribe(),
        stop: state.stop().clone(),
        keep_alive: state.config().keep_alive,
        after,
        is_new: true,
    };
    let frames = futures::stream::unfold(reader, |mut reader| async move {
        let frame = reader.next().await?;
        Some((Ok::<_, Infallible>(frame), reader))
    });
    Ok(event_stream(Body::from_stream(frames)))
}

struct Reader {
    events: HostEvents,
    newest: watch::Receiver<u64>,
    stop: CancellationToken,
    keep_alive: Duration,
    /// The id of the last sent event.
    after: u64,
    is_new: bool,
}

impl Reader {
    /// Returns the next chunk of the stream; `None` when the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        let is_first = std::mem::take(&mut self.is_new);
        loop {
            self.newest.mark_unchanged();
            let update = self.events.after(self.after);
            if let Some(last) = update.events.last() {
                self.after = last.id;
                let gap = if update.has_gap { "event: gap\ndata: {}\n\n" } else { "" };
                let frames = update.events.iter().map(|event| frame(event));
                return Some([gap.to_owned()].into_iter().chain(frames).collect::<String>().into());
            }
            if is_first {
                // The client sees at once that it is connected.
                return Some(Bytes::from_static(b": connected\n\n"));
            }
            tokio::select! {
                changed = self.newest.changed() => changed.ok()?,
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(self.keep_alive) => return Some(Bytes::from_static(b": keep-alive\n\n")),
            }
        }
    }
}

fn frame(event: &HostEvent) -> String {
    // Texts and numbers can always be written.
    let json = serde_json::to_string(event).unwrap_or_default();
    format!("id: {}\ndata: {json}\n\n", event.id)
}
