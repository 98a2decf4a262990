//! Access tokens that the host requests for an API.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hatchery_core::ConfigValue;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_openapi::{ClientCredentials, ClientPlacement, Credentials, KeySource, ServiceAccount};
use hatchery_test_support::{Harness, llm_on};
use serde_json::{Value, json};

use crate::support::*;

const SECRET: &str = "cl13nt-s3cret";

/// An API with one operation, and a token server at `/token` that counts its tokens.
async fn shop(lifetime: Value, api: impl Fn(&Value) -> Response + Clone + Send + Sync + 'static) -> (Server, Api) {
    let count = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |request| match request["path"].as_str() {
        Some("/token") => {
            let number = count.fetch_add(1, Ordering::SeqCst);
            axum::Json(json!({"access_token": format!("token-{number}"), "expires_in": lifetime})).into_response()
        }
        _ => api(&request),
    })
    .await;
    let mut api = server.api(&operation(json!({})));
    api.config.credentials = client(&server, ClientPlacement::Header);
    (server, api)
}

fn client(server: &Server, placement: ClientPlacement) -> Credentials {
    Credentials::OAuth2(ClientCredentials {
        token_url: server.url("/token"),
        client_id: ConfigValue::Text("me:1".into()),
        client_secret: ConfigValue::Text(SECRET.into()),
        scopes: vec!["read".into(), "write".into()],
        audience: Some("shop".into()),
        placement,
    })
}

fn ok(_: &Value) -> Response {
    "ok".into_response()
}

/// Calls the operation several times, one call after the other.
async fn call(api: &Api, times: usize) -> Vec<Value> {
    let calls = Calls::new(api.toolset(), &vec![("op", json!({})); times]).await;
    let mut responses = Vec::new();
    for _ in 0..times {
        responses.push(calls.response().await);
    }
    responses
}

/// Returns the paths and the header `Authorization` of the requests.
fn sent(server: &Server) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let requests = server.requests();
    requests.iter().map(|request| (text(&request["path"]), text(&request["headers"]["authorization"]))).collect()
}

#[tokio::test]
async fn a_token_is_requested_once_and_kept() {
    let (server, api) = shop(json!(3_600), ok).await;
    call(&api, 2).await;
    // `me%3A1:cl13nt-s3cret`
    let basic = "Basic bWUlM0ExOmNsMTNudC1zM2NyZXQ=".to_owned();
    let bearer = ("/v1/x".to_owned(), "Bearer token-0".to_owned());
    assert_eq!(sent(&server), [("/token".to_owned(), basic), bearer.clone(), bearer]);
    let form = server.requests()[0]["body"].clone();
    assert_eq!(form, "grant_type=client_credentials&scope=read+write&audience=shop");
}

#[tokio::test]
async fn a_client_can_be_in_the_form() {
    let (server, mut api) = shop(json!(3_600), ok).await;
    api.config.credentials = client(&server, ClientPlacement::Body);
    call(&api, 1).await;
    let request = server.requests()[0].clone();
    assert_eq!(request["headers"]["authorization"], Value::Null);
    let form =
        format!("grant_type=client_credentials&scope=read+write&audience=shop&client_id=me%3A1&client_secret={SECRET}");
    assert_eq!(request["body"], form);
}

#[tokio::test]
async fn a_client_in_the_header_is_encoded_as_in_a_form() {
    let (server, mut api) = shop(json!(3_600), ok).await;
    let Credentials::OAuth2(client) = client(&server, ClientPlacement::Header) else { unreachable!() };
    let client_id = ConfigValue::Text("a b*~".into());
    api.config.credentials = Credentials::OAuth2(ClientCredentials { client_id, ..client });
    call(&api, 1).await;
    // `a+b*%7E:cl13nt-s3cret`
    assert_eq!(sent(&server)[0].1, "Basic YStiKiU3RTpjbDEzbnQtczNjcmV0");
}

