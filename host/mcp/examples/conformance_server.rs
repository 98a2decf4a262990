//! The server that the conformance suite tests: the fixture's tools, prompts and resources, behind this crate's server.
//! Prints its URL.

#[path = "conformance_server/asking.rs"]
mod asking;
#[path = "conformance_server/contents.rs"]
mod contents;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::routing::any;
use hatchery_core::{
    Blob, CallContext, CallerOrigin, FunctionDeclaration, JsonMap, PartData, Tool, ToolError, ToolProgress,
};
use hatchery_engine::{App, AppDirectory, Runner};
use hatchery_mcp::{Exposure, McpCatalog, McpEndpoint, McpService};
use hatchery_test_support::services;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The response of a tool of the fixture.
enum FixtureResponse {
    Text(&'static str),
    Fail(&'static str),
    /// Reports that 0, 50 and 100 of 100 are done.
    Progress,
    /// Reports three messages.
    Log,
    /// Changes the catalog.
    Change(watch::Sender<u64>),
    /// Stores files, given by their names, types and contents, and returns a text unless it is empty.
    Files(&'static str, &'static [(&'static str, &'static str, &'static [u8])]),
}

struct FixtureTool {
    declaration: Arc<FunctionDeclaration>,
    response: FixtureResponse,
}

impl FixtureTool {
    async fn report(&self, progress: ToolProgress, cx: &CallContext) -> Result<(), ToolError> {
        let reported = cx.report_progress(&self.declaration.name, &progress).await;
        reported.map_err(|error| ToolError::Recoverable(error.client_message()))
    }
}

#[async_trait]
impl Tool for FixtureTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        match &self.response {
            FixtureResponse::Text(text) => Ok((*text).into()),
            FixtureResponse::Progress => {
                for progress in [0.0, 50.0, 100.0] {
                    self.report(ToolProgress { progress, total: Some(100.0), message: None }, cx).await?;
                }
                Ok("done".into())
            }
            FixtureResponse::Log => {
                let messages = ["Tool execution started", "Tool processing data", "Tool execution completed"];
                for (progress, message) in [1.0, 2.0, 3.0].into_iter().zip(messages) {
                    self.report(ToolProgress { progress, total: None, message: Some(message.into()) }, cx).await?;
                }
                Ok("done".into())
            }
            FixtureResponse::Change(generation) => {
                generation.send_modify(|generation| *generation += 1);
                Ok("changed".into())
            }
            FixtureResponse::Fail(message) => Err(ToolError::Recoverable((*message).into())),
            FixtureResponse::Files(text, files) => {
                for (name, mime_type, data) in *files {
                    let blob = Blob { mime_type: (*mime_type).into(), data: (*data).into(), display_name: None };
                    cx.save_artifact(name, &PartData::InlineData(blob).into()).await?;
                }
                Ok(if text.is_empty() { Value::Null } else { (*text).into() })
            }
        }
    }
}

/// Describes a tool of the fixture.
fn declare(name: &str, schema: Value) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration {
        name: name.into(),
        description: format!("The fixture {name}."),
        parameters: Some(schema),
        response: None,
    })
}

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89";
const WAV: &[u8] = b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0";

fn tools(changes: &watch::Sender<u64>) -> BTreeMap<String, Arc<dyn Tool>> {
    let empty = json!({"type": "object"});
    let dialect = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
        }},
        "properties": {
            "name": {"type": "string"}, "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"}, "email": {"type": "string"}
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]}, "else": {"required": ["email"]},
        "additionalProperties": false
    });
    let header = json!({
        "type": "object", "properties": {"value": {"type": "string", "x-mcp-header": "Value"}}, "required": ["value"]
    });
    let fixtures: [(&str, &Value, FixtureResponse); 12] = [
        ("test_simple_text", &empty, FixtureResponse::Text("This is a simple text response for testing.")),
        ("test_image_content", &empty, FixtureResponse::Files("", &[("image.png", "image/png", PNG)])),
        ("test_audio_content", &empty, FixtureResponse::Files("", &[("audio.wav", "audio/wav", WAV)])),
        (
            "test_embedded_resource",
            &empty,
            FixtureResponse::Files("", &[("resource.txt", "text/plain", b"This is an embedded resource.")]),
        ),
        (
            "test_multiple_content_types",
            &empty,
            FixtureResponse::Files(
                "Multiple content types test:",
                &[("image.png", "image/png", PNG), ("mixed.txt", "text/plain", b"{}")],
            ),
        ),
        ("test_tool_with_progress", &empty, FixtureResponse::Progress),
        ("test_tool_with_logging", &empty, FixtureResponse::Log),
        ("test_logging_tool", &empty, FixtureResponse::Log),
        ("test_custom_header", &header, FixtureResponse::Text("ok")),
        ("test_trigger_tool_change", &empty, FixtureResponse::Change(changes.clone())),
        ("test_error_handling", &empty, FixtureResponse::Fail("This tool intentionally returns an error for testing")),
        ("json_schema_2020_12_tool", &dialect, FixtureResponse::Text("ok")),
    ];
    let tool = |(name, schema, response): (&str, &Value, FixtureResponse)| {
        (
            name.to_owned(),
            Arc::new(FixtureTool { declaration: declare(name, schema.clone()), response }) as Arc<dyn Tool>,
        )
    };
    fixtures.into_iter().map(tool).chain(asking::tools()).collect()
}

struct Fixture {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    changes: watch::Sender<u64>,
}

impl AppDirectory for Fixture {
    fn app(&self, _: &str) -> Option<Arc<App>> {
        None
    }

    fn app_names(&self) -> Vec<String> {
        Vec::new()
    }
}

impl McpCatalog for Fixture {
    fn tool_names(&self) -> Vec<String> {
        self.tools.keys().cloned().collect()
    }

    fn tool(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.get(name).cloned()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let changes = watch::Sender::new(1);
    let catalog = Arc::new(Fixture { tools: tools(&changes), changes });
    let folder = tempfile::tempdir()?;
    let exposure = Exposure {
        apps: Vec::new(),
        tools: vec!["*".into()],
        private: BTreeSet::new(),
        prompts: contents::prompts(),
        resources: contents::resources(folder.path())?,
    };
    let service = McpService::new(Runner::new(services()), catalog, exposure, CallerOrigin::Http);
    let endpoint = McpEndpoint::on_loopback(service);
    let answer = move |request: Request| {
        let endpoint = endpoint.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 4 << 20).await.unwrap_or_default();
            endpoint.handle(Request::from_parts(parts, body)).await.map(Body::new)
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}/mcp", listener.local_addr()?);
    axum::serve(listener, Router::new().route("/mcp", any(answer))).await
}
