//! HTTP requests and timers, in each language under the same policy.

use std::sync::Arc;

use hatchery_wasm::{Catalog, ComponentSettings, Limits};
use serde_json::{Value, json};

use super::{Language, is_there};
use crate::imports::CapturedLog;
use crate::support::{TestCatalog, call, settings_with_grants};
use crate::web::Web;

/// The languages whose functions can be asynchronous.
const ASYNCHRONOUS: [Language; 3] = ["polyglot_rust", "polyglot_js", "polyglot_python"];

/// Languages whose event loop belongs to the SDK.
const SCRIPTING: [Language; 2] = ["polyglot_js", "polyglot_python"];

async fn catalog(component: Language, mut grants: Value, limits: Limits) -> Arc<Catalog> {
    // The agents of the components are described with it.
    grants["models"] = json!(["any"]);
    let settings = ComponentSettings { limits, ..settings_with_grants(grants) };
    TestCatalog::new().with(component).with_settings(component, settings).catalog().await
}

/// Returns a catalog with the grants for a server on this machine.
async fn granted(component: Language, web: &Web) -> Arc<Catalog> {
    catalog(component, grants_for(web), Limits::default()).await
}

fn grants_for(web: &Web) -> Value {
    json!({ "network": [format!("http://{}", web.host())], "private_network": [web.host()] })
}

async fn visit(catalog: &Arc<Catalog>, args: Value) -> Value {
    call(catalog, "visit", args).await.unwrap()
}

pub async fn a_request_to_a_granted_host_is_answered(component: Language) {
    let web = Web::start().await;
    let catalog = granted(component, &web).await;
    let url = web.url("/echo?q=%C3%A9");
    let args = json!({ "url": url, "method": "POST", "header": "one", "body": "naïve 日本" });
    let answer = visit(&catalog, args).await;
    assert_eq!(
        (&answer["status"], &answer["url"], &answer["type"]),
        (&json!(200), &json!(url), &json!("application/json"))
    );
    let seen: Value = serde_json::from_str(answer["text"].as_str().unwrap()).unwrap();
    assert_eq!((&seen["method"], &seen["query"], &seen["bytes"]), (&json!("POST"), &json!("q=%C3%A9"), &json!(13)));
    assert_eq!((&seen["headers"]["x-one"], &seen["headers"]["host"]), (&json!("one"), &json!(web.host())));
    assert!(seen["headers"]["user-agent"].as_str().unwrap().starts_with("hatchery/"), "{seen}");
}

pub async fn a_request_to_another_host_is_denied_and_the_log_has_the_lines_to_paste(component: Language) {
    let web = Web::start().await;
    let host = web.host();
    let none = catalog(component, json!({}), Limits::default()).await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let denial = visit(&none, json!({ "url": web.url("/echo"), "method": "POST", "body": "x" })).await;
    drop(guard);
    let message = format!("component `{component}` may not send requests to `http://{host}`");
    assert_eq!(denial, json!({ "code": "DENIED", "error": message }));
    let lines = format!(
        "components:\n  {component}:\n    grants:\n      network: [\"http://{host}\"]\n      private_network: [\"{host}\"]"
    );
    assert_eq!(
        log.lines("hatchery_wasm::policy::denial"),
        [format!("{message}; to allow it, add to hatchery.yaml:\n{lines}")]
    );
    assert_eq!(web.connections(), 0);
}

pub async fn requests_and_responses_have_limits(component: Language) {
    let web = Web::start().await;
    let limits = Limits { response_body: 1000, ..Limits::default() };
    let small = catalog(component, grants_for(&web), limits).await;
    let answer = visit(&small, json!({ "url": web.url("/bytes?count=1000") })).await;
    assert_eq!(answer["text"].as_str().map(str::len), Some(1000));
    let answer = visit(&small, json!({ "url": web.url("/bytes?count=1001") })).await;
    let message = "it exceeded its limit of 1000 B in the body of one HTTP response";
    assert_eq!(answer, json!({ "code": "LIMIT_REACHED", "error": message }));
    let none = catalog(component, grants_for(&web), Limits { outbound_calls: 0, ..Limits::default() }).await;
    let answer = visit(&none, json!({ "url": web.url("/echo") })).await;
    let message = "it exceeded its limit of 0 HTTP requests";
    assert_eq!(answer, json!({ "code": "LIMIT_REACHED", "error": message }));
    let header = json!({ "url": web.url("/echo"), "header": "x".repeat(20_000) });
    assert_eq!(web.requests(), 2);
    let error = call(&granted(component, &web).await, "visit", header).await;
    assert!(format!("{error:?}").contains("16 KiB in the headers of one HTTP message"), "{error:?}");
}

