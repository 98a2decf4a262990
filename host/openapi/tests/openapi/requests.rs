//! How arguments become requests.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{ArtifactService, Blob, JsonMap, Part, PartData, Services, SessionKey, StoreError};
use hatchery_engine::Runner;
use hatchery_test_support::{SESSION, USER, services};
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
    let api = server.api_from_text(text);
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
async fn a_path_has_parameters_in_every_style() {
    let server = Server::echo().await;
    let parameter = |name: &str, style: &str| json!({"name": name, "in": "path", "style": style, "schema": {}});
    let parameters = [parameter("id", "matrix"), parameter("format", "label")];
    let paths = json!({"/pets{id}/photo{format}": {"get": {"operationId": "op", "parameters": parameters}}});
    let api = server.api(&document(paths));
    assert_eq!(api.call("op", json!({"id": [1, 2], "format": "png"})).await["path"], "/v1/pets;id=1,2/photo.png");
    let error = api.error("op", json!({"id": 1, "format": ""})).await;
    assert_eq!(error, "`format` is empty, and it is a part of the path");
}

#[tokio::test]
async fn the_fields_of_a_form_have_the_style_of_their_encoding() {
    let server = Server::echo().await;
    let fields = json!({"type": "object", "properties": {
        "metadata": {"type": "object"}, "items": {"type": "array", "items": {"type": "object"}},
        "tags": {"type": "array", "items": {"type": "string"}}, "plain": {"type": "object"},
    }});
    let encoding = json!({
        "metadata": {"style": "deepObject", "explode": true}, "items": {"style": "deepObject", "explode": true},
        "tags": {"explode": false},
    });
    let form = json!({"application/x-www-form-urlencoded": {"schema": fields, "encoding": encoding}});
    let operation = json!({"post": {"operationId": "op", "requestBody": {"content": form}}});
    let args = json!({
        "metadata": {"order": "1 2"}, "items": [{"price": "p1"}, {"price": "p2"}], "tags": ["a", "b"], "plain": {"x": 1},
    });
    let request = server.api(&document(json!({"/charges": operation}))).call("op", args).await;
    let mut pairs: Vec<_> = request["body"].as_str().unwrap().split('&').collect();
    pairs.sort_unstable();
    let expected = [
        "items%5B0%5D%5Bprice%5D=p1",
        "items%5B1%5D%5Bprice%5D=p2",
        "metadata%5Border%5D=1%202",
        "plain=%7B%22x%22%3A1%7D",
        "tags=a,b",
    ];
    assert_eq!(pairs, expected);
}

#[tokio::test]
async fn a_path_with_a_query_has_parameters_in_both() {
    let server = Server::echo().await;
    let parameter = |name: &str| json!({"name": name, "in": "path", "schema": {"type": "string"}});
    let limit = json!({"name": "limit", "in": "query", "schema": {"type": "integer"}});
    let parameters = [parameter("shop"), parameter("word"), limit];
    let paths = json!({"/{shop}/pets?q={word}#find": {"get": {"operationId": "op", "parameters": parameters}}});
    let request = server.api(&document(paths)).call("op", json!({"shop": "a?b", "word": "x&y", "limit": 3})).await;
    assert_eq!(request["path"], "/v1/a%3Fb/pets");
    assert_eq!(request["query"], "q=x%26y&limit=3");
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
async fn constants_of_a_body_are_sent_and_are_no_arguments_as_the_guide_shows() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tools.md")).unwrap();
    let (_, document) = guide.split_once("```yaml\n# rag.yaml\n").unwrap();
    let (document, _) = document.split_once("```").unwrap();
    let server = Server::echo().await;
    let api = server.api_from_text(document);
    let schema = api.schema("search_corpus").await;
    let arguments: Vec<&str> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(arguments, ["query"]);
    assert_eq!(schema["required"], json!(["query"]));
    let request = api.call("search_corpus", json!({"query": {"text": "leave"}})).await;
    assert_eq!(request["path"], "/v1/projects/my-project/locations/europe-west4:retrieveContexts");
    let corpus = "projects/my-project/locations/europe-west4/ragCorpora/123";
    let store = json!({"ragResources": [{"ragCorpus": corpus}], "vectorDistanceThreshold": 0.5});
    let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
    assert_eq!(body, json!({"vertexRagStore": store, "query": {"text": "leave"}}));
    let refused = api.error("search_corpus", json!({"query": {"text": "x"}, "vertexRagStore": {}})).await;
    assert!(refused.starts_with("the arguments do not match the parameters of `search_corpus`"), "{refused}");
}

