//! Cards: what clients may keep, and the versions that they name.

use hatchery_a2a::{ServerSettings, Version};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::support::{APP, Options, Server};

/// Reads the card with a header.
async fn card(server: &Server, header: Option<(&str, &str)>) -> (HeaderMap, u16, Value) {
    let mut request = Request::get("/");
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let request = request.body(bytes::Bytes::new()).unwrap();
    let response = server.endpoint.handle(APP, ".well-known/agent-card.json", request).await.unwrap();
    let (parts, body) = Response::into_parts(response);
    let body = body.collect().await.unwrap().to_bytes();
    (parts.headers, parts.status.as_u16(), serde_json::from_slice(&body).unwrap_or_default())
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).unwrap_or_else(|| panic!("no {name}: {headers:?}")).to_str().unwrap()
}

fn versions(versions: &[Version]) -> ServerSettings {
    ServerSettings { versions: versions.to_vec(), ..ServerSettings::default() }
}

#[tokio::test]
async fn a_client_keeps_its_card_until_the_content_changes() {
    let server = Server::new(Options::default());
    let (first, status, _) = card(&server, None).await;
    assert_eq!(status, 200);
    let (modified, etag) = (header(&first, "last-modified"), header(&first, "etag"));
    for known in [("if-modified-since", modified), ("if-none-match", etag)] {
        let (headers, status, body) = card(&server, Some(known)).await;
        assert_eq!((status, body), (304, Value::Null), "{known:?}");
        assert_eq!((header(&headers, "last-modified"), header(&headers, "etag")), (modified, etag));
    }
    for unknown in ["Thu, 01 Jan 1970 00:00:00 GMT", "yesterday"] {
        assert_eq!(card(&server, Some(("if-modified-since", unknown))).await.1, 200, "{unknown}");
    }

    // Settings that the card does not show.
    server.service.reconfigure(ServerSettings { max_runs: 7, ..ServerSettings::default() }, false);
    assert_eq!(header(&card(&server, None).await.0, "last-modified"), modified);
    assert_eq!(card(&server, Some(("host", "other.example"))).await.0["last-modified"], modified);

    let public_url = Some("https://agents.example".to_owned());
    server.service.reconfigure(ServerSettings { public_url, ..ServerSettings::default() }, false);
    let (changed, status, _) = card(&server, Some(("if-modified-since", modified))).await;
    assert_eq!(status, 200);
    assert_ne!(header(&changed, "last-modified"), modified);
}

#[tokio::test]
async fn a_proxy_keeps_only_cards_that_need_no_credentials() {
    for (has_authentication, expected) in [(false, "public, max-age=60"), (true, "private, max-age=60")] {
        let settings = ServerSettings { has_authentication, ..ServerSettings::default() };
        let server = Server::new(Options { settings, ..Options::default() });
        let (headers, ..) = card(&server, None).await;
        assert_eq!(header(&headers, "cache-control"), expected);
        let known = header(&headers, "etag");
        assert_eq!(header(&card(&server, Some(("if-none-match", known))).await.0, "cache-control"), expected);
    }
}

#[tokio::test]
async fn the_hash_decides_for_a_client_that_sends_both() {
    let server = Server::new(Options::default());
    let modified = header(&card(&server, None).await.0, "last-modified").to_owned();
    let request = Request::get("/").header("if-none-match", "\"other\"").header("if-modified-since", modified);
    let request = request.body(bytes::Bytes::new()).unwrap();
    let response = server.endpoint.handle(APP, ".well-known/agent-card.json", request).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_host_offers_the_versions_of_its_settings() {
    let new = Server::new(Options { settings: versions(&[Version::V1_0]), ..Options::default() });
    let (_, _, shown) = card(&new, None).await;
    let old_keys = ["url", "protocolVersion", "preferredTransport", "additionalInterfaces"];
    assert!(old_keys.iter().all(|key| shown.get(key).is_none()), "{shown}");
    assert_eq!(shown["supportedInterfaces"].as_array().unwrap().len(), 2);
    let message =
        json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]});
    assert_eq!(
        new.error("message/send", json!({ "message": message })).await,
        (-32603, "version 0.3 is not offered; this host speaks 1.0".into())
    );

    let old = Server::new(Options { settings: versions(&[Version::V0_3]), ..Options::default() });
    let (_, _, shown) = card(&old, None).await;
    assert_eq!(
        (&shown["protocolVersion"], shown["supportedInterfaces"].as_array().unwrap().len()),
        (&json!("0.3.0"), 1)
    );
    let refused = "version 1.0 is not offered; this host speaks 0.3";
    assert_eq!(old.error("GetTask", json!({"id": "t"})).await, (-32009, refused.into()));
    let request = Request::get("/").body(bytes::Bytes::new()).unwrap();
    let response = old.endpoint.handle(APP, "tasks/t", request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains(refused), "{body:?}");
}

#[tokio::test]
async fn a_card_shows_the_types_of_files_that_are_accepted() {
    let input_modes = vec!["application/zip".to_owned()];
    let server = Server::new(Options {
        settings: ServerSettings { input_modes, ..ServerSettings::default() },
        ..Options::default()
    });
    assert_eq!(card(&server, None).await.2["defaultInputModes"], json!(["application/zip"]));
    let file = |media_type: &str| json!([{"text": "hi"}, {"raw": "eA==", "mediaType": media_type}]);
    server.send_parts(file("application/zip"), json!({})).await;
    let params = server.params(file("image/png"), json!({}));
    assert_eq!(server.error("SendMessage", params).await, (-32005, "`image/png` is not one of application/zip".into()));
}
