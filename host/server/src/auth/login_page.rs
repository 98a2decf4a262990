//! The page that asks a browser for an API key, instead of the developer UI.

use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::RequestHead;

/// The content security policy of the pages, which allows only the form.
const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'");

const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"hatchery\"");

/// Returns true for a browser that opens the developer UI.
pub(super) fn opens_page(request: &RequestHead<'_>) -> bool {
    let path = request.path;
    let accept = request.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    request.method == Method::GET
        && (matches!(path, "/" | "/dev-ui") || path.starts_with("/dev-ui/"))
        && accept.contains("text/html")
}

/// Returns the query of a request with which an OAuth server ends a login. `None` for one of [`reload_page`].
pub(super) fn oauth_response<'a>(request: &RequestHead<'a>) -> Option<&'a str> {
    let query = request.query?;
    let has =
        |name: &str| query.split('&').any(|pair| pair.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')));
    (has("state") && (has("code") || has("error")) && !query.ends_with('&')).then_some(query)
}

/// Returns a page that opens itself again, once. Browsers do not send the cookie of a login with a request that a page
/// of another site has led to, but with this one.
pub(super) fn reload_page(query: &str) -> Response {
    let query = query.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>Hatchery</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url=?{query}&amp;\">\n</head>\n</html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ];
    (headers, html).into_response()
}

/// Returns the login page for `path`, with a sentence about the last attempt.
pub(crate) fn login_page(path: &str, problem: Option<&str>) -> Response {
    let problem = problem.map(|problem| format!("<p><strong>{problem}</strong></p>\n")).unwrap_or_default();
    let action = format!("{}login", "../".repeat(path.matches('/').count().saturating_sub(1)));
    let html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>Log in · Hatchery</title>\n</head>\n<body>\n<main>\n\
         <h1>Hatchery</h1>\n{problem}<form method=\"post\" action=\"{action}\">\n\
         <label>API key or token with the role <code>operate</code><br>\n\
         <input type=\"password\" name=\"key\" required autofocus autocomplete=\"current-password\" size=\"48\"></label>\n\
         <button>Log in</button>\n</form>\n</main>\n</body>\n</html>\n"
    );
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        // Without a referrer, browsers send the form with the origin `null`.
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (header::WWW_AUTHENTICATE, CHALLENGE),
    ];
    (StatusCode::UNAUTHORIZED, headers, html).into_response()
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::extract::Request;

    use super::*;

    #[tokio::test]
    async fn the_form_leads_to_the_login_also_behind_a_proxy_that_adds_a_prefix() {
        for (path, action) in
            [("/", "login"), ("/dev-ui", "login"), ("/dev-ui/", "../login"), ("/dev-ui/a/b", "../../login")]
        {
            let body = to_bytes(login_page(path, None).into_body(), usize::MAX).await.unwrap();
            let text = String::from_utf8(body.to_vec()).unwrap();
            assert!(text.contains(&format!("action=\"{action}\"")), "{path}: {text}");
        }
    }

    #[test]
    fn only_browsers_that_open_the_page_get_it() {
        let opens = |method: &str, path: &str, accept: &str| {
            let request = Request::builder().method(method).uri(path).header(header::ACCEPT, accept);
            opens_page(&RequestHead::new(&request.body(Body::empty()).unwrap(), true))
        };
        assert!(opens("GET", "/dev-ui/apps/dice", "text/html,*/*;q=0.8"));
        assert!(!opens("GET", "/dev-ui/assets/a.js", "*/*"));
        assert!(!opens("POST", "/dev-ui/", "text/html") && !opens("GET", "/list-apps", "text/html"));
    }
}
