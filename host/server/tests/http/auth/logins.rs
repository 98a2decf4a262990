//! Logins of browsers at the developer UI, and pages of other origins.

use hatchery::{CorsConfig, OidcConfig, ServerConfig};
use jsonwebtoken::Algorithm;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::json;

use super::{OPERATOR, USER, host, keys, request};
use crate::support::{Host, problem, run_body, success};
use crate::tokens::{Issuer, Key, claims_with};

/// A browser at the developer UI.
struct Browser<'a> {
    host: &'a Host,
    cookie: Option<String>,
}

impl Browser<'_> {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.host.request(method, path).header("accept", "text/html,*/*;q=0.8");
        let request = request.header("origin", format!("http://{}", self.host.address));
        self.cookie.iter().fold(request, |request, cookie| request.header("cookie", cookie))
    }

    async fn open(&self, path: &str) -> Response {
        self.request(Method::GET, path).send().await.unwrap()
    }

    async fn log_in(&self, key: &str) -> Response {
        let form = format!("key={}", key.replace('-', "%2D"));
        let request = self.request(Method::POST, "/login").header("content-type", "application/x-www-form-urlencoded");
        request.body(form).send().await.unwrap()
    }
}

#[tokio::test]
async fn a_browser_logs_in_with_the_key_of_an_operator_and_out_again() {
    let host = host().await;
    let mut browser = Browser { host: &host, cookie: None };
    let page = browser.open("/dev-ui/apps/says").await;
    assert_eq!(page.status(), 401);
    assert_eq!(page.headers()["referrer-policy"], "same-origin");
    assert!(page.headers()["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    let html = page.text().await.unwrap();
    assert!(html.contains("<form method=\"post\" action=\"../../login\">"), "{html}");
    problem(browser.open("/list-apps").await, 401, "UNAUTHENTICATED").await;

    let refused = browser.log_in("wrong-key-0123456789").await;
    assert_eq!((refused.status().as_u16(), refused.headers().get("set-cookie")), (401, None));
    let html = refused.text().await.unwrap();
    assert!(html.contains("Not logged in: the API key or token is not valid."), "{html}");
    let refused = browser.log_in(USER).await;
    assert_eq!((refused.status().as_u16(), refused.headers().get("set-cookie")), (401, None));
    let html = refused.text().await.unwrap();
    assert!(html.contains("Not logged in: this needs credentials with the role `operate`."), "{html}");

    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let login = browser.log_in(OPERATOR).await;
    assert_eq!(login.status(), 401, "the redirect was followed without the cookie");
    let login = client.post(format!("http://{}/login", host.address)).body(format!("key={OPERATOR}"));
    let login = login.header("x-forwarded-proto", "https").send().await.unwrap();
    assert_eq!((login.status().as_u16(), &login.headers()["location"]), (303, &"./dev-ui/".parse().unwrap()));
    let cookie = login.headers()["set-cookie"].to_str().unwrap().to_owned();
    let (pair, flags) = cookie.split_once("; ").unwrap();
    assert_eq!(flags, "Path=/; HttpOnly; SameSite=Strict; Max-Age=43200; Secure");
    assert!(!cookie.contains(OPERATOR));
    browser.cookie = Some(pair.to_owned());
    for path in ["/dev-ui/", "/components", "/list-apps"] {
        assert_eq!(browser.open(path).await.status(), 200, "{path}");
    }
    // A page of another site cannot use the login, even if a browser sent the cookie.
    let foreign = host.request(Method::POST, "/run").header("cookie", pair).header("origin", "https://evil.example");
    problem(foreign.json(&run_body("says", "hi")).send().await.unwrap(), 403, "ORIGIN_NOT_ALLOWED").await;

    let logout = client.post(format!("http://{}/logout", host.address)).header("cookie", pair).send().await.unwrap();
    assert_eq!(logout.status(), 303);
    assert!(logout.headers()["set-cookie"].to_str().unwrap().contains("Max-Age=0"));
    problem(browser.open("/list-apps").await, 401, "LOGGED_OUT").await;
    assert_eq!(browser.open("/dev-ui/").await.status(), 401);
}

/// Logs in, and returns the cookie as browsers send it.
pub(super) async fn login_cookie(host: &Host, key: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap();
    let login = client.post(format!("http://{}/login", host.address)).body(format!("key={key}")).send().await.unwrap();
    assert_eq!(login.status(), 303);
    login.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn a_login_with_a_token_ends_when_tokens_are_verified_with_other_settings() {
    let key = Key::new("k", Algorithm::EdDSA);
    let oidc = |role_claim: &str| OidcConfig { role_claim: Some(role_claim.into()), ..OidcConfig::default() };
    let (issuer, host) = Issuer::start(&[&key], oidc("role")).await;
    let cookie = login_cookie(&host, &key.sign(&claims_with("role", json!("operate")))).await;
    let apply = |role_claim: &str| host.state.prepare(issuer.server_config(oidc(role_claim)), true).unwrap()();
    let open = async || host.request(Method::GET, "/components").header("cookie", &cookie).send().await.unwrap();
    apply("role");
    assert_eq!(open().await.status(), 200, "nothing has changed");
    apply("other");
    problem(open().await, 401, "LOGGED_OUT").await;
}

#[tokio::test]
async fn a_browser_that_comes_back_from_an_oauth_server_sends_its_cookie_with_a_second_request() {
    let host = host().await;
    let open = async |path: &str, cookie: &str| {
        let request = host.request(Method::GET, path).header("accept", "text/html").header("cookie", cookie);
        let request = request.header("sec-fetch-site", "cross-site").header("sec-fetch-mode", "navigate");
        request.header("sec-fetch-dest", "document").send().await.unwrap()
    };
    // The cookie of a login is not sent after a form on another site.
    let page = open("/dev-ui/?code=c%22&state=s", "").await;
    assert_eq!(page.status(), 200);
    let text = page.text().await.unwrap();
    assert!(text.contains(r#"<meta http-equiv="refresh" content="0; url=?code=c%22&amp;state=s&amp;">"#), "{text}");
    // The second request is one of a page of this server.
    for query in ["?code=c&state=s&", "?code=c", "?state=s", ""] {
        let page = open(&format!("/dev-ui/{query}"), "").await;
        assert_eq!(page.status(), 401, "{query}");
        assert!(page.text().await.unwrap().contains("API key"));
    }
    let cookie = login_cookie(&host, OPERATOR).await;
    assert_eq!(open("/dev-ui/?code=c&state=s&", &cookie).await.status(), 200);
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_uses_the_login_of_a_browser_only_if_it_may_send_credentials() {
    let origin = "http://localhost:4200";
    for (allow_credentials, status) in [(false, 401), (true, 200)] {
        let cors = CorsConfig { origins: vec![origin.into()], allow_credentials, ..CorsConfig::default() };
        let host = Host::with(ServerConfig { auth: Some(keys()), cors: vec![cors], ..ServerConfig::default() }).await;
        let cookie = login_cookie(&host, OPERATOR).await;
        // Browsers send cookies to all ports of a host.
        let list = host.request(Method::GET, "/list-apps").header("origin", origin).header("cookie", &cookie);
        assert_eq!(list.send().await.unwrap().status(), status);
    }
    let cors = CorsConfig { origins: vec!["*".into()], ..CorsConfig::default() };
    let host = Host::with(ServerConfig { auth: Some(keys()), cors: vec![cors], ..ServerConfig::default() }).await;
    let cookie = login_cookie(&host, OPERATOR).await;
    let own = format!("http://{}", host.address);
    for (origin, status) in [(&*own, 200), ("https://app.example", 401)] {
        let list = host.request(Method::GET, "/list-apps").header("origin", origin).header("cookie", &cookie);
        assert_eq!(list.send().await.unwrap().status(), status, "{origin}");
    }
}

#[tokio::test]
async fn without_authentication_there_is_no_login() {
    let host = Host::start().await;
    problem(host.post("/login", &json!({})).await, 404, "ROUTE_NOT_FOUND").await;
    problem(host.post("/logout", &json!({})).await, 404, "ROUTE_NOT_FOUND").await;
}

#[tokio::test]
async fn pages_of_allowed_origins_send_credentials_and_read_why_they_are_refused() {
    let origin = "https://app.example";
    let cors = CorsConfig { origins: vec![origin.into()], ..CorsConfig::default() };
    let host = Host::with(ServerConfig { auth: Some(keys()), cors: vec![cors], ..ServerConfig::default() }).await;
    let preflight = host.request(Method::OPTIONS, "/list-apps").header("origin", origin);
    let preflight = preflight.header("access-control-request-method", "GET");
    let preflight = preflight.header("access-control-request-headers", "authorization").send().await.unwrap();
    assert_eq!(preflight.status(), 204, "browsers send preflight requests without credentials");
    let refused = host.request(Method::GET, "/list-apps").header("origin", origin).send().await.unwrap();
    assert_eq!(refused.headers()["access-control-allow-origin"], origin);
    problem(refused, 401, "UNAUTHENTICATED").await;
    let list = request(&host, USER, Method::GET, "/list-apps").header("origin", origin).send().await.unwrap();
    assert_eq!(success(list).await, json!(["says"]));
}
