//! Axum extractors: JSON bodies, path and query parameters, with problem+json errors.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use hatchery_core::HOST_USER;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

use crate::body;
use crate::error::ApiError;
use crate::state::AppState;

/// A JSON body that is received and not parsed.
pub(crate) struct RawJson(Bytes);

impl RawJson {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses the body. An empty one and `null` are the default.
    ///
    /// # Errors
    /// 400 if it is not JSON, 422 if it has another shape.
    pub(crate) fn parse_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        if self.is_empty() { Ok(T::default()) } else { self.parse::<Option<T>>().map(Option::unwrap_or_default) }
    }

    /// Parses the body.
    ///
    /// # Errors
    /// 400 if it is not JSON, 422 if it has another shape.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        if self.is_empty() {
            return Err(malformed("the body is empty; it must be a JSON object"));
        }
        match serde_json::from_slice(&self.0) {
            Err(error) if !error.is_data() => Err(malformed(format!("the body is not valid JSON: {error}"))),
            // A structure could be parsed from an array of its fields, too.
            _ if self.0.trim_ascii_start().starts_with(b"[") => {
                Err(ApiError::invalid("invalid body: it must be a JSON object, not an array"))
            }
            Err(error) => {
                let path = self.error_path::<T>().map(|path| format!("{path}: ")).unwrap_or_default();
                let problem = in_terms_of_json(&error.to_string());
                Err(ApiError::invalid(format!("invalid body: {path}{problem}")))
            }
            Ok(parsed) => Ok(parsed),
        }
    }

    /// Returns the path of the value that has another shape, such as `newMessage.parts[0]`. `None` for the whole body.
    fn error_path<T: DeserializeOwned>(&self) -> Option<String> {
        let mut parser = serde_json::Deserializer::from_slice(&self.0);
        let error = serde_path_to_error::deserialize::<_, T>(&mut parser).err()?;
        let path = error.path().to_string();
        (path != ".").then_some(path)
    }
}

/// Replaces the names of Rust's types at the end of a message of serde: clients send objects.
fn in_terms_of_json(message: &str) -> String {
    let Some((problem, expected)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let rest = match expected.strip_prefix("struct ") {
        Some(rest) => Some(rest.trim_start_matches(is_name)),
        None => expected.strip_prefix("a map").map(|rest| rest.trim_start_matches(is_name)),
    };
    match rest {
        Some(rest) => format!("{problem}, expected an object{rest}"),
        None => message.to_owned(),
    }
}

fn malformed(detail: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "MALFORMED_JSON", detail)
}

impl FromRequest<AppState> for RawJson {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        let bytes = body::read(&parts, body, &state.config()).await?;
        if !bytes.is_empty() {
            check_content_encoding(&parts.headers)?;
            check_content_type(&parts.headers)?;
        }
        Ok(Self(bytes))
    }
}

/// A body of any type.
pub(crate) struct RawBody(pub(crate) Bytes);

impl FromRequest<AppState> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let (parts, body) = request.into_parts();
        body::read(&parts, body, &state.config()).await.map(Self)
    }
}

/// A parsed JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<AppState> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        RawJson::from_request(request, state).await?.parse().map(Self)
    }
}

/// Percent-decoded path parameters.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        if let Ok(params) = RawPathParams::from_request_parts(parts, state).await
            && let Some((_, user)) = params.iter().find(|(name, _)| *name == "user")
        {
            check_user_is_not_host(user)?;
        }
        match Path::from_request_parts(parts, state).await {
            Ok(Path(params)) => Ok(Self(params)),
            Err(rejection) => Err(ApiError::bad_input(format!("invalid path: {}", rejection.body_text()))),
        }
    }
}

/// Checks that a user is not one of the host itself, whose sessions contain data such as credentials of clients.
///
/// # Errors
/// 404 if it is.
pub(crate) fn check_user_is_not_host(user: &str) -> Result<(), ApiError> {
    if user != HOST_USER {
        return Ok(());
    }
    let detail = format!("the user id `{HOST_USER}` is reserved for the host; choose another one");
    Err(ApiError::new(StatusCode::NOT_FOUND, "USER_RESERVED", detail))
}

/// Query parameters.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for QueryParams<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        match Query::from_request_parts(parts, state).await {
            Ok(Query(params)) => Ok(Self(params)),
            Err(rejection) => {
                let text = rejection.body_text();
                let problem = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
                Err(ApiError::invalid(format!("invalid query: {problem}")))
            }
        }
    }
}

/// Parses a Boolean of a query in the spellings of ADK's servers: clients in Python send `True`.
pub(crate) fn deserialize_boolean<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        _ => Err(D::Error::custom("write `true` or `false`")),
    }
}

/// Returns true for a type such as `application/ld+json`.
fn is_json_suffixed(media_type: &str) -> bool {
    media_type.starts_with("application/") && media_type.ends_with("+json")
}

/// Checks that a body is not compressed.
///
/// # Errors
/// 415 if it is.
pub(crate) fn check_content_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let is_plain = |coding: &&HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"identity");
    let Some(coding) = headers.get_all(header::CONTENT_ENCODING).iter().find(|coding| !is_plain(coding)) else {
        return Ok(());
    };
    let coding = coding.to_str().unwrap_or("?");
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        format!("the body is encoded as `{coding}`; send it unencoded, without the header `Content-Encoding`"),
    ))
}

fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") || is_json_suffixed(&media_type.to_ascii_lowercase()) {
        return Ok(());
    }
    let received = if content_type.is_empty() { "none".to_owned() } else { format!("`{content_type}`") };
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        format!("the body must be JSON: send the header `Content-Type: application/json` (got {received})"),
    ))
}
