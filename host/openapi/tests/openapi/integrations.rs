//! Integrations and connections of Google Cloud, with a server in their place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hatchery_core::ConfigValue;
use hatchery_engine::Extensions;
use hatchery_openapi::{Apis, Credentials, DocumentSource, EntityOperation, Integration, IntegrationResource};
use hatchery_test_support::map;
use serde_json::{Value, json};

use crate::support::*;

const PARENT: &str = "projects/p/locations/us-central1";

fn api(server: &Server, resource: IntegrationResource) -> Api {
    let mut api = server.api(&json!({}));
    api.config.base_url = None;
    api.config.credentials = Credentials::Bearer(ConfigValue::Text("g00gle-token".into()));
    api.config.document = DocumentSource::Integration(Box::new(Integration {
        project: "p".into(),
        location: "us-central1".into(),
        resource,
        instructions: "Be careful.".into(),
        endpoint: Some(server.url("")),
    }));
    api
}

fn connection(entities: &[(&str, &[EntityOperation])], actions: &[&str]) -> IntegrationResource {
    IntegrationResource::Connection {
        name: "jira".into(),
        entity_operations: entities
            .iter()
            .map(|(name, operations)| ((*name).to_owned(), operations.to_vec()))
            .collect(),
        actions: actions.iter().map(|action| (*action).to_owned()).collect(),
    }
}

/// A server with the connection `jira`, whose connector answers the second time that it is asked for a result.
async fn google() -> Server {
    let asked = Arc::new(AtomicUsize::new(0));
    Server::start(move |request| {
        let path = request["path"].as_str().unwrap().to_owned();
        let done = |response: Value| axum::Json(json!({"done": true, "response": response})).into_response();
        match path.strip_prefix("/v1/").unwrap_or(&path) {
            "projects/p/locations/us-central1/connections/jira" => axum::Json(json!({
                "name": format!("{PARENT}/connections/jira"), "serviceDirectory": "plain", "tlsServiceDirectory": "tls",
                "host": "jira.internal",
            }))
            .into_response(),
            path if path.ends_with(":getEntityType") => {
                axum::Json(json!({"name": "operations/entity"})).into_response()
            }
            path if path.ends_with(":getAction") => match request["query"].as_str() {
                Some("actionId=ExecuteCustomQuery") => done(json!({"displayName": "Execute Custom Query"})),
                _ => done(json!({
                    "displayName": "Assign Issue", "description": "Assigns.",
                    "inputJsonSchema": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
                })),
            },
            "operations/entity" => match asked.fetch_add(1, Ordering::SeqCst) {
                0 => axum::Json(json!({"done": false})).into_response(),
                _ => done(json!({
                    "operations": ["LIST", "GET", "CREATE", "UPDATE", "DELETE"],
                    "jsonSchema": {"type": "object", "properties": {"summary": {"type": ["string", "null"]}}},
                })),
            },
            _ => axum::Json(request).into_response(),
        }
    })
    .await
}

#[tokio::test]
async fn a_connection_has_a_tool_for_each_operation_and_action() {
    let server = google().await;
    let entities: [(&str, &[EntityOperation]); 1] = [("Issues", &[])];
    let api = api(&server, connection(&entities, &["AssignIssue", "ExecuteCustomQuery"]));
    let tools = declarations(api.toolset()).await;
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    let expected = [
        "list_issues",
        "get_issues",
        "create_issues",
        "update_issues",
        "delete_issues",
        "AssignIssue",
        "ExecuteCustomQuery",
    ];
    assert_eq!(names, expected);
    assert_eq!(tools[1].description, "Returns one entity of the type Issues. Be careful.");
    assert_eq!(tools[5].description, "Assigns. Be careful.");
    let schema = |index: usize| tools[index].parameters.clone().unwrap();
    let arguments =
        |index: usize| -> Vec<String> { schema(index)["properties"].as_object().unwrap().keys().cloned().collect() };
    assert_eq!(arguments(0), ["filterClause", "pageSize", "pageToken", "sortByColumns"]);
    assert_eq!(
        (arguments(3), &schema(3)["required"]),
        (
            vec!["connectorInputPayload".to_owned(), "entityId".into(), "filterClause".into()],
            &json!(["connectorInputPayload", "entityId"]),
        )
    );
    assert_eq!(arguments(6), ["query", "timeout", "pageSize"]);
}

#[tokio::test]
async fn a_call_executes_the_connection_with_what_identifies_it() {
    let server = google().await;
    let api = api(&server, connection(&[("Issues", &[EntityOperation::Create])], &["AssignIssue"]));
    let args = json!({"connectorInputPayload": {"summary": "Broken"}});
    let request = api.call("create_issues", args).await;
    assert_eq!(request["path"], format!("/v2/{PARENT}/integrations/ExecuteConnection:execute"));
    assert_eq!(request["query"], "triggerId=api_trigger/ExecuteConnection");
    assert_eq!((&request["method"], &request["headers"]["authorization"]), (&json!("POST"), &json!("Bearer [hidden]")));
    let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
    assert_eq!(
        body,
        json!({
            "connectionName": format!("{PARENT}/connections/jira"), "serviceName": "tls", "host": "jira.internal",
            "operation": "CREATE_ENTITY", "entity": "Issues", "connectorInputPayload": {"summary": "Broken"},
        })
    );
    let request = api.call("AssignIssue", json!({"connectorInputPayload": {"to": "ada"}})).await;
    let body: Value = serde_json::from_str(request["body"].as_str().unwrap()).unwrap();
    assert_eq!((&body["operation"], &body["action"]), (&json!("EXECUTE_ACTION"), &json!("AssignIssue")));
    let metadata =
        server.requests().into_iter().find(|request| request["path"].as_str().unwrap().ends_with(":getEntityType"));
    assert_eq!(metadata.unwrap()["query"], "entityId=Issues");
}

