//! Credentials that users grant to tools, over HTTP in the wire shape of ADK.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use hatchery_test_services::serve_http;
use hatchery_tests::host::{USER, events_of};
use hatchery_tests::{Folder, Host, event, paths};
use reqwest::{Method, Url};
use serde_json::{Value, json};

const SECRET: &str = "cl13nt-s3cret";
const REDIRECT: &str = "http://localhost:4200/callback";

/// The forms that the token server has got.
type Forms = Arc<Mutex<Vec<String>>>;

/// Starts an OAuth server with an API that accepts its tokens.
async fn shop() -> (String, Forms) {
    let forms = Forms::default();
    let routes = Router::new().route("/token", post(token)).route("/v1/orders", get(orders)).with_state(forms.clone());
    (serve_http(routes).await, forms)
}

async fn token(State(forms): State<Forms>, form: String) -> Response {
    let is_good = form.contains("code=g00d-c0de") && form.contains("code_verifier=");
    if let Ok(mut forms) = forms.lock() {
        forms.push(form);
    }
    if is_good {
        Json(json!({"access_token": "us3r-t0ken", "refresh_token": "r3fresh", "expires_in": 3600})).into_response()
    } else {
        (StatusCode::BAD_REQUEST, Json(json!({"error": "invalid_grant"}))).into_response()
    }
}

async fn orders(headers: HeaderMap) -> Response {
    if headers.get("authorization").is_some_and(|value| value == "Bearer us3r-t0ken") {
        Json(json!({"orders": 2})).into_response()
    } else {
        StatusCode::UNAUTHORIZED.into_response()
    }
}

/// Returns a folder with an agent that asks the shop for orders.
fn folder(shop: &str) -> Result<Folder> {
    let folder = Folder::empty()?;
    let document = json!({"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"},
        "paths": {"/orders": {"get": {"operationId": "list_orders"}}}});
    folder.write("clerk/shop.json", document.to_string())?;
    folder.write(
        "clerk/root_agent.yaml",
        "name: clerk\nmodel: scripted:clerk/answers.yaml\ninstruction: Answer.\ntools:\n  - name: OpenAPIToolset\n    args: \
         {api: shop}\n",
    )?;
    folder.write(
        "clerk/answers.yaml",
        "turns:\n  - when: { tool: list_orders }\n    reply: \"Done.\"\n  - reply: [{ call: { name: list_orders } }]\n",
    )?;
    let oauth2 = json!({"authorization_url": format!("{shop}/authorize"), "token_url": format!("{shop}/token"),
        "client_id": "hatchery", "client_secret": {"from": "SHOP_SECRET"}, "scopes": ["orders.read"], "client_in": "body"});
    let api = json!({"document": folder.file("clerk/shop.json"), "base_url": format!("{shop}/v1"),
        "auth": {"user": {"oauth2": oauth2}}});
    folder.write_operator_config(&json!({"openapi": {"apis": {"shop": api}}}).to_string())?;
    Ok(folder)
}

async fn serve(folder: &Folder) -> Result<Host> {
    Host::serve_with_environment(folder, &[("SHOP_SECRET", SECRET)]).await
}

/// Returns the function call that requests a credential.
fn request(events: &[Value]) -> Option<&Value> {
    let mut calls = events.iter().flat_map(event::parts).filter_map(|part| part.get("functionCall"));
    calls.find(|call| event::text_at(call, "/name") == "adk_request_credential")
}

/// Returns the body of a run request with the answer of a client whose user has logged in.
fn answer(request: &Value, session: &str) -> Result<Value> {
    let mut config = request.pointer("/args/authConfig").context("a configuration")?.clone();
    let oauth2 = config.pointer_mut("/exchangedAuthCredential/oauth2").context("a login")?;
    let state = event::text_at(oauth2, "/state").to_owned();
    let uri = Url::parse(event::text_at(oauth2, "/authUri"))?;
    ensure!(uri.query_pairs().any(|(name, value)| name == "state" && value == state), "{uri}");
    let oauth2 = oauth2.as_object_mut().context("an object")?;
    oauth2.insert("authResponseUri".into(), format!("{REDIRECT}?state={state}&code=g00d-c0de").into());
    oauth2.insert("redirectUri".into(), REDIRECT.into());
    let response = json!({"id": request["id"], "name": "adk_request_credential", "response": config});
    Ok(json!({"appName": "clerk", "userId": USER, "sessionId": session,
        "newMessage": {"role": "user", "parts": [{"functionResponse": response}]}}))
}

