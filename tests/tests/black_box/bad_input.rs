//! Invalid requests: each is answered with a status and a stable code, and the host continues to serve.

use anyhow::{Context, Result};
use hatchery_tests::host::{USER, message, session_path};
use hatchery_tests::{Answer, Folder, Host, event};
use reqwest::Method;
use serde_json::{Value, json};

async fn serve_samples() -> Result<Host> {
    Host::serve(&Folder::with_samples()?).await
}

/// Sends a body unchanged.
async fn send(host: &Host, path: &str, body: impl Into<reqwest::Body>) -> Result<Answer> {
    let request = host.request(Method::POST, path).header("content-type", "application/json").body(body);
    host.send(request).await
}

/// Checks that the host and an agent answer.
async fn check_health(host: &Host) -> Result<()> {
    host.get("/health").await?.json(200)?;
    let created = host.post(&format!("/apps/greeter/users/{USER}/sessions"), &json!({})).await?.json(200)?;
    let events = host.run("greeter", event::text_at(&created, "/id"), "Hello").await?;
    assert!(!event::texts(&events).is_empty(), "{events:?}");
    Ok(())
}

#[tokio::test]
async fn malformed_json_is_400() -> Result<()> {
    let host = serve_samples().await?;
    for path in ["/run", "/run_sse", &session_path("greeter", "s")] {
        let detail = send(&host, path, r#"{"appName": "greeter","#).await?.error(400, "MALFORMED_JSON")?;
        assert!(detail.contains("line 1 column"), "{detail}");
    }
    send(&host, "/run", "").await?.error(400, "MALFORMED_JSON")?;
    check_health(&host).await
}

#[tokio::test]
async fn a_value_of_a_wrong_type_is_422() -> Result<()> {
    let host = serve_samples().await?;
    let mut body = message("greeter", "s", "Hello");
    body["appName"] = json!(7);
    let detail = host.post("/run", &body).await?.error(422, "INVALID_REQUEST")?;
    assert!(detail.contains("integer `7`"), "{detail}");
    check_health(&host).await
}

#[tokio::test]
async fn an_unknown_app_is_404_and_the_known_ones_are_named() -> Result<()> {
    let host = serve_samples().await?;
    let expected = "App not found: nobody; available: `concierge`, `data-analyst`, `dice`, `greeter`, `help-desk`, `trip-planner`, `web-fetch`";
    for path in ["/run", "/run_sse"] {
        assert_eq!(host.post(path, &message("nobody", "s", "Hello")).await?.error(404, "APP_NOT_FOUND")?, expected);
    }
    assert_eq!(host.post(&session_path("nobody", "s"), &json!({})).await?.error(404, "APP_NOT_FOUND")?, expected);
    check_health(&host).await
}

#[tokio::test]
async fn an_unknown_session_is_404() -> Result<()> {
    let host = serve_samples().await?;
    for path in ["/run", "/run_sse"] {
        let detail = host.post(path, &message("greeter", "s", "Hello")).await?.error(404, "SESSION_NOT_FOUND")?;
        let expected = "Session not found: appName=greeter, userId=tester, sessionId=s; create it with POST \
                        /apps/greeter/users/tester/sessions/s";
        assert_eq!(detail, expected);
    }
    host.get(&session_path("greeter", "s")).await?.error(404, "SESSION_NOT_FOUND")?;
    check_health(&host).await
}

#[tokio::test]
async fn a_duplicate_session_id_is_409_and_the_session_stays() -> Result<()> {
    let host = serve_samples().await?;
    host.ask("greeter", "s", "My name is Ada.").await?;
    let before = host.session("greeter", "s").await?;
    let detail = host.post(&session_path("greeter", "s"), &json!({"visits": 9})).await?.error(409, "SESSION_EXISTS")?;
    assert_eq!(detail, "Session already exists: s; send messages to it, or create one with another id");
    assert_eq!(host.session("greeter", "s").await?, before);
    check_health(&host).await
}

#[tokio::test]
async fn a_body_of_20_mb_is_413_with_the_limit_and_the_log_has_its_key() -> Result<()> {
    let host = serve_samples().await?;
    host.create_session("greeter", "s").await?;
    let body = message("greeter", "s", &"x".repeat(20_000_000)).to_string();
    for path in ["/run", "/run_sse"] {
        let detail = send(&host, path, body.clone()).await?.error(413, "BODY_TOO_LARGE")?;
        assert_eq!(detail, "the body is larger than 16 MiB (16777216 bytes)");
    }
    host.wait_for_log("16 MiB (16777216 bytes); raise server.body_limit in hatchery.yaml to allow more").await?;
    let untouched = host.session("greeter", "s").await?;
    assert_eq!(untouched["events"], json!([]));
    check_health(&host).await
}

#[tokio::test]
async fn a_message_without_parts_is_422() -> Result<()> {
    let host = serve_samples().await?;
    host.create_session("greeter", "s").await?;
    for new_message in [json!({"role": "user", "parts": []}), json!({"role": "user"}), json!({})] {
        let mut body = message("greeter", "s", "");
        body["newMessage"] = new_message;
        for path in ["/run", "/run_sse"] {
            host.post(path, &body).await?.error(422, "INVALID_MESSAGE")?;
        }
    }
    assert_eq!(host.session("greeter", "s").await?["events"], json!([]));
    check_health(&host).await
}

#[tokio::test]
async fn a_missing_field_is_named() -> Result<()> {
    let host = serve_samples().await?;
    for field in ["appName", "userId", "sessionId", "newMessage"] {
        let mut body = message("greeter", "s", "Hello");
        body.as_object_mut().context("an object")?.remove(field);
        let detail = host.post("/run", &body).await?.error(400, "BAD_INPUT")?;
        assert_eq!(detail, format!("`{field}` is missing or empty"));
    }
    check_health(&host).await
}

#[tokio::test]
async fn an_unknown_route_is_404_and_a_wrong_method_405() -> Result<()> {
    let host = serve_samples().await?;
    host.get("/no/such/route").await?.error(404, "ROUTE_NOT_FOUND")?;
    host.get("/run").await?.error(405, "METHOD_NOT_ALLOWED")?;
    check_health(&host).await
}

#[tokio::test]
async fn a_request_from_another_origin_is_refused() -> Result<()> {
    let host = serve_samples().await?;
    let request = host.request(Method::GET, "/list-apps").header("origin", "https://elsewhere.example");
    host.send(request).await?.error(403, "ORIGIN_NOT_ALLOWED")?;
    let request = host.request(Method::GET, "/list-apps").header("host", "elsewhere.example");
    host.send(request).await?.error(403, "HOST_NOT_ALLOWED")?;
    check_health(&host).await
}

#[tokio::test]
async fn the_variable_of_a_missing_model_key_is_in_the_log_only() -> Result<()> {
    let folder = Folder::with_samples()?;
    folder.write("hosted/root_agent.yaml", "name: hosted\nmodel: gemini-2.5-flash\ninstruction: Answer.\n")?;
    let host = Host::serve(&folder).await?;
    host.create_session("hosted", "s").await?;
    let detail = host.post("/run", &message("hosted", "s", "Hello")).await?.error(502, "MODEL_AUTH")?;
    assert_eq!(detail, "model `gemini-2.5-flash`: the server has no access to it; its log holds the cause");
    host.wait_for_log("no key: set GOOGLE_API_KEY").await?;
    // In a stream, the error is first an event, for clients that show events, and then a separate message.
    let events = host.stream("hosted", "s", "Hello", true).await?.collect().await?;
    let [.., event, last] = events.as_slice() else { anyhow::bail!("an event and an error: {events:?}") };
    assert_eq!(event["errorCode"], "MODEL_AUTH", "{event}");
    assert_eq!(last["error"].as_str(), Some(event::text_at(event, "/errorMessage")), "{last}");
    assert_eq!(last.get("id"), None::<&Value>);
    check_health(&host).await
}
