//! Documents that cannot be used: each is a clear error, in bounded memory.

use hatchery_openapi::{DocumentSource, Selection, ToolsetOptions};
use serde_json::{Value, json};

use crate::support::*;

async fn reason(text: &str) -> String {
    Server::echo().await.api_from_text(text).reason().await
}

#[tokio::test]
async fn the_reason_is_told_with_the_next_step() {
    for (text, expected) in [
        ("{\"swagger\": \"2.0\"}", "its document cannot be used: it is Swagger 2.0; convert it to OpenAPI 3.0 or 3.1"),
        ("openapi: 4.0.0", "its document cannot be used: it is OpenAPI 4.0.0, not 3.0 or 3.1"),
        ("info: {}", "its document cannot be used: it has no `openapi` key with the version, 3.0 or 3.1"),
        ("openapi: 3.0", "its document has no `paths`"),
        ("openapi: 3.1.0\npaths: {}", "its document has no operations"),
        (
            "{\"openapi\": ",
            "its document cannot be used: it is not JSON: EOF while parsing a value at line 1 column 12",
        ),
    ] {
        assert_eq!(reason(text).await, expected);
    }
    let html = reason("<html>").await;
    assert_eq!(html, "its document cannot be used: it has no `openapi` key with the version, 3.0 or 3.1");
}

#[tokio::test]
async fn references_that_lead_nowhere_leave_their_operation_out() {
    let server = Server::echo().await;
    let refer = |reference: &str| json!({"operationId": reference, "parameters": [{ "$ref": reference }]});
    let text = |reference: &str| {
        let mut text = document(json!({"/x": {"get": refer(reference)}}));
        text["components"] = json!({"parameters": {
            "A": {"$ref": "#/components/parameters/B"}, "B": {"$ref": "#/components/parameters/A"},
        }});
        text
    };
    for (reference, expected) in [
        ("#/components/parameters/None", "`#/components/parameters/None` refers to nothing"),
        ("common.yaml#/Id", "`common.yaml#/Id` refers to another document; bundle both into one"),
        ("#/components/parameters/A", "more than 16 references lead to one value, which may be a cycle"),
    ] {
        let reason = server.api(&text(reference)).reason().await;
        assert!(reason.starts_with("no operation can be used; `") && reason.ends_with(expected), "{reason}");
    }
    let mut mixed = text("#/components/parameters/None");
    mixed["paths"]["/y"] = json!({"get": {"operationId": "good"}});
    assert_eq!(names(server.api(&mixed).toolset()).await, ["good"]);
}

#[tokio::test]
async fn what_cannot_be_sent_is_told() {
    let server = Server::echo().await;
    let parameter = |location: &str, style: &str| json!([{"name": "p", "in": location, "style": style, "schema": {}}]);
    for (operation_json, expected) in [
        (
            json!({"parameters": parameter("path", "form")}),
            "the parameter `p` in path has the style `form`, which is not supported",
        ),
        (
            json!({"parameters": parameter("body", "form")}),
            "the parameter `p` is in no location that OpenAPI 3 defines",
        ),
        (
            json!({"requestBody": {"content": {"multipart/mixed": {}}}}),
            "its body is multipart/mixed, which is not supported",
        ),
    ] {
        let reason = server.api(&operation(operation_json)).reason().await;
        assert_eq!(reason, format!("no operation can be used; `op`: {expected}"));
    }
}

#[tokio::test]
async fn a_name_in_a_path_that_is_no_parameter_is_not_sent_as_it_is() {
    let server = Server::echo().await;
    let declared =
        json!([{"name": "petID", "in": "path", "schema": {"type": "string"}}, {"name": "tag", "in": "query"}]);
    for (path, name) in [("/pets/{petId}", "petId"), ("/pets/{petID}/{tag}", "tag"), ("/pets?q={word}#{petID}", "word")]
    {
        let operation = json!({"get": {"operationId": "op", "parameters": declared}});
        let reason = server.api(&document(json!({ path: operation }))).reason().await;
        let expected = format!("`op`: its path has `{{{name}}}`, which is none of its parameters `in: path`");
        assert_eq!(reason, format!("no operation can be used; {expected}"));
    }
}

#[tokio::test]
async fn two_thousand_operations_need_a_choice() {
    let server = Server::echo().await;
    let paths = (0..2_000).map(|number| {
        let tag = format!("t{}", number / 100);
        (format!("/p{number}"), json!({"get": {"operationId": format!("op{number}"), "tags": [tag]}}))
    });
    let api = server.api(&document(Value::Object(paths.collect())));
    assert_eq!(
        api.reason().await,
        "2000 operations are selected, of at most 128; choose some of them by name (`tools`) or by tag (`tags`), or raise \
         `max_tools`"
    );
    let selection = Selection { names: None, tags: Some(["t7".to_owned()].into()) };
    let toolset = api.toolset_with(ToolsetOptions { selection, ..ToolsetOptions::default() });
    assert_eq!(names(toolset).await.len(), 100);
}

