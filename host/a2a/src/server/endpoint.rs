//! The endpoint: paths below an app's path, and headers.

use bytes::Bytes;
use hatchery_core::ClientScope;
use hatchery_engine::App;
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderMap, Method, Request, Response};
use serde_json::Value;

use super::answer;
pub use super::answer::Body;
use super::card::card_url;
use super::{A2aService, Client};
use crate::codec::Version;
use crate::error::{A2aError, ErrorKind, excerpt};

/// The header, and the query parameter, with the version of a client.
pub(crate) const VERSION_HEADER: &str = "a2a-version";

/// The paths of cards, of this version and of versions before 0.3.
pub(crate) const CARD_PATHS: [&str; 2] = [".well-known/agent-card.json", ".well-known/agent.json"];

/// The path of ADK's first remote service, whose body is JSON-RPC.
const ADK_PATH: &str = "v1/message:send";
const ADK_APP: &str = "remote";

/// The routes of the apps for A2A clients, for a server that checks hosts, origins and the size of bodies itself. Cheap
/// to clone.
#[derive(Clone)]
pub struct A2aEndpoint {
    service: A2aService,
    /// The prefix of the routes. Empty at the root.
    base_path: String,
}

impl A2aEndpoint {
    /// Creates the endpoint of a service.
    pub fn new(service: A2aService) -> Self {
        Self { service, base_path: String::new() }
    }

    /// Puts a path before those in cards, such as `/agents`, unless the settings have a public URL.
    #[must_use]
    pub fn with_base_path(self, path: &str) -> Self {
        Self { base_path: path.to_owned(), ..self }
    }

    /// Answers a request to `/a2a/APP/PATH`; `path` is empty for the app itself. `None` if clients may not use such an
    /// app. The client's sessions belong to the user of a [`ClientScope`] among the extensions of the request.
    pub async fn handle(&self, app: &str, path: &str, request: Request<Bytes>) -> Option<Response<Body>> {
        let user = request.extensions().get::<ClientScope>().and_then(|scope| scope.user.clone());
        let service = &self.service.for_client(Client { user, base_url: self.base_url(request.headers()) });
        let means_default = Self::means_default_app(app, path);
        let app = service.app(app).or_else(|| means_default.then(|| service.default_app()).flatten())?;
        let (parts, body) = request.into_parts();
        let (method, headers, query) = (&parts.method, &parts.headers, parts.uri.query());
        Some(match path {
            "" | "/" | ADK_PATH if method == Method::POST => service.json_rpc(&app, headers, query, &body).await,
            path if CARD_PATHS.contains(&path) && method == Method::GET => self.card_of(&app, headers),
            path => service.rest(&app, method, path, headers, query, &body).await,
        })
    }

    /// Returns true if `/a2a/APP/PATH` means the default app, unless there is an app of this name.
    pub fn means_default_app(app: &str, path: &str) -> bool {
        app == ADK_APP && path == ADK_PATH
    }

    /// Ends the streams of tasks that wait for their clients, which would not end by themselves.
    pub fn close(&self) {
        self.service.0.task_changes.close();
    }

    /// Answers a request for the card of the default app. `None` if there is none.
    pub fn default_card(&self, headers: &HeaderMap) -> Option<Response<Body>> {
        self.service.default_app().map(|app| self.card_of(&app, headers))
    }

    fn card_of(&self, app: &App, headers: &HeaderMap) -> Response<Body> {
        let url = card_url(&self.base_url(headers), app);
        let (card, changed) = (self.service.card(app, &url).to_json(), self.service.card_changed(app));
        answer::card(&card, changed, headers, !self.service.settings().has_authentication)
    }

    /// Returns the part of a client's URLs before `/a2a`.
    fn base_url(&self, headers: &HeaderMap) -> String {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
        let (settings, base_path) = (self.service.settings(), &self.base_path);
        match &settings.public_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None if settings.is_tls => format!("https://{host}{base_path}"),
            None => format!("http://{host}{base_path}"),
        }
    }
}

impl A2aService {
    /// Checks that clients may use a version.
    pub(super) fn check_offered(&self, version: Version) -> Result<(), A2aError> {
        let versions = &self.settings().versions;
        if versions.contains(&version) {
            return Ok(());
        }
        let names: Vec<_> = versions.iter().map(|version| version.name()).collect();
        let message = format!("version {} is not offered; this host speaks {}", version.name(), names.join(" and "));
        Err(A2aError::new(ErrorKind::VersionNotSupported, message))
    }
}

/// Checks that a body is JSON.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), A2aError> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json =
        media_type == "application/json" || (media_type.starts_with("application/") && media_type.ends_with("+json"));
    if is_json {
        Ok(())
    } else {
        Err(A2aError::new(
            ErrorKind::ContentTypeNotSupported,
            "the body must be JSON: send the header `Content-Type: application/json`",
        ))
    }
}

/// Returns the version that a client names in a header or in the query. `None` if it names none.
///
/// # Errors
/// If this host does not speak it.
pub(super) fn check_version(headers: &HeaderMap, query: Option<&str>) -> Result<Option<Version>, A2aError> {
    let in_header = headers.get(VERSION_HEADER).map(|value| value.to_str().unwrap_or("?").trim());
    let in_query = query.into_iter().flat_map(|query| query.split('&')).find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        key.eq_ignore_ascii_case(VERSION_HEADER).then_some(value)
    });
    let Some(name) = in_header.or(in_query).filter(|name| !name.is_empty()) else { return Ok(None) };
    Version::from_name(name).map(Some).ok_or_else(|| {
        let message = format!("version `{}` is not supported; this host speaks 0.3 and 1.0", excerpt(name));
        A2aError::new(ErrorKind::VersionNotSupported, message)
    })
}

/// Parses the body of a request of the HTTP+JSON binding. An empty one counts as `{}`.
pub(super) fn parse_body(headers: &HeaderMap, body: &[u8]) -> Result<Value, A2aError> {
    if body.is_empty() {
        return Ok(serde_json::json!({}));
    }
    check_content_type(headers)?;
    serde_json::from_slice(body)
        .map_err(|error| A2aError::new(ErrorKind::Parse, format!("the body is not valid JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_names_its_version_in_a_header_or_in_the_query() {
        let version = |header: Option<&'static str>, query: Option<&str>| {
            let header = header.map(|value| (VERSION_HEADER.parse().unwrap(), value.parse().unwrap()));
            check_version(&HeaderMap::from_iter(header), query)
        };
        assert_eq!(version(None, None), Ok(None));
        assert_eq!(version(Some(""), None), Ok(None));
        assert_eq!(version(Some("1.0"), Some("A2A-Version=0.3")), Ok(Some(Version::V1_0)));
        assert_eq!(version(None, Some("a=b&A2A-Version=0.3")), Ok(Some(Version::V0_3)));
        let error = version(Some("9.9"), None).unwrap_err();
        assert_eq!(error.kind, ErrorKind::VersionNotSupported);
        assert_eq!(error.message, "version `9.9` is not supported; this host speaks 0.3 and 1.0");
    }
}
