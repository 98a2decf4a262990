//! Egress of components: requests of a real component to real servers.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::ToolError;
use hatchery_wasm::{Catalog, ComponentSettings, Grants, Limits};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{TestCatalog, call, call_in, context};
use crate::web::Web;

/// Returns a catalog with the `browser` component.
async fn browser(grants: Value, limits: Limits) -> Arc<Catalog> {
    test_catalog(grants, limits).catalog().await
}

fn test_catalog(grants: Value, limits: Limits) -> TestCatalog {
    let grants: Arc<Grants> = Arc::new(serde_json::from_value(grants).unwrap());
    TestCatalog::new()
        .with("browser")
        .with_settings("browser", ComponentSettings { limits, grants, ..ComponentSettings::default() })
}

/// Returns both grants for a server on this machine.
fn both(web: &Web) -> Value {
    let host = web.host();
    json!({ "network": [format!("http://{host}")], "private_network": [host] })
}

async fn fetch(catalog: &Arc<Catalog>, url: String) -> Value {
    call(catalog, "fetch", json!({ "url": url })).await.unwrap()
}

/// Returns the error of a fetch, which must have this code.
fn error(answer: &Value, code: &str) -> String {
    assert_eq!(answer["code"], code, "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_granted_host_answers() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits::default()).await;
    let expected =
        json!({ "method": "POST", "url": web.url("/echo?q=1"), "headers": [["X-One", "1"]], "body": 100_000 });
    let answer = call(&catalog, "fetch", expected).await.unwrap();
    assert_eq!(answer["status"], 200, "{answer}");
    let seen: Value = serde_json::from_str(answer["text"].as_str().unwrap()).unwrap();
    assert_eq!((&seen["method"], &seen["query"], &seen["bytes"]), (&json!("POST"), &json!("q=1"), &json!(100_000)));
    assert_eq!(seen["headers"]["x-one"], "1");
    assert_eq!(seen["headers"]["host"], web.host());
    assert!(seen["headers"]["user-agent"].as_str().unwrap().starts_with("hatchery/"), "{seen}");
}

#[tokio::test]
async fn a_host_that_is_not_granted_is_denied_with_the_lines_that_would_allow_it() {
    let web = Web::start().await;
    let catalog = browser(json!({ "network": ["other.example.com"] }), Limits::default()).await;
    let (denial, lines) = denied(&catalog, "https://api.example.com:8443/x".into()).await;
    assert_eq!(denial, "component `browser` may not send requests to `https://api.example.com:8443`");
    assert_eq!(lines, "components:\n  browser:\n    grants:\n      network: [\"api.example.com:8443\"]");
    let host = web.host();
    let (denial, lines) = denied(&catalog, web.url("/echo")).await;
    assert_eq!(denial, format!("component `browser` may not send requests to `http://{host}`"));
    assert_eq!(
        lines,
        format!(
            "components:\n  browser:\n    grants:\n      network: [\"http://{host}\"]\n      private_network: [\"{host}\"]"
        ),
        "where the name says that both keys are needed, both are shown"
    );
    assert_eq!(web.connections(), 0);
}

/// Returns the error of a fetch that is denied, and the lines in the log that would allow it.
async fn denied(catalog: &Arc<Catalog>, url: String) -> (String, String) {
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let denial = error(&fetch(catalog, url).await, "DENIED");
    drop(guard);
    let logged = log.lines("hatchery_wasm::policy::denial");
    let [line] = logged.as_slice() else { panic!("{logged:?}") };
    let lines = line.strip_prefix(&format!("{denial}; to allow it, add to hatchery.yaml:\n")).expect(line);
    (denial, lines.to_owned())
}

#[tokio::test]
async fn the_lines_of_a_denial_allow_the_request() {
    let web = Web::start().await;
    let catalog = browser(json!({}), Limits::default()).await;
    let (_, lines) = denied(&catalog, web.url("/echo")).await;
    let config: Value = serde_yaml::from_str(&lines).unwrap();
    let catalog = browser(config["components"]["browser"]["grants"].clone(), Limits::default()).await;
    assert_eq!(fetch(&catalog, web.url("/echo")).await["status"], 200);
}

#[tokio::test]
async fn plain_text_and_other_ports_are_denied() {
    let web = Web::start().await;
    let port = web.port();
    let grants = json!({
        "network": [format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{}", port ^ 1)], "private_network": ["127.0.0.1"],
    });
    let (_, lines) = denied(&browser(grants, Limits::default()).await, web.url("/echo")).await;
    assert!(lines.ends_with(&format!("grants:\n      network: [\"http://127.0.0.1:{port}\"]")), "{lines}");
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_name_that_resolves_to_this_machine_needs_private_network() {
    let web = Web::start().await;
    let host = format!("localhost:{}", web.port());
    let url = format!("http://{host}/echo");
    let without = browser(json!({ "network": [format!("http://{host}")] }), Limits::default()).await;
    let (denial, lines) = denied(&without, url.clone()).await;
    assert!(denial.starts_with(&format!("component `browser` may not connect to `{host}`, at ")), "{denial}");
    assert!(denial.ends_with(", a loopback address"), "{denial}");
    assert!(lines.ends_with(&format!("\n      private_network: [\"{host}\"]")), "{lines}");
    assert_eq!(web.connections(), 0);
    for key in [host.as_str(), "localhost:*", "127.0.0.0/8"] {
        let grants = json!({ "network": [format!("http://{host}")], "private_network": [key] });
        let allowed = browser(grants, Limits::default()).await;
        assert_eq!(fetch(&allowed, url.clone()).await["status"], 200, "{key}");
    }
}

#[tokio::test]
async fn a_private_address_needs_private_network() {
    let web = Web::start().await;
    let (host, port) = (web.host(), web.port());
    let any = browser(json!({ "network": ["http://*:*"] }), Limits::default()).await;
    let (denial, lines) = denied(&any, web.url("/echo")).await;
    assert_eq!(denial, format!("component `browser` may not connect to `{host}`, a loopback address"));
    assert_eq!(lines, format!("components:\n  browser:\n    grants:\n      private_network: [\"{host}\"]"));
    let cases = [
        (format!("[::ffff:127.0.0.1]:{port}"), "a loopback address"),
        ("169.254.169.254".into(), "a cloud's metadata address"),
        ("[fd00:ec2::254]".into(), "a cloud's metadata address"),
        ("10.0.0.1:8080".into(), "a private address"),
        ("0.0.0.0".into(), "the unspecified address"),
        // Other spellings of 127.0.0.1 that the system's resolver accepts.
        (format!("127.1:{port}"), "a loopback address"),
        (format!("2130706433:{port}"), "a loopback address"),
    ];
    for (host, what) in cases {
        let denial = error(&fetch(&any, format!("http://{host}/")).await, "DENIED");
        assert!(denial.contains("may not connect to") && denial.contains(what), "{denial}");
    }
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_redirect_is_followed_to_granted_hosts_only() {
    let (web, other) = (Web::start().await, Web::start().await);
    let catalog = browser(both(&web), Limits::default()).await;
    let answer = fetch(&catalog, web.url("/redirect?to=/redirect%3Fto%3D/echo")).await;
    assert_eq!((&answer["status"], &answer["url"]), (&json!(200), &json!(web.url("/echo"))), "{answer}");
    let denial = error(&fetch(&catalog, web.url(&format!("/redirect?to={}", other.url("/echo")))).await, "DENIED");
    assert!(denial.contains(&format!("may not send requests to `http://{}`", other.host())), "{denial}");
    assert_eq!(other.connections(), 0);
    let endless = error(&fetch(&catalog, web.url("/redirect?to=/redirect")).await, "HTTP_FAILED");
    assert!(endless.ends_with("was redirected more than 5 times"), "{endless}");
}

#[tokio::test]
async fn the_host_adds_a_secret_and_never_shows_it_to_the_guest() {
    let (web, other) = (Web::start().await, Web::start().await);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "s3cret\n").unwrap();
    let catalog = browser(
        json!({
            "network": [format!("http://{}", web.host()), format!("http://{}", other.host())],
            "private_network": ["127.0.0.1"],
            "secrets": [{
                "name": "key", "file": file.path(), "host": format!("http://{}", web.host()),
                "header": "Authorization", "format": "Bearer {secret}",
            }],
        }),
        Limits::default(),
    )
    .await;
    // `/quiet` does not echo the request.
    let quiet = fetch(&catalog, web.url("/quiet")).await;
    assert_eq!(web.seen("authorization"), ["Bearer s3cret"]);
    assert!(!quiet.to_string().contains("s3cret"), "{quiet}");
    let own =
        json!({ "url": web.url("/quiet"), "headers": [["authorization", "mine"], ["Authorization", "mine too"]] });
    assert_eq!(call(&catalog, "fetch", own).await.unwrap()["status"], 204);
    assert_eq!(web.seen("authorization"), ["Bearer s3cret"; 2], "the host's value takes the place of the guest's");
    fetch(&catalog, other.url("/quiet")).await;
    fetch(&catalog, web.url(&format!("/redirect?to={}", other.url("/quiet")))).await;
    assert!(other.seen("authorization").is_empty(), "no other host gets it");
    let traced = call(&catalog, "fetch", json!({ "method": "TRACE", "url": web.url("/echo") })).await.unwrap();
    assert_eq!(error(&traced, "HTTP_FAILED"), "the method cannot be used");
}

#[tokio::test]
async fn a_secret_grants_no_network_access() {
    let web = Web::start().await;
    let secret = json!({ "name": "key", "from": "PATH", "host": format!("http://{}", web.host()), "header": "X-Key" });
    let catalog = browser(json!({ "private_network": [web.host()], "secrets": [secret] }), Limits::default()).await;
    error(&fetch(&catalog, web.url("/quiet")).await, "DENIED");
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_component_whose_secret_is_missing_is_not_loaded() {
    let secret = json!({ "name": "weather", "from": "HATCHERY_NO_SUCH_KEY", "host": "a.com", "header": "X-Key" });
    let test_catalog = test_catalog(json!({ "secrets": [secret] }), Limits::default());
    let catalog = test_catalog.open().await.current();
    assert_eq!(
        test_catalog.reason(&catalog, "browser.wasm"),
        "component `browser` cannot be given its grants: the secret `weather` is missing: set the environment variable \
         `HATCHERY_NO_SUCH_KEY` for the host"
    );
}

#[tokio::test]
async fn later_calls_reuse_connections() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits::default()).await;
    for _ in 0..5 {
        assert_eq!(fetch(&catalog, web.url("/echo")).await["status"], 200);
    }
    assert_eq!((web.requests(), web.connections()), (5, 1));
}

#[tokio::test]
async fn requests_that_are_awaited_together_run_concurrently() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits::default()).await;
    // `/meet` responds once three requests have arrived.
    let request = json!({ "url": web.url("/meet") });
    let answers = call(&catalog, "fetch_all", json!({ "requests": [request, request, request] })).await.unwrap();
    assert_eq!(answers.as_array().unwrap().iter().filter(|answer| answer["status"] == 200).count(), 3, "{answers}");
}

