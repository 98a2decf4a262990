//! The base path of a server: removed from the paths of requests before routing, and added to the paths in responses.

use axum::extract::{OriginalUri, Request};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use hatchery::BasePath;

use crate::error::ApiError;

/// Paths that clients ask for at the root of a host by their protocol. They are below the base path too.
const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];

/// Returns a request with the path of its route. The path that the client sent is its [`OriginalUri`].
///
/// # Errors
/// The response to a request outside of the base path, or for the base path without its slash, from which relative
/// links would lead elsewhere.
pub(crate) fn enter(base: &BasePath, mut request: Request) -> Result<Request, Box<Response>> {
    let uri = request.uri();
    let path = uri.path();
    let Some(route) = base.strip(path) else {
        return if WELL_KNOWN.contains(&path) {
            Ok(request)
        } else {
            Err(outside(base, &request).into_response().into())
        };
    };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if route.is_empty() {
        return Err(add_slash(base, &query).into());
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = PathAndQuery::try_from(format!("{route}{query}")).ok();
    // Parts of a URI that was valid are valid.
    let uri = Uri::from_parts(parts).map_err(|_| Box::new(ApiError::internal().into_response()))?;
    let original = std::mem::replace(request.uri_mut(), uri);
    request.extensions_mut().insert(OriginalUri(original));
    Ok(request)
}

fn outside(base: &BasePath, request: &Request) -> ApiError {
    let (method, path) = (request.method(), request.uri().path());
    let detail = format!("no route for {method} {path}: this server is at `{base}`, as in {base}/list-apps");
    ApiError::new(StatusCode::NOT_FOUND, "ROUTE_NOT_FOUND", detail)
}

/// Redirects to the base path with a slash, relative to the path, before which a proxy may have removed something.
fn add_slash(base: &BasePath, query: &str) -> Response {
    let last = base.as_str().rsplit('/').next().unwrap_or_default();
    match HeaderValue::try_from(format!("{last}/{query}")) {
        Ok(location) => (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, location)]).into_response(),
        Err(_) => ApiError::bad_input("invalid query").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(uri: &str) -> Request {
        Request::get(uri).body(Body::empty()).unwrap()
    }

    #[test]
    fn a_route_gets_its_own_path_with_the_query_and_the_authority() {
        let base: BasePath = "/a/b".parse().unwrap();
        for (sent, route) in [
            ("/a/b/", "/"),
            ("/a/b/list-apps?relative_path=a/b", "/list-apps?relative_path=a/b"),
            ("http://host:1/a/b/apps/di%63e", "http://host:1/apps/di%63e"),
            ("/a/b//run", "//run"),
        ] {
            let entered = enter(&base, request(sent)).unwrap();
            assert_eq!(entered.uri(), route);
            assert_eq!(entered.extensions().get::<OriginalUri>().unwrap().0, *sent);
        }
    }

    #[test]
    fn the_base_path_leads_to_its_folder() {
        let response = enter(&"/a/b".parse().unwrap(), request("/a/b?app=x")).unwrap_err();
        assert_eq!(response.status(), StatusCode::PERMANENT_REDIRECT);
        assert_eq!(response.headers()[header::LOCATION], "b/?app=x");
    }
}