pub async fn the_host_adds_the_secret_that_code_never_sees(component: Language) {
    let web = Web::start().await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let mut grants = grants_for(&web);
    grants["secrets"] = json!([{
        "name": "key", "file": file.path(), "host": format!("http://{}", web.host()), "header": "X-One",
        "format": "Bearer {secret}",
    }]);
    let catalog = catalog(component, grants, Limits::default()).await;
    let answer = visit(&catalog, json!({ "url": web.url("/quiet"), "header": "mine" })).await;
    assert_eq!((&answer["status"], &answer["text"]), (&json!(204), &json!("")), "{answer}");
    assert_eq!(web.seen("x-one"), ["Bearer s3cret"]);
}

pub async fn a_status_is_not_an_error_and_redirects_are_followed(component: Language) {
    let web = Web::start().await;
    let catalog = granted(component, &web).await;
    let missing = visit(&catalog, json!({ "url": web.url("/nowhere") })).await;
    assert_eq!((&missing["status"], missing.get("code")), (&json!(404), None), "{missing}");
    let url = web.url("/redirect?to=/echo");
    let answer = visit(&catalog, json!({ "url": url, "header": "kept" })).await;
    if component == "polyglot_plain" {
        // The contract does not follow redirects, the SDKs do.
        assert_eq!((&answer["status"], &answer["url"]), (&json!(302), &json!(url)));
        return;
    }
    assert_eq!((&answer["status"], &answer["url"]), (&json!(200), &json!(web.url("/echo"))), "{answer}");
    assert_eq!(web.seen("x-one"), ["kept", "kept"]);
    let other = Web::start().await;
    let denied = visit(&catalog, json!({ "url": web.url(&format!("/redirect?to={}", other.url("/echo"))) })).await;
    assert_eq!((&denied["code"], other.connections()), (&json!("DENIED"), 0), "{denied}");
}

pub async fn a_request_that_cannot_be_sent_fails(component: Language) {
    let web = Web::start().await;
    let catalog = granted(component, &web).await;
    let host = web.host();
    drop(web);
    for (args, reason) in [
        (json!({ "url": format!("http://{host}/"), "method": "TRACE" }), "method"),
        (json!({ "url": "nowhere" }), "URL"),
    ] {
        let error = visit(&catalog, args).await;
        assert!(error["error"].as_str().is_some_and(|error| error.contains(reason)), "{error}");
    }
}

#[tokio::test]
async fn requests_that_are_awaited_together_run_at_the_same_time() {
    for component in ASYNCHRONOUS.into_iter().filter(|component| is_there(component)) {
        let web = Web::start().await;
        // `/meet` responds once three requests have arrived.
        let urls = [web.url("/meet"), web.url("/meet"), web.url("/meet")];
        let statuses = call(&granted(component, &web).await, "visit_all", json!({ "urls": urls })).await.unwrap();
        assert_eq!(statuses, json!([200, 200, 200]), "{component}");
    }
}

#[tokio::test]
async fn timers_fire_in_the_order_of_their_times() {
    for component in SCRIPTING.into_iter().filter(|component| is_there(component)) {
        let fired = call(&catalog(component, json!({}), Limits::default()).await, "wait_in_turn", json!({})).await;
        assert_eq!(fired.unwrap(), json!(["at once", "early", "late"]), "{component}");
    }
}

#[tokio::test]
async fn a_request_is_given_up_after_a_time_and_others_are_sent() {
    for component in SCRIPTING.into_iter().filter(|component| is_there(component)) {
        let web = Web::start().await;
        let args = json!({ "endless": web.url("/never"), "other": web.url("/echo") });
        let outcome = call(&granted(component, &web).await, "give_up", args).await.unwrap();
        assert_eq!(outcome, json!(["given up", 200]), "{component}");
    }
}

#[tokio::test]
async fn urllib_opens_pages_through_the_host() {
    if !is_there("polyglot_python") {
        return;
    }
    let web = Web::start().await;
    let catalog = granted("polyglot_python", &web).await;
    let open = async |url: String| call(&catalog, "open_page", json!({ "url": url })).await.unwrap();
    let page = open(web.url("/echo")).await;
    let seen: Value = serde_json::from_str(page[1].as_str().unwrap()).unwrap();
    assert_eq!((&page[0], &seen["method"], &seen["bytes"]), (&json!(200), &json!("POST"), &json!(5)));
    assert_eq!(open(web.url("/nowhere")).await, json!([404, ""]));
    let denied = open("https://example.com/".into()).await;
    assert_eq!(denied[0], "DENIED");
    assert!(denied[1].as_str().unwrap().contains("may not send requests to `https://example.com`"), "{denied}");
}

#[tokio::test]
async fn javascript_has_what_browsers_and_node_have() {
    if !is_there("polyglot_js") {
        return;
    }
    let catalog = catalog("polyglot_js", json!({}), Limits::default()).await;
    let expected = json!({
        "url": "https://a.com/b?q=1", "bytes": [0xc3, 0xa9], "text": "é", "clone": [[1], 5], "base64": "ab", "id": true, "random": 8,
    });
    assert_eq!(call(&catalog, "use_globals", json!({})).await.unwrap(), expected);
}
