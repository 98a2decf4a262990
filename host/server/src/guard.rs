//! Protection against other web pages: DNS rebinding (foreign `Host` header) and cross-site requests (foreign `Origin`
//! header, or `Sec-Fetch-Site` for requests without an origin, such as images). Programs other than browsers send
//! neither `Origin` nor `Sec-Fetch-Site`.

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, Version, header};

use crate::error::ApiError;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Returns true for pages that a link on another site may open.
fn is_page(path: &str) -> bool {
    matches!(path, "/" | "/dev-ui") || path.starts_with("/dev-ui/")
}

/// Checks that a request names its host once, as RFC 9112 requires. Otherwise a proxy may have checked another name.
///
/// # Errors
/// 400 if there are several `Host` headers, or none in a request over HTTP/1.1.
pub(crate) fn check_host_count(version: Version, uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    match headers.get_all(header::HOST).iter().count() {
        0 if version == Version::HTTP_11 && uri.authority().is_none() => {
            Err(ApiError::bad_input("the header `Host` is missing; send the name of this server"))
        }
        0 | 1 => Ok(()),
        _ => Err(ApiError::bad_input("the request has several headers `Host`; send one")),
    }
}

/// Checks the `Host`, `Origin` and `Sec-Fetch-*` headers.
pub(crate) struct Guard {
    allowed: Vec<String>,
    allows_any: bool,
    hint: &'static str,
}

impl Guard {
    /// Accepts loopback names and the names in `allowed`; `*` accepts all. `is_loopback` is true if the server listens
    /// on a loopback address.
    pub(crate) fn new(is_loopback: bool, allowed: &[String]) -> Self {
        let hint = if is_loopback { "this server listens on loopback only" } else { "it is not a name of this server" };
        Self { allowed: allowed.to_vec(), allows_any: allowed.iter().any(|name| name == "*"), hint }
    }

    /// Checks a request. `is_shared` is true if pages of its `Origin` may send it.
    ///
    /// # Errors
    /// 403 for a foreign `Host` and for a request of another site.
    pub(crate) fn check(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        is_shared: bool,
    ) -> Result<(), ApiError> {
        let text = |name| text(headers, name);
        if let Some(host) = host(uri, headers)
            && !self.allows_any
            && !host.parse::<Authority>().is_ok_and(|authority| self.allows(&authority))
        {
            let error = refusal("HOST_NOT_ALLOWED", format!("host `{host}` not allowed; {}", self.hint));
            return Err(error.advise("add it to server.allowed_hosts in hatchery.yaml to allow it"));
        }
        if is_shared {
            return Ok(());
        }
        if let Some(origin) = text(header::ORIGIN)
            && !is_own_origin(uri, headers)
        {
            let detail = format!("origin `{origin}` not allowed; only pages of this server may send requests");
            let error = refusal("ORIGIN_NOT_ALLOWED", detail);
            return Err(error.advise("add it to server.cors in hatchery.yaml to allow it"));
        }
        let opens_page = || {
            method == Method::GET
                && is_page(uri.path())
                && text(FETCH_MODE) == Some("navigate")
                && text(FETCH_DEST) == Some("document")
        };
        match text(FETCH_SITE) {
            None | Some("same-origin" | "none") => Ok(()),
            Some(_) if opens_page() => Ok(()),
            Some(site) => Err(refusal(
                "SITE_NOT_ALLOWED",
                format!("a `{site}` browser request is not allowed; only pages of this server may send requests"),
            )),
        }
    }

    /// Compares with or without the port, as in the list.
    fn allows(&self, authority: &Authority) -> bool {
        let matches = |name: &String| {
            name.eq_ignore_ascii_case(authority.host()) || name.eq_ignore_ascii_case(authority.as_str())
        };
        is_local(authority.host()) || self.allowed.iter().any(matches)
    }
}

/// Returns true if a request has the `Origin` of the server's own pages.
pub(crate) fn is_own_origin(uri: &Uri, headers: &HeaderMap) -> bool {
    let origin = text(headers, header::ORIGIN);
    let authority = origin.and_then(|origin| origin.strip_prefix("http://").or(origin.strip_prefix("https://")));
    authority.zip(host(uri, headers)).is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
}

/// Returns the name and the port by which the client addresses the server.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    uri.authority().map(Authority::as_str).or(text(headers, header::HOST))
}

/// Returns a header, or `?`, which is no valid value of it, if it is not ASCII.
fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

fn is_local(host: &str) -> bool {
    const LOCALHOST: &str = "localhost";
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    // Bytes, because the text may have no boundary of characters there.
    let end = host.len().checked_sub(LOCALHOST.len()).and_then(|start| host.as_bytes().split_at_checked(start));
    let is_localhost = end.is_some_and(|(before, end)| {
        end.eq_ignore_ascii_case(LOCALHOST.as_bytes()) && (before.is_empty() || before.ends_with(b"."))
    });
    is_localhost || is_loopback()
}