#[tokio::test]
async fn denied_requests_count_as_well() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits { outbound_calls: 2, ..Limits::default() }).await;
    let (good, denied) = (json!({ "url": web.url("/echo") }), json!({ "url": "https://example.com" }));
    let answers = call(&catalog, "fetch_all", json!({ "requests": [denied, good, good] })).await.unwrap();
    assert_eq!((&answers[0]["code"], &answers[1]["status"]), (&json!("DENIED"), &json!(200)), "{answers}");
    assert_eq!(error(&answers[2], "LIMIT_REACHED"), "it exceeded its limit of 2 HTTP requests");
    assert_eq!(fetch(&catalog, web.url("/echo")).await["status"], 200, "each call has its own count");
}

#[tokio::test]
async fn a_credential_counts_as_a_request() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits { outbound_calls: 0, ..Limits::default() }).await;
    let error = call(&catalog, "list_orders", json!({ "url": web.url("") })).await.unwrap_err().to_string();
    assert_eq!(error, "it exceeded its limit of 0 HTTP requests");
}

#[tokio::test]
async fn bytes_of_requests_and_responses_count_together() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits { outbound_bytes: 100_000, ..Limits::default() }).await;
    let limit = "it exceeded its limit of 100000 B in HTTP requests and responses";
    let upload = json!({ "method": "POST", "url": web.url("/quiet"), "body": 200_000 });
    assert_eq!(error(&call(&catalog, "fetch", upload).await.unwrap(), "LIMIT_REACHED"), limit);
    let download = fetch(&catalog, web.url("/bytes?count=200000")).await;
    assert_eq!(error(&download, "LIMIT_REACHED"), limit);
    // Each one alone would fit.
    let half = json!({ "url": web.url("/bytes?count=60000") });
    let answers = call(&catalog, "fetch_all", json!({ "requests": [half, half] })).await.unwrap();
    let over = answers.as_array().unwrap().iter().filter(|answer| answer["error"] == limit).count();
    assert!(over >= 1, "{answers}");
}