#[tokio::test]
async fn an_integration_has_a_tool_for_each_trigger() {
    let server = Server::start(|request| match request["path"].as_str() {
        Some("/v1/projects/p/locations/us-central1:generateOpenApiSpec") => {
            let path = "/v2/projects/p/locations/us-central1/integrations/orders:execute?triggerId=api_trigger/new";
            let body =
                json!({"content": {"application/json": {"schema": {"properties": {"item": {"type": "string"}}}}}});
            let mut document = document(json!({ path: {"post": {"operationId": "new_order", "requestBody": body}} }));
            document["servers"] = json!([{"url": "https://integrations.googleapis.com"}]);
            axum::Json(json!({"openApiSpec": document.to_string()})).into_response()
        }
        _ => axum::Json(request).into_response(),
    })
    .await;
    let resource = IntegrationResource::Integration { name: "orders".into(), triggers: vec!["api_trigger/new".into()] };
    let api = api(&server, resource);
    let request = api.call("new_order", json!({"item": "tea"})).await;
    assert_eq!(
        (&request["query"], &request["body"]),
        (&json!("triggerId=api_trigger/new"), &json!("{\"item\":\"tea\"}"))
    );
    let asked: Value = serde_json::from_str(server.requests()[0]["body"].as_str().unwrap()).unwrap();
    let resource = json!({"integrationResource": "orders", "triggerId": ["api_trigger/new"]});
    assert_eq!(asked, json!({"apiTriggerResources": [resource], "fileFormat": "JSON"}));
}

#[tokio::test]
async fn the_document_of_an_integration_has_the_limit_of_documents() {
    let large =
        || axum::Json(json!({"openApiSpec": format!("openapi: 3.1.0\n# {}", "x".repeat(2 << 20))})).into_response();
    let server = Server::start(move |_| large()).await;
    let resource = || IntegrationResource::Integration { name: "orders".into(), triggers: Vec::new() };
    let mut api = api(&server, resource());
    assert_eq!(api.reason().await, "its document has no `paths`");
    api.config.limits.max_document = 1 << 20;
    let expected = "its document is larger than 1048576 bytes; raise `max_document` to allow more";
    assert_eq!(api.reason().await, expected);
}

#[tokio::test]
async fn a_location_cannot_become_another_host() {
    let server = google().await;
    for (project, location, key) in
        [("p", "evil.example/x", "location"), ("p", "us.a", "location"), ("p/../q", "us", "project")]
    {
        let mut api = api(&server, connection(&[], &["AssignIssue"]));
        let DocumentSource::Integration(integration) = &mut api.config.document else { unreachable!() };
        (integration.project, integration.location) = (project.into(), location.into());
        let value = if key == "project" { project } else { location };
        let expected = format!("`integration` is invalid: `{value}` is not the id of a {key} of Google Cloud");
        assert_eq!(api.reason().await, expected);
    }
    assert_eq!(server.requests(), Vec::<Value>::new());
}

#[tokio::test]
async fn a_refusal_names_what_to_check() {
    let failing = |answer: fn() -> Response| async move {
        let server = Server::start(move |_| answer()).await;
        api(&server, connection(&[("Issues", &[])], &[])).reason().await
    };
    let reason = failing(|| (StatusCode::NOT_FOUND, "no such connection").into_response()).await;
    assert_eq!(
        reason,
        "its document cannot be read: invalid request (status 404): check the values of project (p), location (us-central1) and \
         connection (jira): no such connection"
    );
    let reason = failing(|| StatusCode::FORBIDDEN.into_response()).await;
    assert_eq!(reason, "its document cannot be read: permission error (status 403): ");
    let reason = failing(|| "<html>".into_response()).await;
    assert!(reason.starts_with("its document cannot be read: the answer is not JSON"), "{reason}");
    let reason = failing(|| axum::Json(json!({"done": true, "error": {"message": "no entity"}})).into_response()).await;
    assert_eq!(reason, "its document cannot be read: `getEntityType` of `Issues` failed: no entity");
}

#[tokio::test]
async fn an_agent_names_a_configured_integration() {
    let server = google().await;
    let api = api(&server, connection(&[("Issues", &[EntityOperation::Get])], &[]));
    let apis = Apis::integrations([("jira".to_owned(), api.config.clone())]);
    let mut extensions = Extensions::default();
    apis.register(&mut extensions);
    let create = |name: &str, args: Value| extensions.toolsets.create(name, map(args)).unwrap();
    let args = json!({"integration": "jira", "tool_name_prefix": "jira_"});
    let toolset = create("ApplicationIntegrationToolset", args).unwrap();
    assert_eq!(
        (toolset.name(), names(toolset.clone()).await),
        ("integration:jira", vec!["jira_get_issues".to_owned()])
    );
    let error = |args: Value| create("ApplicationIntegrationToolset", args).err().unwrap();
    assert_eq!(
        error(json!({})),
        "`args.integration` is missing: the name of an integration in hatchery.yaml; available: `jira`"
    );
    assert_eq!(
        error(json!({"integration": "crm"})),
        "hatchery.yaml has no integration `crm`; available: `jira`; add it there below `integrations`"
    );
    let inline = error(json!({"project": "p", "location": "l", "integration": "orders"}));
    assert!(
        inline.contains("Add the integration to hatchery.yaml:\n\nintegrations:\n  NAME:\n    project: "),
        "{inline}"
    );
}
