//! Credentials: their JSON, answers of clients, and redaction.

use serde_json::json;

use super::*;

fn config() -> AuthConfig {
    serde_json::from_value(json!({
        "authScheme": {"type": "oauth2", "flows": {"authorizationCode": {
            "authorizationUrl": "https://login.example/auth", "tokenUrl": "https://login.example/token",
            "scopes": {"read": ""}}}},
        "rawAuthCredential": {"authType": "oauth2", "oauth2": {"clientId": "id", "clientSecret": "s3cret"}},
    }))
    .unwrap()
}

fn request() -> AuthConfig {
    let oauth2 = OAuth2Auth {
        client_id: Some("id".into()),
        client_secret: Some("s3cret".into()),
        auth_uri: Some("https://login.example/auth?state=x".into()),
        state: Some("x".into()),
        ..OAuth2Auth::default()
    };
    config().for_client(AuthCredential::oauth2(oauth2))
}

#[test]
fn what_a_client_gets_has_no_secret_of_the_tool() {
    let shown = json!(request());
    assert!(!shown.to_string().contains("s3cret"), "{shown}");
    assert_eq!(
        shown["exchangedAuthCredential"],
        json!({"authType": "oauth2", "oauth2":
            {"clientId": "id", "authUri": "https://login.example/auth?state=x", "state": "x"}})
    );
    assert_eq!(shown["rawAuthCredential"], json!({"authType": "oauth2", "oauth2": {"clientId": "id"}}));
    assert_eq!(shown["credentialKey"], config().key());
}

#[test]
fn tools_share_a_credential_if_scheme_and_client_are_the_same() {
    let (mut other_secret, mut other_client) = (config(), config());
    let oauth2 = |config: &mut AuthConfig, change: fn(&mut OAuth2Auth)| {
        change(config.raw_auth_credential.as_mut().unwrap().oauth2.as_mut().unwrap());
    };
    oauth2(&mut other_secret, |oauth2| oauth2.client_secret = Some("rotated".into()));
    oauth2(&mut other_client, |oauth2| oauth2.client_id = Some("other".into()));
    assert_eq!(config().key(), other_secret.key());
    assert_ne!(config().key(), other_client.key());
    assert_eq!(AuthConfig { credential_key: Some("mine".into()), ..config() }.key(), "mine");
}

#[test]
fn an_answer_is_read_in_both_spellings_and_with_or_without_its_wrapper() {
    let answer = |value: Value| UserCredential::from_answer(&request(), value.as_object().unwrap());
    let scheme = json!(config().auth_scheme);
    let uri = "http://localhost/cb?code=c&state=x";
    let camel = json!({"authScheme": scheme, "exchangedAuthCredential":
        {"authType": "oauth2", "oauth2": {"clientSecret": "forged", "authResponseUri": uri, "redirectUri": "http://localhost/cb"}}});
    let snake = json!({"auth_scheme": scheme, "exchanged_auth_credential":
        {"auth_type": "oauth2", "oauth2": {"auth_response_uri": uri, "redirect_uri": "http://localhost/cb"}}});
    let expected = UserCredential::Answer {
        credential: AuthCredential::oauth2(OAuth2Auth {
            auth_response_uri: Some(uri.into()),
            redirect_uri: Some("http://localhost/cb".into()),
            ..OAuth2Auth::default()
        }),
        expected_state: Some("x".into()),
    };
    for value in [camel.clone(), snake, json!({"authConfig": camel})] {
        assert_eq!(answer(value), Some(expected.clone()));
    }
    assert_eq!(answer(json!(request())), None, "the request itself is no answer");
    assert_eq!(answer(json!({"status": "received"})), None);
}

#[test]
fn the_debug_output_of_a_credential_shows_no_value() {
    let all = [
        AuthCredential::api_key("v4lue"),
        AuthCredential::http("bearer", HttpCredentials { token: Some("v4lue".into()), ..HttpCredentials::default() }),
    ];
    for credential in all {
        let shown = format!("{:?}", UserCredential::Granted { credential });
        assert!(!shown.contains("v4lue"), "{shown}");
    }
}

#[test]
fn schemes_have_the_json_of_adk() {
    let all = [
        json!({"type": "apiKey", "in": "header", "name": "X-Key"}),
        json!({"type": "http", "scheme": "basic"}),
        json!({"type": "openIdConnect", "openIdConnectUrl": "https://id.example/.well-known/openid-configuration",
            "scopes": ["openid"]}),
        json!({"type": "openIdConnect", "authorization_endpoint": "https://id.example/auth",
            "token_endpoint": "https://id.example/token", "scopes": []}),
    ];
    for scheme in all {
        let parsed: AuthScheme = serde_json::from_value(scheme.clone()).unwrap();
        assert_eq!(json!(parsed), scheme);
        assert_eq!(scheme["type"], parsed.name());
    }
}