#[tokio::test]
async fn a_token_is_kept_for_the_most_part_of_its_lifetime() {
    for (lifetime, expected) in [
        (json!(0), ["Bearer token-0", "Bearer token-1"]),
        (json!("0"), ["Bearer token-0", "Bearer token-1"]),
        (json!(40), ["Bearer token-0", "Bearer token-0"]),
        (json!("3599"), ["Bearer token-0", "Bearer token-0"]),
        (json!(3599.5), ["Bearer token-0", "Bearer token-0"]),
        (json!(u64::MAX), ["Bearer token-0", "Bearer token-0"]),
        (Value::Null, ["Bearer token-0", "Bearer token-0"]),
    ] {
        let (server, api) = shop(lifetime.clone(), ok).await;
        call(&api, 2).await;
        let calls = sent(&server).into_iter().filter(|(path, _)| path == "/v1/x");
        assert_eq!(calls.map(|(_, token)| token).collect::<Vec<_>>(), expected, "{lifetime}");
    }
}

#[tokio::test]
async fn concurrent_calls_request_one_token() {
    let (server, api) = shop(json!(3_600), ok).await;
    let calls = (0..8).fold(Reply::new(), |reply, _| reply.and_call("op", json!({})));
    let model = Arc::new(Scripted::sequence([calls, Reply::from("done")]));
    let agent = llm_on("caller", &model, |llm| llm.toolsets.push(api.toolset()));
    Harness::new(agent).await.run("go").await;
    let paths: Vec<_> = sent(&server).into_iter().map(|(path, _)| path).collect();
    assert_eq!((paths.iter().filter(|path| *path == "/token").count(), paths.len()), (1, 9));
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_once() {
    let (server, api) = shop(json!(3_600), |request| {
        if request["headers"]["authorization"] == "Bearer token-0" {
            StatusCode::UNAUTHORIZED.into_response()
        } else {
            "ok".into_response()
        }
    })
    .await;
    assert_eq!(call(&api, 1).await, [json!({"result": "ok"})]);
    let (server_of_nobody, api) = shop(json!(3_600), |_| StatusCode::UNAUTHORIZED.into_response()).await;
    let error = call(&api, 1).await.remove(0);
    let expected = "`op` of the API `shop` answered with the status 401 Unauthorized: without a body";
    assert_eq!(error["error"], expected);
    assert_eq!((server.requests().len(), server_of_nobody.requests().len()), (4, 4));
}

#[tokio::test]
async fn a_token_server_that_refuses_or_talks_nonsense_is_an_error_without_secrets() {
    for answer in [
        |request: &Value| (StatusCode::BAD_REQUEST, request.to_string()).into_response(),
        |_: &Value| "{\"access_token\": 7}".into_response(),
        |_: &Value| axum::response::Redirect::to("http://10.0.0.1/").into_response(),
    ] {
        let server = Server::start(move |request| answer(&request)).await;
        let mut api = server.api(&operation(json!({})));
        for placement in [ClientPlacement::Header, ClientPlacement::Body] {
            api.config.credentials = client(&server, placement);
            assert_eq!(
                api.error("op", json!({})).await,
                "the call of `op` of the API `shop` failed: the host gets no credentials for it; the log of the host holds the \
                 cause"
            );
        }
        assert!(!format!("{:?}", api.config.credentials).contains(SECRET));
    }
}

#[tokio::test]
async fn a_service_account_signs_for_its_token() {
    let (server, mut api) = shop(json!(3_600), ok).await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let account = json!({
        "type": "service_account", "client_email": "me@project.example", "private_key": key.serialize_pem(),
        "token_uri": server.url("/token"),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    std::fs::write(&file, account.to_string()).unwrap();
    let scopes = vec!["https://scope.example".into()];
    api.config.credentials = Credentials::Google(ServiceAccount { key: KeySource::File(file.clone()), scopes });
    call(&api, 2).await;
    let bearer = ("/v1/x".to_owned(), "Bearer token-0".to_owned());
    assert_eq!(sent(&server)[1..], [bearer.clone(), bearer]);
    let form = server.requests()[0]["body"].as_str().unwrap().to_owned();
    assert!(
        form.starts_with("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=ey"),
        "{form}"
    );

    std::fs::write(&file, "{\"type\": \"service_account\", \"private_key\": \"s3cret\"}").unwrap();
    let logged = api.error("op", json!({})).await;
    assert!(logged.ends_with("the host gets no credentials for it; the log of the host holds the cause"), "{logged}");
}
