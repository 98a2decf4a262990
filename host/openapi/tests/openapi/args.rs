//! References of agents to configured APIs.

use hatchery_engine::Extensions;
use hatchery_openapi::Apis;
use hatchery_test_support::map;
use serde_json::{Value, json};

use crate::support::*;

fn register(apis: &Apis) -> Extensions {
    let mut extensions = Extensions::default();
    apis.register(&mut extensions);
    extensions
}

#[tokio::test]
async fn an_agent_names_a_configured_api() {
    let server = Server::echo().await;
    let paths = json!({"/a": {"get": {"operationId": "a", "tags": ["t"]}}, "/b": {"put": {"operationId": "b"}}});
    let api = server.api(&document(paths));
    let apis = Apis::new([("shop".to_owned(), api.config.clone())]);
    let extensions = register(&apis);
    let create = |name: &str, args: Value| extensions.toolsets.create(name, map(args)).unwrap();
    let error = |args: Value| create("OpenAPIToolset", args).err().unwrap();
    assert_eq!(error(json!({})), "`args.api` is missing: the name of an API in hatchery.yaml; available: `shop`");
    assert_eq!(
        error(json!({"api": "bank"})),
        "hatchery.yaml has no API `bank`; available: `shop`; add it there below `openapi.apis`"
    );
    assert!(error(json!({"api": "shop", "tools": []})).contains("unknown field `tools`"));
    assert_eq!(apis.statuses()[0].state, "idle");
    let all = create("openapi:shop", json!({})).unwrap();
    assert_eq!((all.name(), names(all.clone()).await), ("openapi:shop", vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(
        (apis.statuses()[0].state, apis.statuses()[0].operations.clone()),
        ("ready", vec!["a".into(), "b".into()])
    );
    let tagged = create("OpenAPIToolset", json!({"api": "shop", "tags": ["t"], "tool_name_prefix": "my_"})).unwrap();
    assert_eq!(names(tagged).await, ["my_a"]);
    let writes = json!({"api": "shop", "toolFilter": ["b"], "requireConfirmation": "writes"});
    let calls = Calls::new(create("OpenApiToolset", writes).unwrap(), &[("b", json!({}))]).await;
    assert_eq!(
        crate::support::error(&calls.response().await),
        "This tool call requires confirmation, please approve or reject."
    );
}

#[tokio::test]
async fn the_state_of_an_api_shows_no_path_of_the_host() {
    let mut api = Server::echo().await.api(&document(json!({})));
    api.config.document = hatchery_openapi::DocumentSource::File("/srv/secret/openapi.json".into());
    let apis = Apis::new([("shop".to_owned(), api.config.clone())]);
    let toolset = register(&apis).toolsets.create("openapi:shop", map(json!({}))).unwrap().unwrap();
    Calls::new(toolset, &[("x", json!({}))]).await.harness.expect_error("go").await;
    let status = apis.statuses().remove(0);
    let reason = "its document cannot be read: openapi.json: No such file or directory (os error 2)";
    assert_eq!((status.state, status.reason.as_deref()), ("down", Some(reason)));
}

#[test]
fn an_agent_brings_no_document_and_no_credentials_of_its_own() {
    let extensions = register(&Apis::default());
    for key in ["spec_str", "specDict", "auth_credential"] {
        let error = extensions.toolsets.create("OpenAPIToolset", map(json!({ key: "x" }))).unwrap().err().unwrap();
        let expected = format!(
            "`{key}`: an agent cannot send requests or credentials of its own. Add the API to hatchery.yaml:\n\n"
        );
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn an_api_that_must_not_be_used_is_explained() {
    let apis = Apis::default().with_refused([("shop".to_owned(), "it is not trusted".to_owned())]);
    let extensions = register(&apis);
    let create = |name: &str, args: Value| extensions.toolsets.create(name, map(args)).unwrap().err().unwrap();
    assert_eq!(create("OpenAPIToolset", json!({"api": "shop"})), "it is not trusted");
    assert_eq!(create("openapi:shop", json!({})), "it is not trusted");
    assert_eq!(
        (apis.statuses()[0].state, apis.statuses()[0].reason.as_deref()),
        ("refused", Some("it is not trusted"))
    );
}