#[tokio::test]
async fn a_required_body_is_sent_without_properties_and_an_optional_one_is_not() {
    let server = Server::echo().await;
    let body = |is_required: bool| {
        let schema = json!({"type": "object", "properties": {"after": {"type": "string"}}});
        json!({"required": is_required, "content": {"application/json": {"schema": schema}}})
    };
    let api = server.api(&document(json!({
        "/search": {"post": {"operationId": "search", "requestBody": body(true)}},
        "/refresh": {"post": {"operationId": "refresh", "requestBody": body(false)}},
    })));
    let search = api.call("search", json!({})).await;
    assert_eq!((&search["body"], &search["headers"]["content-type"]), (&json!("{}"), &json!("application/json")));
    let refresh = api.call("refresh", json!({})).await;
    assert_eq!((&refresh["body"], refresh["headers"].get("content-type")), (&json!(""), None));
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

/// An API with an operation for each kind of body.
async fn uploads() -> Api {
    let file = json!({"type": "string", "format": "binary"});
    let files = json!({"type": "object", "properties": {"files": {"type": "array", "items": file}}});
    let body = |media_type: &str, schema: Value| json!({"required": true, "content": {media_type: {"schema": schema}}});
    let (text, list) = (json!({"type": "string"}), json!({"type": "array", "items": {"type": "string"}}));
    let fields = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let post = |id: &str, body: Value| json!({"post": {"operationId": id, "requestBody": body}});
    Server::start(|_| axum::response::IntoResponse::into_response("ok")).await.api(&document(json!({
        "/files": post("files", body("multipart/form-data", files)),
        "/file": post("file", body("application/octet-stream", json!({}))),
        "/json": post("json", body("application/json", list)),
        "/text": post("text", body("text/plain", text)),
        "/form": post("form", body("application/x-www-form-urlencoded", fields)),
    })))
}

async fn save(calls: &Calls, name: &str, bytes: usize) {
    let key = SessionKey::new("app", USER, SESSION);
    let data = vec![b'x'; bytes].into();
    let blob = Blob { mime_type: "application/octet-stream".into(), data, display_name: None };
    let part = Part::from(PartData::InlineData(blob));
    calls.harness.runner.services().artifacts.save(&key, name, &part).await.unwrap();
}

#[tokio::test]
async fn a_body_has_a_limit_in_every_encoding() {
    let api = uploads().await;
    let too_large = |limit: usize| {
        format!("the request is larger than {limit} bytes, so it was not sent; send less, or fewer files")
    };
    let calls = Calls::new(
        api.toolset(),
        &[("files", json!({"files": ["a", "a", "a"]})), ("files", json!({"files": ["a", "a"]}))],
    )
    .await;
    save(&calls, "a", 6 << 20).await;
    assert_eq!(error(&calls.response().await), too_large(16 << 20));
    assert_eq!(calls.response().await, json!({"result": "ok"}));

    let mut api = uploads().await;
    api.config.limits.max_request = 64;
    let long = "x".repeat(80);
    for (name, args) in [
        ("files", json!({"files": ["a"]})),
        ("file", json!({"body": "a"})),
        ("json", json!({"body": [long]})),
        ("text", json!({"body": long})),
        ("form", json!({"a": long})),
    ] {
        let calls = Calls::new(api.toolset(), &[(name, args)]).await;
        save(&calls, "a", 65).await;
        assert_eq!(error(&calls.response().await), too_large(64), "{name}");
    }
    assert_eq!(api.call("text", json!({"body": "x".repeat(64)})).await, json!({"result": "ok"}));
}

#[tokio::test]
async fn a_request_has_at_most_a_hundred_files() {
    let api = uploads().await;
    let calls = |count: usize| ("files", json!({"files": vec!["a"; count]}));
    let calls = Calls::new(api.toolset(), &[calls(101), calls(100)]).await;
    save(&calls, "a", 1).await;
    let expected = "the request has more than 100 files, so it was not sent; send fewer";
    assert_eq!(error(&calls.response().await), expected);
    assert_eq!(calls.response().await, json!({"result": "ok"}));
}

/// An artifact service that cannot read any artifact.
struct SlowArtifacts;

#[async_trait]
impl ArtifactService for SlowArtifacts {
    async fn save(&self, _: &SessionKey, name: &str, _: &Part) -> Result<u64, StoreError> {
        Err(StoreError::InvalidRequest(name.into()))
    }

    async fn load(&self, _: &SessionKey, _: &str, _: Option<u64>) -> Result<Option<Part>, StoreError> {
        std::future::pending().await
    }

    async fn list(&self, _: &SessionKey) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn versions(&self, _: &SessionKey, _: &str) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn delete(&self, _: &SessionKey, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

#[tokio::test]
async fn the_timeout_of_a_call_includes_reading_its_files() {
    let mut api = uploads().await;
    api.config.limits.call_timeout = Duration::from_millis(50);
    let mut calls = Calls::new(api.toolset(), &[("file", json!({"body": "a"}))]).await;
    let runner = Runner::new(Services { artifacts: Arc::new(SlowArtifacts), ..services() });
    runner.services().sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    calls.harness.runner = runner;
    let expected = "the files of the request were not read within 0.05 s, so it was not sent";
    assert_eq!(error(&calls.response().await), expected);
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