#[tokio::test]
async fn an_endless_response_is_cut_at_the_limit() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits { response_body: 300_000, ..Limits::default() }).await;
    let answer = call(&catalog, "measure", json!({ "url": web.url("/endless") })).await.unwrap();
    assert_eq!(error(&answer, "LIMIT_REACHED"), "it exceeded its limit of 300000 B in the body of one HTTP response");
    assert!(answer["bytes"].as_u64().unwrap() <= 300_000, "{answer}");
    web.gone().await;
}

#[tokio::test]
async fn the_number_of_open_requests_is_limited() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits { open_streams: 2, ..Limits::default() }).await;
    let endless = json!({ "url": web.url("/endless") });
    let answers = call(&catalog, "hold_all", json!({ "requests": [endless, endless, endless] })).await.unwrap();
    assert_eq!((&answers[0], &answers[1]), (&json!(200), &json!(200)), "{answers}");
    assert_eq!(error(&answers[2], "LIMIT_REACHED"), "it exceeded its limit of 2 HTTP requests at one time");
    for _ in 0..2 {
        web.gone().await;
    }
}

#[tokio::test]
async fn a_request_to_a_silent_server_times_out() {
    let web = Web::start().await;
    let short = Duration::from_millis(200);
    let catalog = browser(both(&web), Limits { first_byte_timeout: short, ..Limits::default() }).await;
    assert_eq!(
        error(&fetch(&catalog, web.url("/never")).await, "LIMIT_REACHED"),
        "it exceeded its limit of 200ms until the first byte of an HTTP response"
    );
    web.gone().await;
    let catalog = browser(both(&web), Limits { between_bytes_timeout: short, ..Limits::default() }).await;
    assert_eq!(
        error(&fetch(&catalog, web.url("/stall")).await, "LIMIT_REACHED"),
        "it exceeded its limit of 200ms between two pieces of an HTTP response"
    );
    web.gone().await;
}

