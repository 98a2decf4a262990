//! Credentials that the host adds, and that neither models nor components see.

use axum::http::StatusCode;
use axum::response::IntoResponse;
use hatchery_core::ConfigValue;
use hatchery_openapi::{Credentials, KeyLocation};
use serde_json::{Value, json};

use crate::support::*;

const KEY: &str = "k3y-of-the-shop";

fn key() -> ConfigValue {
    ConfigValue::Text(KEY.into())
}

fn api_key(location: KeyLocation) -> Credentials {
    Credentials::ApiKey { location, name: "key".into(), value: key() }
}

/// An API whose operation has parameters where keys can be. The server answers without the request.
async fn shop(credentials: Credentials) -> (Server, Api) {
    let server = Server::start(|_| "ok".into_response()).await;
    let key = |location: &str| json!({"name": "key", "in": location, "schema": {"type": "string"}});
    let mut api = server.api(&operation(json!({"parameters": [key("query"), key("header"), key("cookie")]})));
    api.config.credentials = credentials;
    (server, api)
}

#[tokio::test]
async fn a_key_is_added_where_the_settings_say_and_models_cannot_set_it() {
    for (location, expected) in [
        (KeyLocation::Query, json!([format!("key={KEY}"), null, null])),
        (KeyLocation::Header, json!([null, KEY, null])),
        (KeyLocation::Cookie, json!([null, null, format!("key={KEY}")])),
    ] {
        let (server, api) = shop(api_key(location)).await;
        assert_eq!(api.schema("op").await["properties"].as_object().unwrap().len(), 2, "{location:?}");
        api.call("op", json!({})).await;
        let request = server.requests().remove(0);
        let headers = &request["headers"];
        assert_eq!(json!([request["query"], headers["key"], headers["cookie"]]), expected, "{location:?}");
    }
}

#[tokio::test]
async fn a_token_or_a_password_is_in_the_header_authorization() {
    let (server, api) = shop(Credentials::Bearer(key())).await;
    api.call("op", json!({})).await;
    assert_eq!(server.requests()[0]["headers"]["authorization"], format!("Bearer {KEY}"));
    let basic = Credentials::Basic {
        username: ConfigValue::Text("ada".into()),
        password: ConfigValue::Text("pa55word".into()),
    };
    let (server, api) = shop(basic).await;
    api.call("op", json!({})).await;
    assert_eq!(server.requests()[0]["headers"]["authorization"], "Basic YWRhOnBhNTV3b3Jk");
}

#[tokio::test]
async fn headers_of_the_settings_replace_parameters() {
    let (server, mut api) = shop(Credentials::None).await;
    let variable = ConfigValue::Variable { name: "CARGO_PKG_NAME".into(), prefix: "of ".into() };
    api.config.headers = [("Key".to_owned(), variable)].into();
    assert_eq!(api.schema("op").await["properties"].as_object().unwrap().len(), 2);
    api.call("op", json!({})).await;
    assert_eq!(server.requests()[0]["headers"]["key"], "of hatchery-openapi");
}

#[tokio::test]
async fn a_missing_variable_is_told_to_the_operator_only() {
    let missing = ConfigValue::Variable { name: "HATCHERY_NO_SUCH".into(), prefix: String::new() };
    let (server, api) = shop(Credentials::Bearer(missing)).await;
    assert_eq!(
        api.error("op", json!({})).await,
        "the call of `op` of the API `shop` failed: its configuration is incomplete; the operator must fix it"
    );
    assert_eq!(server.requests(), Vec::<Value>::new());
}

