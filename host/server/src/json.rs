//! Responses with events. The JSON of an event is cached in the event, so it is copied and not serialized again.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hatchery_core::{Event, Session, State, Timestamp};
use serde::Serialize;

use crate::error::ApiError;

/// The number of headers of most responses.
const USUAL_HEADERS: usize = 8;

/// Returns events as a JSON array.
pub(crate) fn events(events: &[Arc<Event>]) -> Response {
    let mut body = Vec::with_capacity(2 + events.iter().map(|event| event.json().len() + 1).sum::<usize>());
    write_events(&mut body, events.iter());
    response(body.into())
}

/// Returns a session with its events.
pub(crate) fn session(session: &Session) -> Result<Response, ApiError> {
    let mut body = Vec::with_capacity(256 + session.events.iter().map(|event| event.json().len() + 1).sum::<usize>());
    write_session(&mut body, session, true)?;
    Ok(response(body.into()))
}

/// Returns sessions without their events.
pub(crate) fn sessions<'a>(sessions: impl Iterator<Item = &'a Session>) -> Result<Response, ApiError> {
    let mut body = vec![b'['];
    for (index, session) in sessions.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write_session(&mut body, session, false)?;
    }
    body.push(b']');
    Ok(response(body.into()))
}

/// A session without its events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionHead<'a> {
    id: &'a str,
    app_name: &'a str,
    user_id: &'a str,
    state: &'a State,
    last_update_time: &'a Timestamp,
}

fn write_session(body: &mut Vec<u8>, session: &Session, with_events: bool) -> Result<(), ApiError> {
    let Session { key, state, last_update_time, .. } = session;
    let head = SessionHead { id: &key.id, app_name: &key.app, user_id: &key.user, state, last_update_time };
    serde_json::to_writer(&mut *body, &head).map_err(|error| {
        tracing::error!(session = %key, %error, "cannot serialize a session");
        ApiError::internal()
    })?;
    body.pop();
    body.extend_from_slice(b",\"events\":");
    if with_events {
        write_events(body, session.events.iter());
    } else {
        body.extend_from_slice(b"[]");
    }
    body.push(b'}');
    Ok(())
}

fn write_events<'a>(body: &mut Vec<u8>, events: impl Iterator<Item = &'a Arc<Event>>) {
    body.push(b'[');
    for (index, event) in events.enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(event.json());
    }
    body.push(b']');
}

fn response(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    let headers = response.headers_mut();
    // With those that every response has, more than fit in without a second allocation.
    headers.reserve(USUAL_HEADERS);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