#[tokio::test]
async fn a_stalled_tls_handshake_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = silent.local_addr().unwrap();
    let grants = json!({ "network": [host.to_string()], "private_network": ["127.0.0.1"] });
    let limits = Limits { connect_timeout: Duration::from_millis(200), ..Limits::default() };
    assert_eq!(
        error(&fetch(&browser(grants, limits).await, format!("https://{host}/")).await, "LIMIT_REACHED"),
        "it exceeded its limit of 200ms to connect to a host"
    );
}

#[tokio::test]
async fn a_component_can_set_shorter_timeouts_than_the_operator() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits::default()).await;
    let expected = json!({ "url": web.url("/never"), "timeout_ms": 100 });
    let answer = call(&catalog, "fetch", expected).await.unwrap();
    assert_eq!(error(&answer, "HTTP_FAILED"), "the host does not answer in time");
}

#[tokio::test]
async fn an_unreachable_host_is_an_ordinary_error() {
    let catalog = browser(
        json!({ "network": ["http://127.0.0.1:*", "no-such-host.invalid"], "private_network": ["127.0.0.1"] }),
        Limits::default(),
    )
    .await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let answer = fetch(&catalog, format!("http://127.0.0.1:{free}/")).await;
    assert_eq!(error(&answer, "HTTP_FAILED"), "the host refuses connections at this port");
    let answer = fetch(&catalog, "https://no-such-host.invalid/".into()).await;
    let unknown = error(&answer, "HTTP_FAILED");
    assert!(unknown.starts_with("the name of the host has no address: "), "{unknown}");
    let answer = fetch(&catalog, "http://user:word@127.0.0.1:1/".into()).await;
    assert_eq!(error(&answer, "HTTP_FAILED"), "the URL cannot be used");
}

