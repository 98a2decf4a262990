//! `GET /openapi.json`: every operation answers as the document says.

use std::collections::{BTreeMap, BTreeSet};

use hatchery::{DevUi, ServerConfig, TriggerSource};
use reqwest::{Method, RequestBuilder, header};
use serde_json::{Value, json};

use crate::support::{Host, run_body};

/// A host with its document.
struct Described {
    host: Host,
    document: Value,
    /// The operations by id, with their methods.
    operations: BTreeMap<String, (Method, Value)>,
    called: BTreeSet<String>,
    /// Differences between answers and their description.
    differences: Vec<String>,
}

impl Described {
    async fn start() -> Self {
        let triggers = vec![TriggerSource::Pubsub, TriggerSource::Eventarc];
        let config = ServerConfig { dev_ui: Some(DevUi::Full), triggers, ..ServerConfig::default() };
        let host = Host::with(config).await;
        let document = host.get_json("/openapi.json").await;
        let items = document["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap());
        let mut operations = BTreeMap::new();
        for (method, operation) in items {
            let id = operation["operationId"].as_str().unwrap().to_owned();
            let method = method.to_uppercase().parse().unwrap();
            assert!(operations.insert(id.clone(), (method, operation.clone())).is_none(), "{id} is listed twice");
        }
        Self { host, document, operations, called: BTreeSet::new(), differences: Vec::new() }
    }

    /// Calls an operation and returns the response, after a check that the document describes it.
    async fn call(&mut self, id: &str, path: &str, body: Option<Value>) -> Value {
        let (method, operation) = self.operations.get(id).unwrap_or_else(|| panic!("the document lacks {id}")).clone();
        self.called.insert(id.to_owned());
        let mut request = self.host.request(method, path);
        if let Some(body) = body {
            self.check(id, &operation["requestBody"]["content"]["application/json"]["schema"], &body);
            request = request.json(&body);
        }
        self.check_response(id, &operation, request).await
    }

    /// Sends a body that is not JSON.
    async fn send(&mut self, id: &str, path: &str, media_type: &str, body: &'static str) -> Value {
        let (method, operation) = self.operations.get(id).unwrap_or_else(|| panic!("the document lacks {id}")).clone();
        self.called.insert(id.to_owned());
        self.check(id, &operation["requestBody"]["content"][media_type]["schema"], &body.into());
        let request = self.host.request(method, path).header(header::CONTENT_TYPE, media_type).body(body);
        self.check_response(id, &operation, request).await
    }

    async fn check_response(&mut self, id: &str, operation: &Value, request: RequestBuilder) -> Value {
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        let content_type = response.headers().get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        let described = match &operation["responses"][status.to_string()] {
            Value::Null if status >= 400 => &operation["responses"]["default"],
            described => described,
        };
        let media_type = content_type.as_deref().unwrap_or_default().split(';').next().unwrap_or_default();
        let body: Value = if media_type.ends_with("json") { serde_json::from_str(&text).unwrap() } else { text.into() };
        match &described["content"][media_type]["schema"] {
            Value::Null if described.is_object() && (body == "" || body.is_null()) => {}
            Value::Null => self.differences.push(format!("{id} answers {status}, {media_type}: {body}")),
            schema => self.check(id, schema, &body),
        }
        body
    }

    fn check(&mut self, id: &str, schema: &Value, value: &Value) {
        let schema = json!({"allOf": [schema], "components": self.document["components"]});
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<_> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        if !errors.is_empty() {
            self.differences.push(format!("{id}: {errors:#?} in {value}"));
        }
        if COMPLETE.contains(&id) {
            self.check_keys(id, schema.get("allOf").and_then(|all| all.get(0)).unwrap_or(&Value::Null), value);
        }
    }

    /// Checks that objects whose keys are described have no others.
    fn check_keys(&mut self, id: &str, schema: &Value, value: &Value) {
        let parts = self.parts(schema);
        let children: Vec<(Value, &Value)> = match value {
            Value::Array(items) => {
                let Some(schema) = parts.iter().find_map(|part| part.get("items")) else { return };
                items.iter().map(|item| (schema.clone(), item)).collect()
            }
            Value::Object(map) if parts.iter().any(|part| part.get("properties").is_some()) => {
                let property = |key: &str| parts.iter().find_map(|part| part["properties"].get(key)).cloned();
                let unknown = map.keys().filter(|key| property(key).is_none());
                self.differences.extend(unknown.map(|key| format!("{id}: the key `{key}` is not described")));
                map.iter().filter_map(|(key, value)| Some((property(key)?, value))).collect()
            }
            _ => return,
        };
        for (schema, value) in children {
            self.check_keys(id, &schema, value);
        }
    }

    /// Returns a schema, or those that it refers to or consists of.
    fn parts(&self, schema: &Value) -> Vec<Value> {
        if let Some(name) = schema["$ref"].as_str() {
            let pointer = name.trim_start_matches('#');
            return self.parts(self.document.pointer(pointer).unwrap_or_else(|| panic!("{name} is not there")));
        }
        let several = ["allOf", "oneOf", "anyOf"].iter().find_map(|key| schema[key].as_array());
        several
            .map_or_else(|| vec![schema.clone()], |several| several.iter().flat_map(|part| self.parts(part)).collect())
    }
}

/// Operations whose answers have no keys that are not described: the page takes its types from them.
const COMPLETE: [&str; 10] = [
    "apps.app_info",
    "apps.list_apps",
    "components.components",
    "components.component",
    "components.compare",
    "components.call",
    "host.config",
    "runs.list",
    "runs.read",
    "runs.cancel",
];

#[tokio::test]
async fn every_operation_answers_as_the_document_says() {
    let mut described = Described::start().await;
    let session = "/apps/says/users/u/sessions/s";
    for (id, path) in [
        ("status.health", "/health"),
        ("status.ready", "/ready"),
        ("status.version", "/version"),
        ("host.stats", "/stats"),
        ("ws.open", "/ws"),
        ("ws.schema", "/ws/schema"),
        ("status.metrics", "/metrics"),
        ("apps.list_apps", "/list-apps"),
        ("apps.list_apps", "/list-apps?detailed=true"),
        ("apps.app_info", "/apps/says/app-info"),
        ("host.config", "/config"),
        ("components.components", "/components"),
        ("components.component", "/components/kitchen"),
        ("a2a.default_card", "/.well-known/agent-card.json"),
        ("graphs.structure", "/dev/apps/says/build_graph"),
        ("graphs.images", "/dev/apps/says/build_graph_image"),
        ("graphs.graph", "/dev/apps/says/graph?dark_mode=true"),
        ("evaluation.metrics_info", "/dev/apps/says/metrics-info"),
    ] {
        described.call(id, path, None).await;
    }
    // The stream does not end; `host_events` tests it.
    described.called.insert("host.follow".into());
    let comparison = "/components/kitchen/compare?from=c0ffee&to=c0ffee";
    described.call("components.compare", comparison, None).await;
    described.call("components.call", "/components/kitchen/tools/boil/call", Some(json!({"args": {}}))).await;
    described.call("components.roll_back", "/components/kitchen/rollback", Some(json!({"to": "c0ffee"}))).await;

    // This host has no folder.
    let files = json!({"files": {"root_agent.yaml": "name: says"}});
    described.call("builder.list", "/dev/apps/says/files", None).await;
    described.call("builder.write", "/dev/apps/says/files", Some(files.clone())).await;
    described.call("builder.check", "/dev/apps/says/check", Some(files)).await;
    described.call("builder.read", "/dev/apps/says/builder", None).await;
    described.call("builder.save", "/dev/apps/says/builder/save", None).await;
    described.call("builder.cancel", "/dev/apps/says/builder/cancel", None).await;
    let test = json!({"session_data": {"events": []}});
    described.call("tests.list", "/dev/apps/says/tests", None).await;
    described.call("tests.write", "/dev/apps/says/tests/a", Some(test)).await;
    described.call("tests.read", "/dev/apps/says/tests/a", None).await;
    described.call("tests.run", "/dev/apps/says/tests/run?test_name=a", None).await;
    described.call("tests.rebuild", "/dev/apps/says/tests/rebuild", None).await;
    described.call("tests.delete", "/dev/apps/says/tests/a", None).await;

    described.call("sessions.create", "/apps/says/users/u/sessions", Some(json!({"sessionId": "s"}))).await;
    described.call("sessions.create_with_id", "/apps/says/users/u/sessions/t", Some(json!({"state": {"a": 1}}))).await;
    described.call("sessions.list", "/apps/says/users/u/sessions", None).await;
    let mut body = run_body("says", "hello");
    body["runId"] = "r".into();
    let events = described.call("runs.run", "/run", Some(body)).await;
    let event = events[0]["id"].as_str().unwrap();
    described.call("runs.run_sse", "/run_sse", Some(run_body("says", "hello again"))).await;
    let mut body = run_body("says", "and again");
    body["background"] = true.into();
    let run = described.call("runs.run", "/run", Some(body)).await;
    assert!(run["id"].is_string(), "{run}");
    described.call("runs.list", &format!("{session}/runs?limit=1"), None).await;
    described.call("runs.read", &format!("{session}/runs/r"), None).await;
    described.call("runs.follow", &format!("{session}/runs/r/events?after=0"), None).await;
    described.call("runs.cancel", &format!("{session}/runs/r/cancel"), None).await;
    described.call("sessions.update", session, Some(json!({"stateDelta": {"b": 2}}))).await;
    described.call("sessions.read", &format!("{session}?numRecentEvents=2"), None).await;
    described.call("graphs.event_graph", &format!("{session}/events/{event}/graph"), None).await;

    let message = json!({"message": {"data": "aGk=", "attributes": {"a": "b"}, "messageId": "7"}, "subscription": "s"});
    described.call("triggers.pubsub", "/apps/says/trigger/pubsub", Some(message)).await;
    described.call("triggers.eventarc", "/apps/says/trigger/eventarc", Some(json!({"id": "e", "data": {}}))).await;

    described.call("traces.session", "/debug/trace/session/s", None).await;
    described.call("traces.session_of_app", "/dev/apps/says/debug/trace/session/s", None).await;
    described.call("traces.event", &format!("/debug/trace/{event}"), None).await;
    described.call("traces.event_of_app", &format!("/dev/apps/says/debug/trace/{event}"), None).await;

    let artifacts = format!("{session}/artifacts");
    let artifact = json!({"filename": "notes/a.txt", "artifact": {"text": "milk"}});
    described.call("artifacts.save", &artifacts, Some(artifact)).await;
    described.call("artifacts.list", &artifacts, None).await;
    for path in ["notes/a.txt", "notes/a.txt/versions", "notes/a.txt/versions/0"] {
        described.call("artifacts.read", &format!("{artifacts}/{path}"), None).await;
    }
    let binary = "application/octet-stream";
    described.send("artifacts.upload", &format!("{artifacts}/a.bin"), binary, "milk").await;
    let milk = described.call("artifacts.read", &format!("{artifacts}/a.bin?alt=media"), None).await;
    assert_eq!(milk, "milk");
    described.call("artifacts.delete", &format!("{artifacts}/notes/a.txt"), None).await;
    described.call("memory.add", "/apps/says/users/u/memory", Some(json!({"sessionId": "s"}))).await;
    described.call("memory.search", "/apps/says/users/u/memory?query=hello", None).await;
    described.call("memory.delete", "/apps/says/users/u/memory?sessionId=s", None).await;

    let sets = "/dev/apps/says/eval-sets";
    let set = json!({"evalSet": {"evalSetId": "set", "evalCases": []}});
    described.call("evaluation.create", sets, Some(set)).await;
    described.call("evaluation.set_list", sets, None).await;
    let add = json!({"evalId": "one", "sessionId": "s", "userId": "u"});
    described.call("evaluation.add_session", &format!("{sets}/set/add-session"), Some(add)).await;
    described.call("evaluation.set", &format!("{sets}/set"), None).await;
    described.call("evaluation.case_ids", &format!("{sets}/set/eval-cases"), None).await;
    let case = described.call("evaluation.case", &format!("{sets}/set/eval-cases/one"), None).await;
    described.call("evaluation.replace_case", &format!("{sets}/set/eval-cases/one"), Some(case)).await;
    described.call("evaluation.run", &format!("{sets}/set/run"), Some(json!({"evalIds": ["one"]}))).await;
    let results = described.call("evaluation.result_list", "/dev/apps/says/eval-results", None).await;
    let result = results["evalResultIds"][0].as_str().unwrap();
    described.call("evaluation.result", &format!("/dev/apps/says/eval-results/{result}"), None).await;
    described.call("evaluation.delete_case", &format!("{sets}/set/eval-cases/one"), None).await;
    described.call("evaluation.delete_set", &format!("{sets}/set"), None).await;

    let fork = described.call("sessions.fork", &format!("{session}/fork"), Some(json!({"sessionId": "copy"}))).await;
    assert!(fork["events"].as_array().is_some_and(|events| !events.is_empty()), "{fork}");
    described.call("sessions.rewind", &format!("{session}/rewind"), Some(json!({"revision": 1}))).await;
    let import = json!({"events": fork["events"]});
    described.call("sessions.import", "/apps/says/users/u/sessions/imported/import", Some(import)).await;
    described.call("sessions.close", &format!("{session}/close"), None).await;
    described.call("sessions.delete", session, None).await;

    assert!(described.differences.is_empty(), "{:#?}", described.differences);
    let missing: Vec<_> = described.operations.keys().filter(|id| !described.called.contains(*id)).collect();
    assert!(missing.is_empty(), "operations that are not tested: {missing:?}");
}

#[tokio::test]
async fn errors_are_described_too() {
    let mut described = Described::start().await;
    for (id, path, code) in [
        ("sessions.list", "/apps/missing/users/u/sessions", "APP_NOT_FOUND"),
        ("sessions.read", "/apps/says/users/u/sessions/missing", "SESSION_NOT_FOUND"),
        ("runs.list", "/apps/says/users/u/sessions/s/runs?limit=no", "INVALID_REQUEST"),
    ] {
        let problem = described.call(id, path, None).await;
        assert_eq!(problem["code"], code);
    }
    described.host.session("fails").await;
    let failed = described.call("runs.run", "/run", Some(run_body("fails", "hi"))).await;
    assert!(described.differences.is_empty(), "{:#?}", described.differences);
    assert!(failed["events"].as_array().is_some_and(|events| events.len() == 2), "{failed}");
}
