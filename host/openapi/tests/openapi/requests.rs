//! How arguments become requests.

use std::sync::Arc;

use hatchery_core::{Blob, Part, PartData, SessionKey};
use hatchery_test_support::{SESSION, USER};
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test]
async fn parameters_are_in_the_path_the_query_headers_and_cookies() {
    let server = Server::echo().await;
    let text = "openapi: 3.0.3\npaths:\n  /pets/{id}/{tags}:\n    parameters:\n      - {$ref: '#/components/parameters/Id'}\n    \
                get:\n      operationId: findPets\n      parameters:\n        \
                - {name: tags, in: path, required: true, schema: {type: array, items: {type: string}}}\n        \
                - {name: limit, in: query, schema: {type: integer}}\n        \
                - {name: sort, in: query, explode: false, schema: {type: array, items: {type: string}}}\n        \
                - {name: filter, in: query, style: deepObject, schema: {type: object}}\n        \
                - {name: X-Request-ID, in: header, schema: {type: string}}\n        \
                - {name: theme, in: cookie, schema: {type: string}}\n        \
                - {name: Authorization, in: header, schema: {type: string}}\n\
                components: {parameters: {Id: {name: id, in: path, required: true, schema: {type: string}}}}\n";
    let api = server.api_of_text(text);
    let required = api.schema("findPets").await["required"].clone();
    assert_eq!(required, json!(["tags", "id"]));
    let args = json!({
        "id": "a/b c", "tags": ["x", "y z"], "limit": 3, "sort": ["name", "-age"], "filter": {"kind": "cat", "age": {"min": 2}},
        "X-Request-ID": "r-1", "theme": "dark",
    });
    let request = api.call("findPets", args).await;
    assert_eq!(request["method"], "GET");
    assert_eq!(request["path"], "/v1/pets/a%2Fb%20c/x,y%20z");
    assert_eq!(request["query"], "limit=3&sort=name,-age&filter%5Bkind%5D=cat&filter%5Bage%5D%5Bmin%5D=2");
    assert_eq!(
        (&request["headers"]["x-request-id"], &request["headers"]["cookie"]),
        (&json!("r-1"), &json!("theme=dark"))
    );
    let refused = api.error("findPets", json!({"id": "1", "tags": ["x"], "Authorization": "Bearer mine"})).await;
    assert!(
        refused.starts_with("the arguments do not match the parameters of `findPets`, which has not run"),
        "{refused}"
    );
}

#[tokio::test]
async fn an_argument_cannot_leave_the_path_of_its_operation() {
    let server = Server::echo().await;
    let path = json!([{"name": "id", "in": "path", "required": true, "schema": {"type": "string"}}]);
    let api = server.api(&document(json!({"/pets/{id}/food": {"get": {"operationId": "op", "parameters": path}}})));
    for id in [".", ".."] {
        let error = api.error("op", json!({ "id": id })).await;
        assert_eq!(error, "a part of the path is `.` or `..`, which is not allowed");
    }
    assert_eq!(api.error("op", json!({"id": ""})).await, "`id` is empty, and it is a part of the path");
    assert_eq!(api.call("op", json!({"id": "../admin?x#y"})).await["path"], "/v1/pets/..%2Fadmin%3Fx%23y/food");
    assert_eq!(api.call("op", json!({"id": "%2e%2e"})).await["path"], "/v1/pets/%252e%252e/food");
}