#[tokio::test]
async fn an_answer_that_repeats_the_secret_does_not_show_it() {
    for location in [KeyLocation::Query, KeyLocation::Header, KeyLocation::Cookie] {
        let echo = Server::start(|request| match request["path"].as_str() {
            Some("/v1/fail") => (StatusCode::UNAUTHORIZED, request.to_string()).into_response(),
            _ => axum::Json(request).into_response(),
        })
        .await;
        let mut api = echo
            .api(&document(json!({"/x": {"get": {"operationId": "op"}}, "/fail": {"get": {"operationId": "fail"}}})));
        api.config.credentials = api_key(location);
        for operation in ["op", "fail"] {
            let answer = api.call(operation, json!({})).await.to_string();
            assert!(answer.contains("[hidden]") && !answer.contains(KEY), "{answer}");
        }
        assert!(echo.requests()[0].to_string().contains(KEY));
        assert!(!format!("{:?}", api.config.credentials).contains(KEY));
    }
}

#[tokio::test]
async fn a_secret_is_hidden_in_every_spelling() {
    let key = "a b+c\"d/ü";
    let answer = "raw a b+c\"d/ü json a b+c\\\"d/ü form a+b%2Bc%22d%2F%C3%BC url a%20b%2Bc%22d%2F%C3%BC";
    let server = Server::start(move |_| answer.into_response()).await;
    let mut api = server.api(&operation(json!({})));
    let location = KeyLocation::Query;
    api.config.credentials = Credentials::ApiKey { location, name: "key".into(), value: ConfigValue::Text(key.into()) };
    let answer = api.call("op", json!({})).await;
    assert_eq!(answer["result"], "raw [hidden] json [hidden] form [hidden] url [hidden]");
}

#[tokio::test]
async fn a_literal_header_with_credentials_is_hidden_and_others_are_not() {
    let server =
        Server::start(|_| "k3y-of-the-shop-2 k3y-of-the-shop t0ken-1 Bearer t0ken-1 spring".into_response()).await;
    let mut api = server.api(&operation(json!({})));
    let text = |value: &str| ConfigValue::Text(value.into());
    api.config.headers = [
        ("X-Api-Key".to_owned(), text(KEY)),
        ("X-Second-Key".to_owned(), text("k3y-of-the-shop-2")),
        ("Authorization".to_owned(), text("Bearer t0ken-1")),
        ("X-Season".to_owned(), text("spring")),
    ]
    .into();
    let answer = api.call("op", json!({})).await;
    assert_eq!(answer["result"], "[hidden] [hidden] [hidden] [hidden] spring");
    assert_eq!(server.requests()[0]["headers"]["authorization"], "Bearer t0ken-1");
}

#[tokio::test]
async fn cookies_of_arguments_are_added_to_cookies_of_the_settings() {
    let server = Server::start(|_| "ok".into_response()).await;
    let theme = json!({"name": "theme", "in": "cookie", "allowReserved": true, "schema": {"type": "string"}});
    let mut api = server.api(&operation(json!({"parameters": [theme]})));
    api.config.headers = [("Cookie".to_owned(), ConfigValue::Text("session=1".into()))].into();
    api.call("op", json!({"theme": "dark; session=2"})).await;
    assert_eq!(server.requests()[0]["headers"]["cookie"], "session=1; theme=dark%3B%20session%3D2");
}

#[tokio::test]
async fn a_redirect_to_another_server_takes_no_credentials_along() {
    let other = Server::echo().await;
    let target = other.url("/");
    let server = Server::start(move |_| axum::response::Redirect::to(&target).into_response()).await;
    let mut api = server.api(&operation(json!({})));
    api.config.credentials = Credentials::Bearer(key());
    let error = api.error("op", json!({})).await;
    assert!(error.contains("it redirects to"), "{error}");
    assert_eq!(other.requests(), Vec::<Value>::new());
}

#[tokio::test]
async fn no_beginning_of_a_secret_is_left_where_a_redirect_is_shortened() {
    let start = format!("http://10.0.0.1/{}", "x".repeat(179));
    let target = format!("{start}{KEY}");
    let server = Server::start(move |_| axum::response::Redirect::to(&target).into_response()).await;
    let mut api = server.api(&operation(json!({})));
    api.config.credentials = api_key(KeyLocation::Query);
    let error = api.error("op", json!({})).await;
    assert!(error.contains(&format!("it redirects to `{start}[hidd…`")), "{error}");
}
