//! What happens in the host, as a stream of server-sent events that can be continued.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use hatchery_telemetry::{Happening, Happenings};
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
    /// The id of the happening after which the stream begins.
    after: Option<u64>,
}

/// Returns the happenings that are kept, and those that follow, until the server stops. Their ids are those of the events.
#[utoipa::path(
    get,
    path = "/happenings",
    tag = "happenings",
    params(FollowQuery),
    responses((status = 200, description = "The happenings", body = String, content_type = "text/event-stream"))
)]
async fn follow(
    State(state): State<AppState>,
    QueryParams(query): QueryParams<FollowQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let after = last_event_id(&headers)?.or(query.after).unwrap_or_default();
    let reader = Reader {
        happenings: state.happenings().clone(),
        newest: state.happenings().subscribe(),
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
    happenings: Happenings,
    newest: watch::Receiver<u64>,
    stop: CancellationToken,
    keep_alive: Duration,
    /// The id of the last happening that was sent.
    after: u64,
    is_new: bool,
}

impl Reader {
    /// Returns the next part of the stream; `None` when the server stops.
    async fn next(&mut self) -> Option<Bytes> {
        let is_first = std::mem::take(&mut self.is_new);
        loop {
            self.newest.mark_unchanged();
            let update = self.happenings.after(self.after);
            if let Some(last) = update.happenings.last() {
                self.after = last.id;
                let gap = if update.has_gap { "event: gap\ndata: {}\n\n" } else { "" };
                let events = update.happenings.iter().map(|happening| event(happening));
                return Some([gap.to_owned()].into_iter().chain(events).collect::<String>().into());
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

fn event(happening: &Happening) -> String {
    // Texts and numbers can always be written.
    let json = serde_json::to_string(happening).unwrap_or_default();
    format!("id: {}\ndata: {json}\n\n", happening.id)
}
