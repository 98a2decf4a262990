//! The tools of a document, as models see them.

use hatchery_openapi::{Confirmation, Selection, ToolsetOptions};
use serde_json::{Value, json};

use crate::support::*;

fn set(names: &[&str]) -> Option<std::collections::BTreeSet<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

#[tokio::test]
async fn each_operation_is_a_tool_with_a_valid_name_of_its_own() {
    let server = Server::echo().await;
    let long = "x".repeat(80);
    let api = server.api(&document(json!({
        "/pets": {
            "get": {"operationId": "listPets", "summary": "Lists pets.", "description": "Of all kinds."},
            "post": {"operationId": "listPets"},
        },
        "/pets/{id}": {"delete": {"parameters": [{"name": "id", "in": "path", "schema": {"type": "string"}}]}},
        "/long": {"get": {"operationId": long}},
        "/adk": {"get": {"operationId": "adk_request_confirmation"}},
        "x-internal": {"get": {"operationId": "no"}},
    })));
    let tools = declarations(api.toolset()).await;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["listPets", "listPets_2", "delete_pets_id", &long[..64], "_adk_request_confirmation"]);
    assert_eq!(tools[0].description, "Lists pets.\nOf all kinds.");
    assert_eq!(tools[2].description, "DELETE /pets/{id}");
    assert_eq!(tools[0].parameters, Some(json!({"type": "object", "properties": {}, "additionalProperties": false})));
}

#[tokio::test]
async fn operations_are_chosen_by_name_and_tag_and_get_a_prefix() {
    let server = Server::echo().await;
    let mut api = server.api(&document(json!({
        "/a": {"get": {"operationId": "a", "tags": ["read"]}},
        "/b": {"get": {"operationId": "b", "tags": ["read", "old"]}},
        "/c": {"get": {"operationId": "c"}},
    })));
    let options = |selection| ToolsetOptions { selection, prefix: "shop_".into(), ..ToolsetOptions::default() };
    let by_name = options(Selection { names: set(&["a", "c", "z"]), tags: None });
    assert_eq!(names(api.toolset_with(by_name)).await, ["shop_a", "shop_c"]);
    let by_tag = || options(Selection { names: None, tags: set(&["read"]) });
    assert_eq!(names(api.toolset_with(by_tag())).await, ["shop_a", "shop_b"]);
    api.config.selection = Selection { names: set(&["b", "c"]), tags: None };
    assert_eq!(names(api.toolset_with(by_tag())).await, ["shop_b"]);
    api.config.selection = Selection { names: set(&["z"]), tags: None };
    assert_eq!(api.reason().await, "no operation is selected; the document has `a`, `b`, `c`");
}

#[tokio::test]
async fn a_person_confirms_calls_that_write_or_that_are_listed() {
    let server = Server::echo().await;
    let mut api = server.api(&document(json!({
        "/x": {"get": {"operationId": "read"}, "delete": {"operationId": "remove"}},
        "/y": {"get": {"operationId": "spy"}},
    })));
    api.config.confirmation = Confirmation::Writes;
    let confirmation = Confirmation::Operations(set(&["spy"]).unwrap());
    let toolset = api.toolset_with(ToolsetOptions { confirmation, ..ToolsetOptions::default() });
    let calls = Calls::new(toolset, &[("read", json!({})), ("remove", json!({})), ("spy", json!({}))]).await;
    assert_eq!(calls.response().await["path"], "/v1/x");
    let waiting = json!({"error": "This tool call requires confirmation, please approve or reject."});
    assert_eq!(calls.response().await, waiting);
    assert_eq!(calls.response().await, waiting);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_confirmation_of_an_unknown_operation_makes_the_api_unavailable() {
    let server = Server::echo().await;
    let mut api =
        server.api(&document(json!({"/x": {"get": {"operationId": "read"}, "delete": {"operationId": "remove"}}})));
    let confirmation = || Confirmation::Operations(set(&["remov", "read"]).unwrap());
    let unknown =
        "`require_confirmation` lists `remov`, which is not an operation of the document; it has `read`, `remove`";
    let toolset = api.toolset_with(ToolsetOptions { confirmation: confirmation(), ..ToolsetOptions::default() });
    let error = Calls::new(toolset, &[("remove", json!({}))]).await.harness.expect_error("go").await.1;
    assert!(error.to_string().ends_with(unknown), "{error}");
    api.config.confirmation = confirmation();
    assert_eq!(api.reason().await, unknown);
    assert_eq!(server.requests(), Vec::<Value>::new());
}

#[tokio::test]
async fn schemas_of_3_0_become_json_schema() {
    let server = Server::echo().await;
    let schema = json!({
        "type": "object", "properties": {
            "age": {"type": "integer", "minimum": 0, "exclusiveMinimum": true, "maximum": 30, "exclusiveMaximum": false, "nullable": true},
            "kind": {"type": "string", "enum": ["cat"], "nullable": true, "example": "cat", "xml": {"name": "k"}},
            "owner": {"allOf": [{"$ref": "#/components/schemas/Owner"}], "nullable": true},
            "code": {"type": "string", "pattern": "^(?!x)a+$"},
        },
    });
    let body = json!({"content": {"application/json": {"schema": schema}}});
    let mut text = document(json!({"/x": {"post": {"operationId": "op", "requestBody": body}}}));
    text["openapi"] = "3.0.3".into();
    text["components"] = json!({"schemas": {"Owner": {"type": "string", "maxLength": 5}}});
    let schema = server.api(&text).schema("op").await;
    let expected = json!({
        "age": {"type": ["integer", "null"], "exclusiveMinimum": 0, "maximum": 30},
        "kind": {"type": ["string", "null"], "enum": ["cat", null]},
        "owner": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Owner"}]}, {"type": "null"}]},
        "code": {"type": "string"},
    });
    assert_eq!(schema["properties"], expected);
    assert_eq!(schema["$defs"], json!({"Owner": {"type": "string", "maxLength": 5}}));
}

#[tokio::test]
async fn a_cycle_of_references_is_one_in_the_schema_too() {
    let server = Server::echo().await;
    let schema = |properties: Value| json!({"type": "object", "properties": properties});
    let to = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
    let body = json!({"required": true, "content": {"application/json": {"schema": to("Node")}}});
    let mut text = document(json!({"/x": {"post": {"operationId": "op", "requestBody": body}}}));
    text["components"] = json!({"schemas": {
        "Node": schema(json!({"value": {"type": "integer"}, "next": to("Other")})),
        "Other": schema(json!({"back": to("Node"), "self": to("Other")})),
    }});
    let api = server.api(&text);
    let schema = api.schema("op").await;
    assert_eq!(schema["properties"]["next"], json!({"$ref": "#/$defs/Other"}));
    assert_eq!(schema["$defs"].as_object().unwrap().keys().collect::<Vec<_>>(), ["Other", "Node"]);
    let args = json!({"next": {"back": {"value": 1, "next": {}}}});
    assert_eq!(api.call("op", args.clone()).await["body"], args.to_string());
    let refused = api.error("op", json!({"next": {"back": {"value": "one"}}})).await;
    assert!(refused.contains("/next/back/value"), "{refused}");
}