fn refusal(code: &str, detail: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, code, format!("Forbidden: {detail}"))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn code(host: Option<&'static str>, origin: Option<&'static str>) -> Option<String> {
        code_of(&Guard::new(true, &[]), host, origin)
    }

    fn code_of(guard: &Guard, host: Option<&'static str>, origin: Option<&'static str>) -> Option<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(header::HOST, host), (header::ORIGIN, origin)] {
            value.map(|value| headers.insert(name, HeaderValue::from_static(value)));
        }
        guard.check(&Method::GET, &Uri::from_static("/list-apps"), &headers, false).err().map(|error| error.code)
    }

    #[test]
    fn loopback_names_are_accepted() {
        for host in ["localhost:8080", "127.0.0.1", "127.3.2.1:80", "[::1]:8080", "dice.localhost", "LOCALHOST:1"] {
            assert_eq!(code(Some(host), None), None, "{host}");
        }
        assert_eq!(code(None, None), None);
    }

    #[test]
    fn foreign_hosts_are_rejected() {
        for host in
            ["example.com", "localhost.example.com:8080", "192.168.0.3:8080", "127.0.0.1.nip.io", "[::2]", "a b"]
        {
            assert_eq!(code(Some(host), None).as_deref(), Some("HOST_NOT_ALLOWED"), "{host}");
        }
    }

    #[test]
    fn only_the_server_s_own_origin_is_accepted() {
        assert_eq!(code(Some("localhost:8080"), Some("http://localhost:8080")), None);
        for origin in ["http://localhost:9090", "http://example.com", "null", "file://", "http://127.0.0.1:8080"] {
            assert_eq!(code(Some("localhost:8080"), Some(origin)).as_deref(), Some("ORIGIN_NOT_ALLOWED"), "{origin}");
        }
        assert_eq!(code(None, Some("http://localhost")).as_deref(), Some("ORIGIN_NOT_ALLOWED"));
    }

    #[test]
    fn other_sites_may_only_open_the_page() {
        let code = |method: Method, path: &'static str, fetch: [&'static str; 3]| {
            let mut headers = HeaderMap::new();
            for (name, value) in [FETCH_SITE, FETCH_MODE, FETCH_DEST].into_iter().zip(fetch) {
                headers.insert(name, HeaderValue::from_static(value));
            }
            let checked = Guard::new(true, &[]).check(&method, &Uri::from_static(path), &headers, false);
            checked.err().map(|error| error.code)
        };
        let refused = Some("SITE_NOT_ALLOWED".to_owned());
        for site in ["cross-site", "same-site", "something-new"] {
            assert_eq!(code(Method::GET, "/list-apps", [site, "no-cors", "image"]), refused);
            assert_eq!(code(Method::GET, "/list-apps", [site, "navigate", "document"]), refused);
            assert_eq!(code(Method::POST, "/run", [site, "navigate", "document"]), refused);
            assert_eq!(code(Method::GET, "/dev-ui", [site, "navigate", "iframe"]), refused);
            for page in ["/", "/dev-ui", "/dev-ui/", "/dev-ui/apps/dice"] {
                assert_eq!(code(Method::GET, page, [site, "navigate", "document"]), None);
            }
            assert_eq!(code(Method::GET, "/dev-ui-not", [site, "navigate", "document"]), refused);
        }
        for site in ["same-origin", "none"] {
            assert_eq!(code(Method::POST, "/run", [site, "cors", "empty"]), None);
        }
    }

    #[test]
    fn pages_of_shared_origins_are_accepted_at_the_server_s_own_names_only() {
        let code = |host: &'static str| {
            let headers = [(header::HOST, host), (header::ORIGIN, "https://app.example"), (FETCH_SITE, "cross-site")];
            let headers = HeaderMap::from_iter(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
            let checked = Guard::new(true, &[]).check(&Method::POST, &Uri::from_static("/run"), &headers, true);
            checked.err().map(|error| error.code)
        };
        assert_eq!(code("localhost:8080"), None);
        assert_eq!(code("rebound.example").as_deref(), Some("HOST_NOT_ALLOWED"));
    }

    #[test]
    fn configured_hosts_and_loopback_names_are_accepted() {
        let guard = Guard::new(false, &["agents.example".into(), "[::2]".into(), "x.example:81".into()]);
        for host in ["agents.example", "Agents.Example:8080", "[::2]:1", "x.example:81", "127.0.0.1:80", "localhost"] {
            assert_eq!(code_of(&guard, Some(host), None), None, "{host}");
        }
        for host in ["example", "x.agents.example", "agents.example.org", "x.example", "x.example:82", "0.0.0.0:80"] {
            assert_eq!(code_of(&guard, Some(host), None).as_deref(), Some("HOST_NOT_ALLOWED"), "{host}");
        }
    }

    #[test]
    fn an_asterisk_accepts_any_host_and_no_foreign_origin() {
        let guard = Guard::new(false, &["*".into()]);
        assert_eq!(code_of(&guard, Some("anything.example"), None), None);
        assert_eq!(code_of(&guard, Some("anything.example"), Some("https://anything.example")), None);
        let foreign = code_of(&guard, Some("anything.example"), Some("https://evil.example"));
        assert_eq!(foreign.as_deref(), Some("ORIGIN_NOT_ALLOWED"));
    }
}
