//! Cross-origin resource sharing (CORS): the pages of other origins that may send requests.
//!
//! `tower_http::cors` is a layer around a service that never refuses an origin. Here the answer also decides whether
//! the [guard](crate::guard) lets a request pass, before its body and its credentials are read.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hatchery::CorsConfig;
use hatchery_core::matches_wildcard;

use crate::error::ApiError;

/// Additional response headers that pages may read.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("x-request-id, x-hatchery-run, location, link, etag, retry-after, www-authenticate");

const ANY: &str = "*";

/// The rules of a server, in the order of the configuration.
pub(crate) struct Cors(Vec<Rule>);

/// The pages of some origins that may use some paths.
pub(crate) struct Rule {
    /// The segments of the mapping.
    mapping: Vec<String>,
    origins: Vec<String>,
    methods: Names,
    headers: Names,
    allows_credentials: bool,
    max_age: u64,
}

/// All names, or some.
enum Names {
    All,
    Some(Vec<String>),
}

impl Names {
    fn new(names: &[String]) -> Self {
        if names.iter().any(|name| name == ANY) { Self::All } else { Self::Some(names.to_vec()) }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Some(names) => names.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)),
        }
    }
}

impl Cors {
    pub(crate) fn new(config: &[CorsConfig]) -> Self {
        Self(config.iter().map(Rule::new).collect())
    }

    /// Returns the first rule for the path and the `Origin` of a request from another origin. `None` if only pages of
    /// the server itself may send it.
    pub(crate) fn rule(&self, path: &str, headers: &HeaderMap) -> Option<&Rule> {
        if self.0.is_empty() {
            return None;
        }
        let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
        self.0.iter().find(|rule| rule.maps(path) && rule.has_origin(origin))
    }

    /// Adds `Vary`, so that caches keep the responses for several origins apart.
    pub(crate) fn vary(&self, headers: &mut HeaderMap) {
        if !self.0.is_empty() {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
    }
}

/// Returns true if a request asks whether another one may be sent.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
}

impl Rule {
    fn new(config: &CorsConfig) -> Self {
        Self {
            mapping: config.mapping.trim_start_matches('/').split('/').map(Into::into).collect(),
            origins: config.origins.iter().map(|origin| without_default_port(&origin.to_ascii_lowercase())).collect(),
            methods: Names::new(&config.methods),
            headers: Names::new(&config.headers),
            allows_credentials: config.allow_credentials,
            max_age: config.max_age.as_secs(),
        }
    }

    fn maps(&self, path: &str) -> bool {
        let path = path.strip_prefix('/').unwrap_or(path);
        let mut segments = path.split('/');
        for pattern in &self.mapping {
            match (pattern.as_str(), segments.next()) {
                ("**", _) => return true,
                (pattern, Some(segment)) if matches_wildcard(pattern, segment) => {}
                _ => return false,
            }
        }
        segments.next().is_none()
    }

    fn has_origin(&self, origin: &str) -> bool {
        self.origins.iter().any(|allowed| allowed == ANY || allowed.eq_ignore_ascii_case(origin))
    }

    /// Returns true if pages may send cookies.
    pub(crate) fn allows_credentials(&self) -> bool {
        self.allows_credentials
    }

    /// Checks the method of a request that is no preflight request.
    ///
    /// # Errors
    /// 403 if pages of other origins may not use it.
    pub(crate) fn check(&self, method: &Method) -> Result<(), ApiError> {
        if self.methods.has(method.as_str()) {
            return Ok(());
        }
        let error = refusal(format!("pages of other origins may not send {method} requests to this path"));
        Err(error.advise("add the method to `methods` of server.cors in hatchery.yaml to allow it"))
    }

