//! Login and logout of browsers: an API key is exchanged for an HTTP-only session cookie.

use axum::body::Body;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use percent_encoding::percent_decode_str;

use crate::api_document::ApiRouter;
use crate::auth;
use crate::body;
use crate::error::ApiError;
use crate::peer::Peer;
use crate::routes::route_not_found;
use crate::state::AppState;

pub(super) fn routes() -> ApiRouter {
    ApiRouter::new().route("/login", post(log_in)).route("/logout", post(log_out))
}

const PAGE: HeaderValue = HeaderValue::from_static("./dev-ui/");

/// Handles the form of the login page, and redirects to the developer UI.
async fn log_in(
    State(state): State<AppState>,
    OriginalUri(uri): OriginalUri,
    request: Request,
) -> Result<Response, ApiError> {
    let Some(auth) = state.auth() else {
        return Err(route_not_found(request.method().clone(), uri).await);
    };
    let (parts, body) = request.into_parts();
    let form = body::read(&parts, body, &state.config()).await?;
    let secret = std::str::from_utf8(&form).ok().and_then(|form| form_value(form, "key"));
    let secret = secret.ok_or_else(|| ApiError::bad_input("the form has no field `key`"))?;
    match auth.log_in(secret.trim(), Peer::from_extensions(&parts.extensions)).await {
        Ok((id, lifetime)) => {
            let is_secure = state.tls().is_some() || is_forwarded_from_https(&parts.headers);
            let cookie = auth::cookie(&id, lifetime, is_secure, &state.config()).ok_or_else(ApiError::internal)?;
            Ok((StatusCode::SEE_OTHER, [(header::LOCATION, PAGE), (header::SET_COOKIE, cookie)]).into_response())
        }
        Err(error) if error.status.is_client_error() => {
            Ok(auth::login_page(parts.uri.path(), Some(&format!("Not logged in: {}.", error.detail))))
        }
        Err(error) => Err(error),
    }
}

async fn log_out(
    State(state): State<AppState>,
    method: Method,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let Some(auth) = state.auth() else { return Err(route_not_found(method, uri).await) };
    auth.log_out(&headers);
    let cookie = auth::cleared_cookie(&state.config()).ok_or_else(ApiError::internal)?;
    let headers = [(header::LOCATION, PAGE), (header::SET_COOKIE, cookie)];
    Ok((StatusCode::SEE_OTHER, headers, Body::empty()).into_response())
}

/// Returns true if the browser is connected over HTTPS to a proxy in front of this server.
fn is_forwarded_from_https(headers: &HeaderMap) -> bool {
    headers.get("x-forwarded-proto").is_some_and(|scheme| scheme.as_bytes().eq_ignore_ascii_case(b"https"))
}

/// Returns the value of a form field.
fn form_value(form: &str, name: &str) -> Option<String> {
    let value = form.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?.replace('+', " ");
    percent_decode_str(&value).decode_utf8().ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_of_a_form_is_decoded() {
        assert_eq!(form_value("a=1&key=k%2B+1%26&b=2", "key").as_deref(), Some("k+ 1&"));
        assert_eq!(form_value("keys=1", "key"), None);
    }
}
