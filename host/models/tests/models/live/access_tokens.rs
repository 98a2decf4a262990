//! Access tokens of live connections to Vertex AI.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;

use super::*;

#[tokio::test]
async fn an_access_token_that_is_refused_is_replaced_once() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let count = Arc::new(AtomicUsize::new(0));
    let requested = count.clone();
    let token = get(move || {
        let number = count.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Json(json!({"access_token": format!("token-{number}"), "expires_in": 3_599})))
    });
    let accept = |headers: HeaderMap, upgrade: WebSocketUpgrade| async move {
        if headers["authorization"] != "Bearer token-1" {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        upgrade.on_upgrade(|mut socket| async move {
            play(&mut socket, Step::SendBinary(json!({"setupComplete": {}}))).await.unwrap();
            while let Some(Ok(_)) = socket.recv().await {}
        })
    };
    let router = Router::new().route(METADATA_PATH, token).fallback(accept);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let google_cloud = GoogleCloud {
        project: Some("my-project".into()),
        metadata_host: Some(address.clone()),
        ..GoogleCloud::default()
    };
    let settings = Settings { google_cloud, ..Settings::default() };
    let settings = settings.with_base_url(Service::Vertex, format!("http://{address}"));
    let providers = ModelProviders::with_defaults(settings);
    for _ in 0..2 {
        let model = providers.model(VERTEX_MODEL).unwrap();
        let connection = tokio::time::timeout(TIMEOUT, model.connect(empty_request())).await.unwrap().unwrap();
        connection.close().await;
    }
    assert_eq!(requested.load(Ordering::SeqCst), 2);
}