#[tokio::test]
async fn a_request_ends_with_its_call() {
    let web = Web::start().await;
    let catalog = browser(both(&web), Limits::default()).await;
    let cx = context(&catalog);
    let cancel = cx.invocation.cancel.clone();
    let expected = json!({ "url": web.url("/never") });
    let (ended, ()) = tokio::join!(call_in(&cx, &catalog, "fetch", expected), async {
        web.arrived().await;
        cancel.cancel();
    });
    assert!(matches!(ended, Err(ToolError::Fatal { .. })), "{ended:?}");
    web.gone().await;

    let catalog = browser(both(&web), Limits { wall: Duration::from_millis(300), ..Limits::default() }).await;
    let ended = call(&catalog, "fetch", json!({ "url": web.url("/never") })).await;
    assert!(
        matches!(&ended, Err(ToolError::Recoverable(message)) if message.ends_with("300ms of wall time")),
        "{ended:?}"
    );
    web.gone().await;
}

#[tokio::test]
async fn sockets_are_closed_regardless_of_grants() {
    let web = Web::start().await;
    let host = web.host();
    let grants =
        json!({ "network": ["*", "http://*:*", "*:*"], "private_network": ["0.0.0.0/0", "::/0", "localhost:*"] });
    let catalog = browser(grants, Limits::default()).await;
    let tried = call(&catalog, "sockets", json!({ "address": host })).await.unwrap();
    for (socket, became) in tried.as_object().unwrap() {
        assert_ne!(became, "it works", "{socket}");
    }
    assert_eq!(tried.as_object().unwrap().len(), 4);
    assert_eq!(web.connections(), 0);
}

#[tokio::test]
async fn a_component_has_no_network_while_it_describes_itself() {
    let catalog = browser(json!({ "network": ["example.com"] }), Limits::default()).await;
    let description = &catalog.app("curious").unwrap().root().description;
    assert_eq!(description, "there is no network access in `describe`");
}

/// Calls a tool of the browser with only these limits and grants.
async fn call_browser(grants: Value, limits: Limits, tool: &str, count: usize, bytes: usize) -> Result<Value, String> {
    let catalog = browser(grants, limits).await;
    let hoarded = call(&catalog, tool, json!({ "count": count, "bytes": bytes })).await;
    let next = call(&catalog, tool, json!({ "count": 1, "bytes": 10 })).await;
    assert!(next.is_ok(), "the next call works: {next:?}");
    hoarded.map_err(|error| error.to_string())
}

fn exceeds(tool: &str, what: &str) -> Result<Value, String> {
    Err(format!("tool `{tool}` of component `browser` failed: it exceeded its limit of {what}"))
}