#[tokio::test]
async fn a_user_logs_in_once_and_nobody_else_sees_the_credentials() -> Result<()> {
    let (shop, forms) = shop().await;
    let folder = folder(&shop)?;
    let host = serve(&folder).await?;
    let events = host.ask("clerk", "s1", "Which orders?").await?;
    let request_call = request(&events).context("a request")?.clone();
    let asking = events.iter().find(|event| event.get("longRunningToolIds").is_some()).context("an event that asks")?;
    assert_eq!(asking["longRunningToolIds"], json!([request_call["id"]]));
    assert_eq!(
        event::tool_response(&events, "list_orders")?,
        &json!({"pending": true, "message": "Needs your authorization to access your data."})
    );
    let body = answer(&request_call, "s1")?;
    let mut in_background = body.clone();
    in_background["background"] = true.into();
    let refusal = host.post("/run", &in_background).await?;
    ensure!(
        refusal.status == 400
            && refusal.text.contains("only a run that begins with a new message can run in the background"),
        "{refusal:?}"
    );
    let events = events_of(&host.post("/run", &body).await?.json(200)?)?;
    assert_eq!(event::tool_response(&events, "list_orders")?, &json!({"orders": 2}));

    let session = host.session("clerk", "s1").await?.to_string();
    ensure!(session.contains(r#""response":{"status":"received"}"#), "{session}");
    let log = host.log();
    for secret in [SECRET, "g00d-c0de", "us3r-t0ken", "r3fresh"] {
        ensure!(!session.contains(secret) && !log.contains(secret), "{secret} is shown");
    }
    ensure!(host.stop().await?);

    // The credential is on disk, encrypted.
    let files = std::fs::read_dir(folder.file(".hatchery/credentials"))?.collect::<std::io::Result<Vec<_>>>()?;
    let [file] = files.as_slice() else { anyhow::bail!("{} files", files.len()) };
    let bytes = std::fs::read(file.path())?;
    ensure!(!bytes.windows(10).any(|window| window == b"us3r-t0ken"), "the token is not encrypted");
    let host = serve(&folder).await?;
    let events = host.ask("clerk", "s2", "And now?").await?;
    ensure!(request(&events).is_none(), "the user is asked again");
    assert_eq!(event::tool_response(&events, "list_orders")?, &json!({"orders": 2}));
    assert_eq!(forms.lock().map(|forms| forms.len()).unwrap_or_default(), 1);
    let other = host.request(Method::POST, "/apps/clerk/users/another/sessions/s3").json(&json!({}));
    host.send(other).await?;
    let message = json!({"appName": "clerk", "userId": "another", "sessionId": "s3",
        "newMessage": {"role": "user", "parts": [{"text": "Mine?"}]}});
    let events = events_of(&host.post("/run", &message).await?.json(200)?)?;
    ensure!(request(&events).is_some(), "another user has the credentials of the first");
    ensure!(host.stop().await?);
    Ok(())
}

/// Returns a folder with an agent whose tool, in a component with these grants, asks the shop for orders.
fn component_folder(shop: &str, grants: Value) -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.put("browser.wasm", paths::component("browser")?)?;
    folder.write(
        "clerk/root_agent.yaml",
        "name: clerk\nmodel: scripted:clerk/answers.yaml\ninstruction: Answer.\ntools: [{ name: browser/list_orders }]\n",
    )?;
    let call = json!({"call": {"name": "list_orders", "args": {"url": shop}}});
    let turns = json!({"turns": [{"when": {"tool": "list_orders"}, "reply": "Done."}, {"reply": [call]}]});
    folder.write("clerk/answers.yaml", turns.to_string())?;
    folder.write_operator_config(&json!({"components": {"browser": {"grants": grants}}}).to_string())?;
    Ok(folder)
}

fn network_of(shop: &str) -> Value {
    json!({"network": [shop], "private_network": [shop.trim_start_matches("http://")]})
}

#[tokio::test]
async fn a_tool_of_a_component_gets_the_token_that_the_host_has_exchanged_and_keeps() -> Result<()> {
    let (shop, forms) = shop().await;
    let folder = component_folder(&shop, network_of(&shop))?;
    let host = Host::serve(&folder).await?;
    let events = host.ask("clerk", "s1", "Which orders?").await?;
    let request_call = request(&events).context("a request")?.clone();
    let key = event::text_at(&request_call, "/args/authConfig/credentialKey");
    ensure!(key.starts_with("component:browser/"), "{key}");
    assert_eq!(event::tool_response(&events, "list_orders")?, &json!({"pending": true}));
    let events = events_of(&host.post("/run", &answer(&request_call, "s1")?).await?.json(200)?)?;
    assert_eq!(event::tool_response(&events, "list_orders")?, &json!({"orders": 2}));
    let events = host.ask("clerk", "s2", "And now?").await?;
    ensure!(request(&events).is_none(), "the user is asked again");
    assert_eq!(event::tool_response(&events, "list_orders")?, &json!({"orders": 2}));
    assert_eq!(forms.lock().map(|forms| forms.len()).unwrap_or_default(), 1);
    let (session, log) = (host.session("clerk", "s1").await?.to_string(), host.log());
    for secret in ["g00d-c0de", "us3r-t0ken", "r3fresh"] {
        ensure!(!session.contains(secret) && !log.contains(secret), "{secret} is shown");
    }
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn the_model_is_told_that_a_user_declines_the_request_of_a_component() -> Result<()> {
    let (shop, _) = shop().await;
    let host = Host::serve(&component_folder(&shop, network_of(&shop))?).await?;
    let events = host.ask("clerk", "s1", "Which orders?").await?;
    let request_call = request(&events).context("a request")?.clone();
    let response = json!({"id": request_call["id"], "name": "adk_request_credential", "response": {}});
    let body = json!({"appName": "clerk", "userId": USER, "sessionId": "s1",
        "newMessage": {"role": "user", "parts": [{"functionResponse": response}]}});
    let events = events_of(&host.post("/run", &body).await?.json(200)?)?;
    let response = event::tool_response(&events, "list_orders")?.to_string();
    ensure!(response.contains("the user has not granted the credential that `list_orders` needs"), "{response}");
    ensure!(host.stop().await?);
    Ok(())
}

#[tokio::test]
async fn a_component_without_a_network_cannot_ask_for_credentials() -> Result<()> {
    let (shop, _) = shop().await;
    let host = Host::serve(&component_folder(&shop, json!({}))?).await?;
    let events = host.ask("clerk", "s1", "Which orders?").await?;
    ensure!(request(&events).is_none(), "{events:?}");
    let response = event::tool_response(&events, "list_orders")?.to_string();
    ensure!(response.contains("component `browser` may not ask the user for credentials"), "{response}");
    ensure!(host.stop().await?);
    Ok(())
}