#[tokio::test]
async fn the_properties_of_a_json_body_are_arguments() {
    let server = Server::echo().await;
    let pet = json!({
        "type": "object", "required": ["name", "id"],
        "properties": {
            "id": {"type": "integer", "readOnly": true}, "name": {"type": "string"}, "kind": {"enum": ["cat", "dog"]},
            "parents": {"type": "array", "items": {"$ref": "#/components/schemas/Pet"}},
        },
    });
    let body =
        json!({"required": true, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Pet"}}}});
    let mut document =
        document(json!({"/pets": {"post": {"operationId": "add", "summary": "Adds a pet.", "requestBody": body}}}));
    document["components"] = json!({"schemas": {"Pet": pet}});
    let api = server.api(&document);
    let schema = api.schema("add").await;
    let properties = json!({
        "name": {"type": "string"}, "kind": {"enum": ["cat", "dog"]},
        "parents": {"type": "array", "items": {"$ref": "#/$defs/Pet"}},
    });
    assert_eq!((&schema["properties"], &schema["required"]), (&properties, &json!(["name"])));
    assert_eq!(schema["$defs"]["Pet"], json!({"type": "object", "required": ["name"], "properties": properties}));
    let request = api.call("add", json!({"name": "Rex", "parents": [{"name": "Old Rex"}]})).await;
    assert_eq!(request["headers"]["content-type"], "application/json");
    assert_eq!(request["body"], r#"{"name":"Rex","parents":[{"name":"Old Rex"}]}"#);
    let refused = api.error("add", json!({"name": "Rex", "kind": "cow"})).await;
    assert!(refused.contains("/kind"), "{refused}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn a_body_that_is_no_plain_object_is_one_argument() {
    let server = Server::echo().await;
    let json_body = |schema: Value| json!({"required": true, "content": {"application/json": {"schema": schema}}});
    let list = json_body(json!({"type": "array", "items": {"type": "integer"}}));
    let named = json_body(json!({"type": "object", "properties": {"id": {"type": "string"}}}));
    let id = json!([{"name": "id", "in": "query", "schema": {"type": "string"}}]);
    let text = json!({"content": {"text/plain": {"schema": {"type": "string"}}}});
    let api = server.api(&document(json!({
        "/list": {"put": {"operationId": "list", "requestBody": list}},
        "/named": {"put": {"operationId": "named", "parameters": id, "requestBody": named}},
        "/text": {"put": {"operationId": "text", "requestBody": text}},
    })));
    assert_eq!(api.call("list", json!({"body": [1, 2]})).await["body"], "[1,2]");
    let request = api.call("named", json!({"id": "q", "body": {"id": "b"}})).await;
    assert_eq!((&request["query"], &request["body"]), (&json!("id=q"), &json!(r#"{"id":"b"}"#)));
    let request = api.call("text", json!({"body": "hello"})).await;
    assert_eq!((&request["headers"]["content-type"], &request["body"]), (&json!("text/plain"), &json!("hello")));
    assert_eq!(api.call("text", json!({})).await["body"], "");
}

#[tokio::test]
async fn forms_and_files_are_sent() {
    let server = Server::echo().await;
    let fields = json!({"type": "object", "properties": {"a": {"type": "string"}, "list": {"type": "array", "items": {"type": "integer"}}}});
    let form = json!({"content": {"application/x-www-form-urlencoded": {"schema": fields}}});
    let upload = json!({"type": "object", "required": ["photo"], "properties": {
        "photo": {"type": "string", "format": "binary", "description": "A photo."}, "meta": {"type": "object"}, "title": {"type": "string"},
    }});
    let upload = json!({"required": true, "content": {"multipart/form-data": {"schema": upload}}});
    let raw = json!({"required": true, "content": {"image/*": {}}});
    let api = server.api(&document(json!({
        "/form": {"post": {"operationId": "form", "requestBody": form}},
        "/upload": {"post": {"operationId": "upload", "requestBody": upload}},
        "/raw": {"put": {"operationId": "raw", "requestBody": raw}},
    })));
    assert_eq!(api.call("form", json!({"a": "b c&d", "list": [1, 2]})).await["body"], "a=b%20c%26d&list=1&list=2");

    let photo = json!({"type": "string", "description": "A photo. The name of an artifact, whose content is sent."});
    assert_eq!(api.schema("upload").await["properties"]["photo"], photo);
    let args = json!({"photo": "rex.png", "meta": {"by": "Ada"}, "title": "Rex"});
    let calls =
        Calls::new(api.toolset(), &[("upload", args.clone()), ("upload", args), ("raw", json!({"body": "rex.png"}))])
            .await;
    assert_eq!(error(&calls.response().await), "there is no artifact `rex.png`; there are none");
    let key = SessionKey::new("app", USER, SESSION);
    let blob = Blob { mime_type: "image/png".into(), data: "PNG".into(), display_name: None };
    let part = Part::from(PartData::InlineData(blob));
    calls.harness.runner.services().artifacts.save(&key, "rex.png", &part).await.unwrap();
    let request = calls.response().await;
    let content_type = request["headers"]["content-type"].as_str().unwrap();
    let boundary = content_type.strip_prefix("multipart/form-data; boundary=").unwrap();
    let expected = "--B\r\ncontent-disposition: form-data; name=\"photo\"; filename=\"rex.png\"\r\ncontent-type: image/png\r\n\r\nPNG\r\n\
                    --B\r\ncontent-disposition: form-data; name=\"meta\"\r\ncontent-type: application/json\r\n\r\n{\"by\":\"Ada\"}\r\n\
                    --B\r\ncontent-disposition: form-data; name=\"title\"\r\n\r\nRex\r\n--B--\r\n";
    assert_eq!(request["body"].as_str().unwrap().replace(boundary, "B"), expected);
    let request = calls.response().await;
    assert_eq!((&request["headers"]["content-type"], &request["body"]), (&json!("image/png"), &json!("PNG")));
}

#[tokio::test]
async fn the_server_of_the_document_is_used_with_its_variables() {
    let server = Server::echo().await;
    let mut document = operation(json!({}));
    document["servers"] = json!([{
        "url": format!("http://{{host}}/{{stage}}"),
        "variables": {"host": {"default": server.address}, "stage": {"default": "test", "enum": ["test", "live"]}},
    }]);
    let mut api = server.api(&document);
    api.config.base_url = None;
    assert_eq!(api.call("op", json!({})).await["path"], "/test/x");
    api.config.server_variables = [("stage".to_owned(), "live".to_owned())].into();
    assert_eq!(api.call("op", json!({})).await["path"], "/live/x");
    api.config.server_variables = [("stage".to_owned(), "old".to_owned())].into();
    assert_eq!(
        api.reason().await,
        "no operation can be used; `op`: the server variable `stage` is `old`, which is not one of test, live"
    );
    document["servers"] = json!([{"url": "/relative"}]);
    let mut api = server.api(&document);
    api.config.base_url = None;
    assert_eq!(
        api.reason().await,
        "no operation can be used; `op`: its server `/relative` has no host; set `base_url` of the API"
    );
}

#[tokio::test]
async fn a_document_at_a_url_is_read_once_and_its_servers_are_relative_to_it() {
    let document = Arc::new(operation(json!({})));
    let answer = document.clone();
    let server = Server::start(move |request| match request["path"].as_str() {
        Some("/docs/openapi.json") => axum::response::IntoResponse::into_response(axum::Json((*answer).clone())),
        _ => axum::response::IntoResponse::into_response(axum::Json(request)),
    })
    .await;
    let mut api = server.api(&document);
    api.config.document = hatchery_openapi::DocumentSource::Url(server.url("/docs/openapi.json"));
    api.config.base_url = None;
    let calls = Calls::new(api.toolset(), &[("op", json!({})), ("op", json!({}))]).await;
    assert_eq!(calls.response().await["path"], "/x");
    assert_eq!(calls.response().await["path"], "/x");
    let paths: Vec<_> = server.requests().iter().map(|request| request["path"].clone()).collect();
    assert_eq!(paths, ["/docs/openapi.json", "/x", "/x"]);
}
