//! Pages of lists: a `limit`, and a link to the next page in the header `Link` (RFC 8288).

use axum::http::{HeaderValue, header};
use axum::response::Response;
use hatchery_core::{SessionCursor, Timestamp, encode_segment};

use crate::error::ApiError;

const MAX_PAGE_SIZE: usize = 1000;

/// Returns the size of a page.
///
/// # Errors
/// 400 if it is out of range.
pub(super) fn limit(limit: Option<usize>) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(MAX_PAGE_SIZE);
    if (1..=MAX_PAGE_SIZE).contains(&limit) {
        return Ok(limit);
    }
    Err(ApiError::bad_input(format!("`limit` is a number from 1 to {MAX_PAGE_SIZE}")))
}

/// Adds the link to the next page. It is relative, because a proxy may have removed a prefix of the path.
pub(super) fn link(mut response: Response, limit: Option<usize>, next: &str) -> Result<Response, ApiError> {
    let limit = limit.map(|limit| format!("limit={limit}&")).unwrap_or_default();
    let link = HeaderValue::try_from(format!("<?{limit}{next}>; rel=\"next\"")).map_err(|_| ApiError::internal())?;
    response.headers_mut().insert(header::LINK, link);
    Ok(response)
}

/// Encodes a position in a list of sessions as a query value.
pub(super) fn token(cursor: &SessionCursor) -> String {
    encode_segment(&format!("{}.{}", cursor.updated.as_micros(), cursor.id))
}

/// Parses the decoded text of [`token`].
///
/// # Errors
/// 400 if it is not a valid token.
pub(super) fn parse_token(text: &str) -> Result<SessionCursor, ApiError> {
    let parse = |(updated, id): (&str, &str)| {
        Some(SessionCursor { updated: Timestamp::from_micros(updated.parse().ok()?), id: id.into() })
    };
    text.split_once('.')
        .and_then(parse)
        .ok_or_else(|| ApiError::bad_input("`pageToken` is not from the link of a page; begin with the first page"))
}
