//! The OpenAPI document of the routes: `GET /openapi.json`.
//!
//! Handlers describe their operations in attributes, request bodies are the types that parse them. This module adds the
//! common parts: path parameters, the error response, unique operation ids.

pub(crate) mod schemas;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use axum::{Router, http::HeaderValue};
use hatchery::BasePath;
use serde_json::{Map, Value, json};
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, OpenApi, OpenApiBuilder};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use crate::state::AppState;

/// A router. Routes that are added by [`routes!`](utoipa_axum::routes) are part of the document, those that are added
/// by `route` are not.
pub(crate) type ApiRouter = OpenApiRouter<AppState>;

/// The path of the document.
const PATH: &str = "/openapi.json";

const DESCRIPTION: &str = "Agents, their sessions, runs, artifacts and memory, for clients of ADK and of Hatchery. \
    Second names of routes are not listed. `WebSocket /run_live`, the messages of `WebSocket /ws` (`GET /ws/schema`), `/mcp` (Model Context Protocol) and `/a2a/{app}` (Agent2Agent \
    Protocol) are described by their guides.";

/// Returns a document without routes.
pub(crate) fn head() -> OpenApi {
    let info = InfoBuilder::new().title("Hatchery").version(hatchery_core::VERSION).description(Some(DESCRIPTION));
    let mut schemas = Vec::new();
    schemas::Problem::schemas(&mut schemas);
    // The content of a stream, which the document cannot describe otherwise.
    schemas::HostEvent::schemas(&mut schemas);
    let components = ComponentsBuilder::new()
        .schema("Problem", schemas::Problem::schema())
        .schema("HostEvent", schemas::HostEvent::schema())
        .schemas_from_iter(schemas);
    OpenApiBuilder::new().info(info.build()).components(Some(components.build())).build()
}

/// Returns the route of the document. It describes the routes below `base`.
pub(crate) fn route(document: OpenApi, base: Option<&BasePath>) -> Router<AppState> {
    let json = Bytes::from(complete(document, base).to_string());
    let content_type = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    Router::new().route(PATH, get(move || std::future::ready((content_type, json))))
}

/// Adds the common parts of all operations.
fn complete(document: OpenApi, base: Option<&BasePath>) -> Value {
    let Ok(Value::Object(mut document)) = serde_json::to_value(document) else { return Value::Null };
    // At the root, relative to the document, which is right behind a proxy that adds a prefix, too.
    document.insert("servers".into(), json!([{"url": base.map_or(".", BasePath::as_str)}]));
    // A server without `server.auth` needs none.
    document.insert("security".into(), json!([{"bearer": []}, {"apiKey": []}, {}]));
    if let Some(Value::Object(components)) = document.get_mut("components") {
        let schemes = json!({
            "bearer": {
                "type": "http", "scheme": "bearer", "description": "An API key, or a token of the configured issuer",
            },
            "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        });
        components.insert("securitySchemes".into(), schemes);
    }
    if let Some(Value::Object(paths)) = document.get_mut("paths") {
        *paths = std::mem::take(paths).into_iter().map(|(path, item)| describe_path(&path, item)).collect();
    }
    Value::Object(document)
}

/// Completes the operations of a path. A wildcard such as `{*path}` is an ordinary parameter.
fn describe_path(path: &str, mut item: Value) -> (String, Value) {
    let path = path.replace("{*", "{");
    let names = path.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let parameters: Vec<_> =
        names.map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}})).collect();
    let operations = item.as_object_mut().into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut);
    operations.for_each(|operation| describe_operation(operation, &parameters));
    (path, item)
}

fn describe_operation(operation: &mut Map<String, Value>, path_parameters: &[Value]) {
    let tag = operation.get("tags").and_then(|tags| tags.get(0));
    let id = [tag, operation.get("operationId")].map(|part| part.and_then(Value::as_str).unwrap_or_default()).join(".");
    operation.insert("operationId".into(), id.into());
    let query = operation.get("parameters").and_then(Value::as_array).into_iter().flatten();
    let parameters = path_parameters.iter().chain(query).cloned().collect();
    operation.insert("parameters".into(), parameters);
    if let Some(Value::Object(responses)) = operation.get_mut("responses") {
        let error = json!({
            "description": "An error",
            "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
        });
        responses.insert("default".into(), error);
    }
}