    /// Answers a preflight request.
    ///
    /// # Errors
    /// 403 if the method or a header that it announces is not allowed.
    pub(crate) fn answer_preflight(&self, headers: &HeaderMap) -> Result<Response, ApiError> {
        let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        let (method, names) =
            (text(header::ACCESS_CONTROL_REQUEST_METHOD), text(header::ACCESS_CONTROL_REQUEST_HEADERS));
        self.check(&method.parse().map_err(|_| refusal("the announced method is not a valid HTTP method".into()))?)?;
        let announced = || names.split(',').map(str::trim).filter(|name| !name.is_empty());
        if let Some(name) = announced().find(|name| !self.headers.has(name)) {
            let detail = format!("pages of other origins may not send the header `{}`", name.escape_debug());
            let advice = "add the header to `headers` of server.cors in hatchery.yaml to allow it";
            return Err(refusal(detail).advise(advice));
        }
        let methods = match &self.methods {
            Names::All => method.to_owned(),
            Names::Some(methods) => methods.join(", "),
        };
        let mut response = StatusCode::NO_CONTENT.into_response();
        *response.body_mut() = Body::empty();
        let answer = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
            // `*` would not stand for `Authorization`.
            (header::ACCESS_CONTROL_ALLOW_HEADERS, announced().collect::<Vec<_>>().join(", ")),
            (header::ACCESS_CONTROL_MAX_AGE, self.max_age.to_string()),
        ];
        for (name, value) in answer.into_iter().filter(|(_, value)| !value.is_empty()) {
            insert(response.headers_mut(), name, &value);
        }
        Ok(response)
    }

    /// Adds the headers with which the browser shows a response to the page that has asked for it.
    pub(crate) fn share(&self, origin: &HeaderValue, headers: &mut HeaderMap) {
        let is_any = self.origins.iter().any(|origin| origin == ANY);
        let origin = if is_any { HeaderValue::from_static(ANY) } else { origin.clone() };
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        if self.allows_credentials {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

/// Returns an origin as browsers send it: without the port that its scheme implies.
fn without_default_port(origin: &str) -> String {
    let port = if origin.starts_with("https:") { ":443" } else { ":80" };
    origin.strip_suffix(port).unwrap_or(origin).to_owned()
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // Names of methods and headers are checked when they are read.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn refusal(detail: String) -> ApiError {
    ApiError::new(StatusCode::FORBIDDEN, "CORS_NOT_ALLOWED", format!("Forbidden: {detail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(mapping: &str, origins: &[&str]) -> Rule {
        let origins = origins.iter().map(|origin| (*origin).to_owned()).collect();
        Rule::new(&CorsConfig { mapping: mapping.into(), origins, ..CorsConfig::default() })
    }

    #[test]
    fn a_mapping_covers_the_paths_of_its_segments() {
        for (mapping, paths, others) in [
            ("/**", vec!["/", "/run", "/apps/dice/users"], vec![]),
            ("/run", vec!["/run"], vec!["/", "/run/", "/runs", "/run/x", "/%72un"]),
            ("/run*", vec!["/run", "/run_sse"], vec!["/run/x", "/list-apps"]),
            (
                "/apps/*/users/**",
                vec!["/apps/dice/users", "/apps/dice/users/u/sessions"],
                vec!["/apps/dice", "/apps/a/b/users"],
            ),
            ("/", vec!["/"], vec!["/run"]),
        ] {
            let rule = rule(mapping, &[]);
            for path in paths {
                assert!(rule.maps(path), "{mapping} {path}");
            }
            for path in others {
                assert!(!rule.maps(path), "{mapping} {path}");
            }
        }
    }

    #[test]
    fn an_origin_is_compared_as_a_whole() {
        let rule = rule("/**", &["https://app.example:443", "http://localhost:4200"]);
        for origin in ["https://app.example", "HTTPS://App.Example", "http://localhost:4200"] {
            assert!(rule.has_origin(origin), "{origin}");
        }
        for origin in ["https://app.example.evil.example", "http://app.example", "https://x.app.example", "null", ""] {
            assert!(!rule.has_origin(origin), "{origin}");
        }
    }

    #[test]
    fn the_first_rule_for_path_and_origin_counts() {
        let config = |mapping: &str, origin: &str, max_age| CorsConfig {
            mapping: mapping.into(),
            origins: vec![origin.into()],
            max_age: std::time::Duration::from_secs(max_age),
            ..CorsConfig::default()
        };
        let cors = Cors::new(&[config("/run", "https://a.example", 1), config("/**", "https://b.example", 2)]);
        let found = |path: &str, origin: &'static str| {
            let headers = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
            cors.rule(path, &headers).map(|rule| rule.max_age)
        };
        assert_eq!(found("/run", "https://a.example"), Some(1));
        assert_eq!(found("/run", "https://b.example"), Some(2));
        assert_eq!(found("/list-apps", "https://a.example"), None);
        assert!(cors.rule("/run", &HeaderMap::new()).is_none());
    }
}
