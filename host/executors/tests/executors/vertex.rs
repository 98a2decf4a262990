//! Code in an extension of Vertex AI, with a mock server.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hatchery_core::{CodeExecutor, CodeFile, CodeInput, CodeOutput, ConfigValue, ToolError};
use hatchery_egress::{Egress, Url};
use hatchery_executors::{CredentialsSource, ExtensionOperation, VertexConfig, VertexExecutor};
use hatchery_test_services::serve_http;
use serde_json::{Value, json};

use crate::call_in;

const EXTENSION: &str = "projects/p/locations/us-central1/extensions/7";

/// A policy that allows everything.
struct Anywhere;

impl Egress for Anywhere {
    fn check_url(&self, _: &Url) -> Result<(), String> {
        Ok(())
    }

    fn check_address(&self, _: &Url, _: IpAddr) -> Result<(), String> {
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Vertex {
    requests: Arc<Mutex<Vec<(String, String, Value)>>>,
    /// The number of tokens that the token server has issued.
    issued: Arc<AtomicUsize>,
}

impl Vertex {
    /// Starts a token server and an extension, and returns an executor that uses them.
    async fn start(operation: ExtensionOperation) -> (Self, VertexExecutor) {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let vertex = Self::default();
        let issued = vertex.issued.clone();
        let token = move |_: String| {
            let number = issued.fetch_add(1, Ordering::SeqCst);
            async move { Json(json!({"access_token": format!("g00gle-{number}"), "expires_in": 3600})) }
        };
        let app =
            Router::new().route("/token", axum::routing::post(token)).fallback(execute).with_state(vertex.clone());
        let url = serve_http(app).await;
        // Credentials of a person who has logged in need no key.
        let credentials = json!({"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",
            "token_uri": format!("{url}/token")});
        let config = VertexConfig {
            extension: EXTENSION.into(),
            operation,
            endpoint: Some(url),
            credentials: CredentialsSource::Json(ConfigValue::Text(credentials.to_string())),
            egress: Arc::new(Anywhere),
            timeout: Duration::from_secs(60),
        };
        (vertex, VertexExecutor::new("cloud", config))
    }
}

async fn execute(State(vertex): State<Vertex>, uri: Uri, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let authorization = headers["authorization"].to_str().unwrap().to_owned();
    vertex.requests.lock().unwrap().push((uri.path().to_owned(), authorization.clone(), body.clone()));
    let content = match body["operationParams"]["code"].as_str() {
        Some("fail") => json!({"execution_result": "", "execution_error": "NameError", "output_files": []}),
        Some("garble") => json!({"execution_result": "3\n", "execution_error": "",
            "output_files": [{"name": "table.csv", "contents": "%"}, {"name": "plot.png", "contents": "iVBO"}]}),
        Some("revoked") if authorization == "Bearer g00gle-0" => return StatusCode::UNAUTHORIZED.into_response(),
        Some("crash") => return (StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response(),
        _ => json!({"execution_result": "3\n", "execution_error": "",
            "output_files": [{"name": "plot.png", "contents": "iVBO"}]}),
    };
    Json(json!({"content": content.to_string()})).into_response()
}

fn code(code: &str) -> CodeInput {
    CodeInput { code: code.into(), ..CodeInput::default() }
}

#[tokio::test]
async fn code_runs_with_its_files_in_the_session_of_the_extension() {
    let (vertex, executor) = Vertex::start(ExtensionOperation::Execute).await;
    let file = CodeFile { name: "data.csv".into(), content: "a\n".into(), mime_type: "text/csv".into() };
    let input = CodeInput { input_files: vec![file], execution_id: Some("e1".into()), ..code("print(1 + 2)") };
    let output = executor.execute(input, &call_in("s")).await.unwrap();
    let plot =
        CodeFile { name: "plot.png".into(), content: vec![0x89, 0x50, 0x4e].into(), mime_type: "image/png".into() };
    assert_eq!(output, CodeOutput { stdout: "3\n".into(), stderr: String::new(), output_files: vec![plot] });
    let (path, authorization, mut body) = vertex.requests.lock().unwrap()[0].clone();
    let session = body["operationParams"]["session_id"].take();
    assert!(session.as_str().is_some_and(|session| session.len() > 32 && !session.contains("e1")), "{session}");
    assert_eq!((path, authorization), (format!("/v1beta1/{EXTENSION}:execute"), "Bearer g00gle-0".into()));
    assert_eq!(
        body,
        json!({"operationId": "execute", "operationParams":
            {"code": "print(1 + 2)", "files": [{"name": "data.csv", "contents": "YQo="}], "session_id": null}})
    );
}

#[tokio::test]
async fn the_same_id_in_the_state_of_two_sessions_is_not_the_same_session_of_the_extension() {
    let (vertex, executor) = Vertex::start(ExtensionOperation::Execute).await;
    for session in ["s", "s", "other"] {
        let input = CodeInput { execution_id: Some("e1".into()), ..code("print(1 + 2)") };
        executor.execute(input, &call_in(session)).await.unwrap();
    }
    let requests = vertex.requests.lock().unwrap();
    let sessions: Vec<_> = requests.iter().map(|(_, _, body)| &body["operationParams"]["session_id"]).collect();
    assert_eq!(sessions[0], sessions[1]);
    assert_ne!(sessions[0], sessions[2]);
}

#[tokio::test]
async fn the_extension_can_write_the_code_itself() {
    let (vertex, executor) = Vertex::start(ExtensionOperation::GenerateAndExecute).await;
    executor.execute(code("print(1 + 2)"), &call_in("s")).await.unwrap();
    assert_eq!(
        vertex.requests.lock().unwrap()[0].2,
        json!({"operationId": "generate_and_execute", "operationParams": {"query": "print(1 + 2)"}})
    );
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_for_the_next_call() {
    let (vertex, executor) = Vertex::start(ExtensionOperation::Execute).await;
    executor.execute(code("revoked"), &call_in("s")).await.unwrap_err();
    executor.execute(code("revoked"), &call_in("s")).await.unwrap();
    executor.execute(code("print(1 + 2)"), &call_in("s")).await.unwrap();
    let requests = vertex.requests.lock().unwrap();
    let tokens: Vec<_> = requests.iter().map(|(_, authorization, _)| authorization.as_str()).collect();
    assert_eq!(tokens, ["Bearer g00gle-0", "Bearer g00gle-1", "Bearer g00gle-1"]);
}

#[tokio::test]
async fn a_file_that_cannot_be_decoded_is_a_failure_of_the_code_that_names_it() {
    let (_, executor) = Vertex::start(ExtensionOperation::Execute).await;
    let output = executor.execute(code("garble"), &call_in("s")).await.unwrap();
    assert!(output.stderr.starts_with("`table.csv` is lost: its content arrived as invalid Base64"), "{output:?}");
    let names: Vec<_> = output.output_files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!((output.stdout.as_str(), names), ("3\n", vec!["plot.png"]));
}

#[tokio::test]
async fn failed_code_is_no_error_and_a_failed_extension_is_an_error_for_the_operator() {
    let (_, executor) = Vertex::start(ExtensionOperation::Execute).await;
    let output = executor.execute(code("fail"), &call_in("s")).await.unwrap();
    assert_eq!(output.stderr, "NameError");
    let ToolError::Recoverable(message) = executor.execute(code("crash"), &call_in("s")).await.unwrap_err() else {
        panic!("the run has ended");
    };
    assert_eq!(
        message,
        "code cannot run now, because the code interpreter is not usable; the operator finds the cause in the log of the host"
    );
}