#[tokio::test]
async fn bodies_need_a_network_grant() {
    let held_bytes = call_browser(json!({}), Limits::default(), "hoard_bodies", 200, 64 << 10).await;
    assert_eq!(held_bytes, Ok(json!(0)));
    let held_bytes =
        call_browser(json!({ "network": ["*"] }), Limits::default(), "hoard_responses", 200, 64 << 10).await;
    assert_eq!(held_bytes, Ok(json!(0)), "components answer nobody");
}

#[tokio::test]
async fn unsent_bodies_count_towards_the_memory_of_the_call() {
    let granted = || json!({ "network": ["example.com"] });
    let held_bytes = call_browser(granted(), Limits::default(), "hoard_bodies", 100, 64 << 10).await;
    assert_eq!(held_bytes, Ok(json!(100 * (64 << 10))));
    let limits = Limits { memory: 8 << 20, ..Limits::default() };
    assert_eq!(
        call_browser(granted(), limits, "hoard_bodies", 200, 64 << 10).await,
        exceeds("hoard_bodies", "8 MiB of memory")
    );
    let more_than_a_piece = call_browser(granted(), Limits::default(), "hoard_bodies", 1, (64 << 10) + 1).await;
    assert!(more_than_a_piece.unwrap_err().contains("it crashed: "));
}

#[tokio::test]
async fn headers_count_towards_the_memory_of_the_call() {
    let limits = Limits { memory: 8 << 20, ..Limits::default() };
    assert_eq!(
        call_browser(json!({}), limits.clone(), "hoard_fields", 900, 15_000).await,
        exceeds("hoard_fields", "8 MiB of memory")
    );
    assert_eq!(call_browser(json!({}), limits, "hoard_fields", 100, 15_000).await, Ok(json!(100)));
    assert_eq!(
        call_browser(json!({}), Limits::default(), "hoard_fields", 1, 20_000).await,
        exceeds("hoard_fields", "16 KiB in the headers of one HTTP message; let it send fewer or shorter headers")
    );
}

#[tokio::test]
async fn the_number_of_open_resources_is_limited() {
    assert_eq!(
        call_browser(json!({}), Limits::default(), "hoard_fields", 2000, 10).await,
        exceeds("hoard_fields", "1000 open handles")
    );
    let more = Limits { handles: 3000, ..Limits::default() };
    assert_eq!(call_browser(json!({}), more, "hoard_fields", 2000, 10).await, Ok(json!(2000)));
}

#[tokio::test]
async fn the_sizes_of_request_texts_and_random_numbers_are_limited() {
    let texts = |accepted: bool| json!({ "method": accepted, "path": accepted, "host": accepted });
    assert_eq!(call_browser(json!({}), Limits::default(), "long_texts", 0, 50).await, Ok(texts(true)));
    assert_eq!(call_browser(json!({}), Limits::default(), "long_texts", 0, 17_000).await, Ok(texts(false)));
    assert_eq!(call_browser(json!({}), Limits::default(), "chance", 0, 1 << 20).await, Ok(json!(1 << 20)));
    let too_many = call_browser(json!({}), Limits::default(), "chance", 0, (1 << 20) + 1).await;
    assert!(too_many.unwrap_err().contains("it crashed: "));
}

#[tokio::test]
async fn the_description_of_a_component_does_not_depend_on_its_grants() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("note.txt"), "a note").unwrap();
    let description = async |grants: Value| {
        let catalog = browser(grants, Limits::default()).await;
        catalog.app("nosy").unwrap().root().description.clone()
    };
    let bare = description(json!({})).await;
    assert!(bare.starts_with("0 variables, 0 files, 1767225600 seconds since 1970, chance "), "{bare}");
    let grants = json!({
        "files": [{ "host": root.path(), "guest": "/data", "access": "write" }],
        "environment": { "LANG": "C" },
        "clock": "2020-01-01T00:00:00Z",
        "random": { "seed": 7 },
        "network": ["*"],
    });
    assert_eq!(description(grants).await, bare);
    assert_eq!(description(json!({})).await, bare);
}