#[tokio::test]
async fn a_schema_that_is_too_large_leaves_its_operation_out() {
    let server = Server::echo().await;
    let values: Vec<_> = (0..10_000).map(|number| format!("value-{number}")).collect();
    let large = json!({"parameters": [{"name": "p", "in": "query", "schema": {"enum": values}}]});
    let reason = server.api(&operation(large)).reason().await;
    let too_large = "no operation can be used; `op`: the schema of its parameters is larger than 64 KiB";
    assert_eq!(reason, too_large);
    let names: Vec<_> = (0..10_000).map(|number| format!("name-{number}")).collect();
    let body = |schema: Value| json!({"requestBody": {"content": {"application/json": {"schema": schema}}}});
    let text = "x".repeat(1_000);
    let described = (0..100).map(|number| json!({"name": format!("p{number}"), "in": "query", "description": text}));
    for large in [
        body(json!({"type": "array", "items": {"required": names}})),
        body(json!({"type": "array", "items": {"anyOf": vec![false; 11_500]}})),
        json!({"parameters": described.collect::<Vec<_>>()}),
    ] {
        assert_eq!(server.api(&operation(large)).reason().await, too_large);
    }
    let many: Vec<_> = (0..257).map(|number| json!({"name": format!("p{number}"), "in": "query"})).collect();
    let reason = server.api(&operation(json!({"parameters": many}))).reason().await;
    assert_eq!(reason, "no operation can be used; `op`: it has more than 256 parameters");
    // Each schema refers twice to the next one: written out, they would fill the memory.
    let name = |number: u32| format!("#/components/schemas/S{number}");
    let schemas = (0..40).map(|number| {
        let next = json!({ "$ref": name(number + 1) });
        (format!("S{number}"), json!({"type": "object", "properties": {"a": next, "b": next}}))
    });
    let mut schemas: serde_json::Map<_, _> = schemas.collect();
    schemas.insert("S40".into(), json!({"type": "string"}));
    let mut text = operation(json!({"parameters": [{"name": "p", "in": "query", "schema": {"$ref": name(0)}}]}));
    text["components"] = json!({ "schemas": schemas });
    assert_eq!(server.api(&text).schema("op").await["$defs"].as_object().unwrap().len(), 41);
}

#[tokio::test]
async fn a_document_is_read_up_to_its_limit() {
    let large = format!("openapi: 3.1.0\n# {}", "x".repeat(50 << 20));
    let server = Server::start(|_| axum::response::IntoResponse::into_response("x".repeat(50 << 20))).await;
    let mut api = server.api_from_text(&large);
    let expected = "its document is larger than 8388608 bytes; raise `max_document` to allow more";
    assert_eq!(api.reason().await, expected);
    api.config.document = DocumentSource::Url(server.url("/openapi.json"));
    assert_eq!(api.reason().await, expected);
    api.config.document = DocumentSource::Url("http://10.0.0.1/openapi.json".into());
    assert_eq!(api.reason().await, "requests to `10.0.0.1:80` are not allowed");
    api.config.document = DocumentSource::File("/nowhere/openapi.json".into());
    let missing = "its document cannot be read: /nowhere/openapi.json: No such file or directory (os error 2)";
    assert_eq!(api.reason().await, missing);
}

#[tokio::test]
async fn small_values_count_with_the_memory_that_they_take() {
    let text = format!("{{\"openapi\": \"3.1.0\", \"x\": [0{}]}}", ",0".repeat(1 << 20));
    let reason = reason(&text).await;
    assert!(reason.contains("it expands to far more values than its size suggests"), "{reason}");
}

#[tokio::test]
async fn operations_of_the_same_name_are_numbered_in_a_large_document_too() {
    let server = Server::echo().await;
    let paths = (0..20_000).map(|number| (format!("/p{number}"), json!({"get": {"operationId": "op"}})));
    let api = server.api(&document(Value::Object(paths.collect())));
    let selection = Selection { names: Some(["op_20000".to_owned()].into()), tags: None };
    let toolset = api.toolset_with(ToolsetOptions { selection, ..ToolsetOptions::default() });
    assert_eq!(Calls::new(toolset, &[("op_20000", json!({}))]).await.response().await["path"], "/v1/p19999");
}

#[tokio::test]
async fn a_trace_is_not_a_tool() {
    let server = Server::echo().await;
    let reason = server.api(&document(json!({"/x": {"trace": {"operationId": "spy"}}}))).reason().await;
    assert_eq!(reason, "its document has no operations");
}

#[tokio::test]
async fn a_document_that_is_elsewhere_or_missing_is_told() {
    let server = Server::start(|request| match request["path"].as_str() {
        Some("/moved") => {
            axum::response::IntoResponse::into_response(axum::response::Redirect::to("http://10.0.0.1/openapi.json"))
        }
        _ => axum::response::IntoResponse::into_response(axum::http::StatusCode::NOT_FOUND),
    })
    .await;
    let mut api = server.api_from_text("");
    api.config.document = DocumentSource::Url(server.url("/none"));
    assert_eq!(api.reason().await, "its document cannot be read: the answer has the status 404 Not Found");
    api.config.document = DocumentSource::Url(server.url("/moved"));
    assert_eq!(
        api.reason().await,
        "its document cannot be read: it redirects to `http://10.0.0.1/openapi.json`; the host follows redirects only for \
         read requests to the same server"
    );
}
