//! Keeps web pages away from a server that listens on this machine only: a page elsewhere can make the browser send requests here
//! (foreign `Origin`), or have its own name lead here (foreign `Host`, DNS rebinding). Programs that are no browsers send neither.

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;

/// Refuses requests under a foreign `Host` or from a foreign `Origin`.
pub(crate) async fn local_only(request: Request, next: Next) -> Response {
    match check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn check(uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = uri.authority().map(Authority::as_str).or(text(header::HOST));
    if let Some(host) = host
        && !host.parse::<Authority>().is_ok_and(|authority| is_local(authority.host()))
    {
        return Err(refused("HOST_NOT_ALLOWED", "host", host));
    }
    if let Some(origin) = text(header::ORIGIN) {
        let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        if authority.is_none() || authority != host {
            return Err(refused("ORIGIN_NOT_ALLOWED", "origin", origin));
        }
    }
    Ok(())
}

fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let is_loopback = host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

fn refused(code: &str, what: &str, value: &str) -> ApiError {
    let detail =
        format!("Forbidden: {what} `{value}` not allowed; this server listens on loopback, for this machine only");
    ApiError::new(StatusCode::FORBIDDEN, code, detail)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn code(host: Option<&'static str>, origin: Option<&'static str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            value.map(|value| headers.insert(name, HeaderValue::from_static(value)));
        }
        check(&Uri::from_static("/list-apps"), &headers).err().map(|error| error.code)
    }

    #[test]
    fn local_names_are_let_in() {
        for host in ["localhost:8080", "127.0.0.1", "127.3.2.1:80", "[::1]:8080", "dice.localhost", "LOCALHOST:1"] {
            assert_eq!(code(Some(host), None), None, "{host}");
        }
        assert_eq!(code(None, None), None);
    }

    #[test]
    fn foreign_hosts_are_kept_out() {
        for host in
            ["example.com", "localhost.example.com:8080", "192.168.0.3:8080", "127.0.0.1.nip.io", "[::2]", "a b"]
        {
            assert_eq!(code(Some(host), None).as_deref(), Some("HOST_NOT_ALLOWED"), "{host}");
        }
    }

    #[test]
    fn only_the_own_origin_is_let_in() {
        assert_eq!(code(Some("localhost:8080"), Some("http://localhost:8080")), None);
        for origin in ["http://localhost:9090", "http://example.com", "null", "file://", "http://127.0.0.1:8080"] {
            assert_eq!(code(Some("localhost:8080"), Some(origin)).as_deref(), Some("ORIGIN_NOT_ALLOWED"), "{origin}");
        }
        assert_eq!(code(None, Some("http://localhost")).as_deref(), Some("ORIGIN_NOT_ALLOWED"));
    }
}
