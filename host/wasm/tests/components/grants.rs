//! Grants: operations are denied with the lines that would allow them, and allowed by these lines.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentHost, Blob, CallContext, Event, EventData, EventSink, ItemResolver, JsonMap, Model, PartData,
    RunConfig, RunError, ToolAuthorizer, ToolError,
};
use hatchery_engine::Plugins;
use hatchery_models::scripted::Scripted;
use hatchery_wasm::{Catalog, FileState, inspect};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{
    Chat, Listener, OneModel, TestCatalog, call, call_in, component, context, context_in, invocation_with_writer,
    run_app, run_custom_in, settings_with_grants, transcript,
};

/// Returns a folder with the component that tries every operation, and these grants for it.
pub fn test_catalog(grants: Value) -> TestCatalog {
    TestCatalog::new().with("seeker").with_grants("seeker", grants)
}

pub async fn seeker(grants: Value) -> Arc<Catalog> {
    test_catalog(grants).catalog().await
}

/// Calls a tool. The error is the message for the model.
async fn ask(grants: Value, tool: &str, args: Value) -> Result<Value, String> {
    call(&seeker(grants).await, tool, args).await.map_err(|error| error.to_string())
}

/// Returns the message of a denial. The line that would allow the action is in the log of the operator only.
fn denial(action: &str) -> String {
    format!("component `seeker` may not {action}")
}

/// Returns the message of a denial in the log, with the line that would allow the action.
fn logged_denial(action: &str, grant: &str) -> String {
    let lines = format!("components:\n  seeker:\n    grants:\n      {grant}");
    format!("{}; to allow it, add to hatchery.yaml:\n{lines}", denial(action))
}

/// Checks that a call is denied without grants. Returns its result with the grants that the denial suggests.
async fn denied_without_grant(
    grants: Value,
    tool: &str,
    args: Value,
    action: &str,
    grant: &str,
) -> Result<Value, String> {
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    assert_eq!(ask(json!({}), tool, args.clone()).await, Err(denial(action)));
    drop(guard);
    assert_eq!(log.lines("hatchery_wasm::policy::denial"), [logged_denial(action, grant)]);
    ask(grants, tool, args).await
}

#[tokio::test]
async fn granted_code_calls_a_model() {
    let (grants, args) = (json!({"models": ["seek-*"]}), json!({"name": "seek-1"}));
    let request =
        denied_without_grant(grants.clone(), "ask", args, "ask the model `seek-1`", "models: [\"seek-1\"]").await;
    // The scripted model has no reply, which is not about permission.
    assert!(request.is_err_and(|error| !error.contains("may not")));
    let other = ask(grants, "ask", json!({"name": "other"})).await;
    assert_eq!(other, Err(denial("ask the model `other`")));
}

#[tokio::test]
async fn the_agents_own_model_needs_a_grant_when_code_calls_it() {
    let denied = ask(json!({"models": ["seek-*"]}), "ask", json!({"name": ""})).await;
    assert_eq!(denied, Err(denial("ask the model `own`")));
    let allowed = ask(json!({"models": ["own"]}), "ask", json!({"name": ""})).await;
    assert!(allowed.is_err_and(|error| !error.contains("may not")));
}

#[tokio::test]
async fn an_agent_needs_no_grant_for_a_script_of_its_own_component() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let (events, error) =
        run_app(&catalog, "butler", "hello", Scripted::new().default_reply("Good day."), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert!(transcript(&events).iter().any(|(_, text)| text == "Good day."));
}

#[tokio::test]
async fn granted_code_searches_memory() {
    let args = json!({"name": "bread"});
    let line = "memory: read";
    let found =
        denied_without_grant(json!({"memory": "read"}), "remember", args, "search the user's memory", line).await;
    assert_eq!(found, Ok(json!(0)));
}

#[tokio::test]
async fn granted_code_reads_and_writes_artifacts() {
    for what in ["save", "save_with", "delete"] {
        let (args, action) = (json!({"name": what}), "save and delete artifacts");
        let line = "artifacts: write";
        assert!(
            denied_without_grant(json!({"artifacts": "write"}), "artifacts", args.clone(), action, line).await.is_ok()
        );
        let reader = ask(json!({"artifacts": "read"}), "artifacts", args).await;
        assert_eq!(reader, Err(denial(action)));
    }
    for (what, expected) in
        [("load", json!(false)), ("version", json!(null)), ("versions", json!([])), ("list", json!([]))]
    {
        let args = json!({"name": what});
        let read = denied_without_grant(
            json!({"artifacts": "read"}),
            "artifacts",
            args.clone(),
            "read artifacts",
            "artifacts: read",
        );
        assert_eq!(read.await, Ok(expected.clone()));
        assert_eq!(ask(json!({"artifacts": "write"}), "artifacts", args).await, Ok(expected));
    }
}

#[tokio::test]
async fn custom_metadata_is_an_object_of_limited_size() {
    let error = |what: &'static str| async move {
        let answer = ask(json!({"artifacts": "write"}), "artifacts", json!({ "name": what })).await;
        answer.unwrap_err().to_string()
    };
    let list = error("save_with_list").await;
    assert!(list.contains("the custom metadata") && list.contains("expected a map"), "{list}");
    let much = error("save_with_much").await;
    assert!(much.contains("the custom metadata of `chart` has 70008 bytes, and at most 65536 are stored"), "{much}");
}

#[tokio::test]
async fn an_artifact_that_exceeds_the_memory_of_a_call_is_not_read() {
    let catalog = seeker(json!({"artifacts": "read"})).await;
    let cx = context(&catalog);
    let blob = Blob { mime_type: "image/png".into(), data: vec![0; 65 << 20].into(), display_name: None };
    cx.save_artifact("chart", &PartData::InlineData(blob).into()).await.unwrap();
    let error = call_in(&cx, &catalog, "artifacts", json!({"name": "load"})).await.unwrap_err().to_string();
    assert!(error.contains("memory"), "{error}");
    let error = cx.load_artifact("chart", None).await.unwrap_err();
    assert_eq!(error.code(), "REFUSED");
}

#[tokio::test]
async fn state_of_the_session_is_free_and_other_state_needs_a_grant() {
    for key in ["visits", "temp:visits"] {
        let set = ask(json!({}), "state", json!({"key": key, "value": "1"})).await;
        assert_eq!(set, Ok(json!(null)), "{key}");
    }
    for key in ["user:visits", "app:visits"] {
        let (action, line) = (format!("read the state key `{key}`"), format!("state: {{read: [\"{key}\"]}}"));
        let grants = json!({"state": {"read": [key]}});
        let args = json!({"key": key});
        assert_eq!(denied_without_grant(grants.clone(), "state", args.clone(), &action, &line).await, Ok(json!(null)));
        let grants_to_write = json!({"state": {"write": [format!("{}:*", key.split(':').next().unwrap())]}});
        assert_eq!(ask(grants_to_write.clone(), "state", args).await, Ok(json!(null)), "who may write may read");
        let (action, line) = (format!("set the state key `{key}`"), format!("state: {{write: [\"{key}\"]}}"));
        let args = json!({"key": key, "value": "1"});
        assert_eq!(denied_without_grant(grants_to_write, "state", args.clone(), &action, &line).await, Ok(json!(null)));
        assert_eq!(ask(grants, "state", args).await, Err(denial(&action)), "who may read may not write");
    }
}

#[tokio::test]
async fn listing_the_state_returns_only_readable_keys() {
    let catalog = seeker(json!({"state": {"read": ["user:name"], "write": ["app:*"]}})).await;
    let cx = context(&catalog);
    for key in ["visits", "temp:x", "user:name", "user:secret", "app:theme"] {
        cx.set_state(key, json!(1));
    }
    let seen = call_in(&cx, &catalog, "all_state", json!({})).await.unwrap();
    assert_eq!(seen, json!({"visits": 1, "temp:x": 1, "user:name": 1, "app:theme": 1}));
}

#[tokio::test]
async fn an_event_that_sets_state_without_a_grant_ends_the_run() {
    let run = async |grants: Value| {
        let catalog = seeker(grants).await;
        run_app(&catalog, "watcher", "user:plan", Scripted::new(), RunConfig::default()).await
    };
    let (_, error) = run(json!({})).await;
    let error = error.unwrap();
    assert_eq!(error.code(), "DENIED");
    let expected = denial("set the state key `user:plan`");
    assert!(error.to_string().ends_with(&expected), "{error}");
    let (events, error) = run(json!({"state": {"write": ["user:plan"]}})).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(transcript(&events).last().unwrap().1, "seen: user:plan, user:plan");
}

#[tokio::test]
async fn an_agent_does_not_see_unreadable_state_in_events() {
    let catalog = seeker(json!({})).await;
    let (invocation, writer) = invocation_with_writer("plan");
    let cx = context_in(&catalog, invocation);
    let event = |key: &str| {
        let mut event = EventData { author: "other".into(), ..EventData::default() };
        event.actions.state_delta.insert(key.into(), json!(1));
        Event::new(event)
    };
    for key in ["user:secret", "shown"] {
        writer.append_unstored(&event(key));
    }
    let listener = Listener::new(10);
    let host = Arc::new(Relays(event("user:other")));
    let call = cx.with_host(host);
    run_custom_in(&catalog, "watcher", AgentContext { call, sink: listener.clone() }).await.unwrap();
    assert_eq!(listener.texts(), ["", "seen: shown"]);
}

/// A host whose sub-agents all yield one event.
struct Relays(Arc<Event>);

#[async_trait]
impl AgentHost for Relays {
    async fn run_sub_agent(&self, _: &CallContext, _: &str, sink: Arc<dyn EventSink>) -> Result<(), RunError> {
        sink.emit(self.0.clone()).await.map(|_| ())
    }

    async fn call_checked_tool(
        &self,
        _: &CallContext,
        name: &str,
        _: JsonMap,
        _: ToolAuthorizer<'_>,
    ) -> Result<Value, ToolError> {
        Err(ToolError::Recoverable(name.into()))
    }

    fn model(&self, _: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
        Err(RunError::Stopped)
    }
}

#[tokio::test]
async fn a_plugin_changes_events_but_not_state_without_a_grant() {
    let run = async |grants: Value| {
        let catalog = test_catalog(grants).with("dice").catalog().await;
        let plugins = Plugins::new(vec![catalog.plugin("seeker/meddler", JsonMap::new()).unwrap()]).unwrap();
        let model = Arc::new(OneModel(Arc::new(Scripted::new().default_reply("hello"))));
        let chat = Chat::new(&catalog, "dice", model, plugins);
        let (_, error) = chat.say("hello", RunConfig::default()).await;
        (chat.session().await, error)
    };
    let (session, error) = run(json!({})).await;
    let error = error.unwrap().to_string();
    let expected = denial("set the state key `user:meddled`");
    assert!(error.ends_with(&expected), "{error}");
    assert_eq!(session.state.get("user:meddled"), None);
    let (session, error) = run(json!({"state": {"write": ["user:meddled"]}})).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(session.state.get("user:meddled"), Some(&json!(true)));
}

#[tokio::test]
async fn granted_code_calls_tools_of_other_components() {
    let run = async |grants: Value, tool: &str| {
        let catalog = test_catalog(grants).with("gallery").catalog().await;
        call(&catalog, "call", json!({"name": tool})).await.map_err(|error| error.to_string())
    };
    assert_eq!(run(json!({}), "own").await, Ok(json!("own")), "its own tools are free");
    for tool in ["gallery/guarded", "guarded"] {
        let denied = denial("call the tool `gallery/guarded`");
        assert_eq!(run(json!({}), tool).await, Err(denied.clone()));
        assert_eq!(run(json!({"tools": ["guarded", "seeker/*"]}), tool).await, Err(denied), "its full name counts");
        assert_eq!(run(json!({"tools": ["gallery/*"]}), tool).await, Ok(json!("done")));
    }
    let denied = denial("call the tool `load_memory`");
    assert_eq!(run(json!({}), "load_memory").await, Err(denied));
}

#[tokio::test]
async fn the_environment_contains_only_granted_variables() {
    assert_eq!(ask(json!({}), "environment", json!({})).await, Ok(json!({})));
    let grants = json!({"environment": {"LANG": "C", "PLACES": {"from": "PATH"}}});
    let seen = ask(grants, "environment", json!({})).await.unwrap();
    assert_eq!(seen, json!({"LANG": "C", "PLACES": std::env::var("PATH").unwrap()}));
}

#[tokio::test]
async fn a_component_with_a_missing_variable_is_not_loaded() {
    let test_catalog = test_catalog(json!({"environment": {"REGION": {"from": "NO_SUCH_VARIABLE"}}}));
    let catalog = test_catalog.open().await.current();
    assert_eq!(
        test_catalog.reason(&catalog, "seeker.wasm"),
        "component `seeker` cannot be given the environment variable `REGION` from the host's `NO_SUCH_VARIABLE`: environment \
         variable not found; set `NO_SUCH_VARIABLE`, or take `REGION` out of `components.seeker.grants.environment` in hatchery.yaml"
    );
}

#[tokio::test]
async fn clock_and_random_numbers_can_be_deterministic() {
    let fixed = seeker(json!({"clock": "2026-01-01T00:00:00Z", "random": {"seed": 7}})).await;
    let first = call(&fixed, "time_and_chance", json!({})).await.unwrap();
    assert_eq!(first["seconds"], 1_767_225_600);
    assert_eq!(call(&fixed, "time_and_chance", json!({})).await.unwrap(), first);
    let other = seeker(json!({"clock": "2026-01-01T00:00:00Z", "random": {"seed": 8}})).await;
    assert_ne!(call(&other, "time_and_chance", json!({})).await.unwrap()["random"], first["random"]);
    let real = seeker(json!({})).await;
    let now = call(&real, "time_and_chance", json!({})).await.unwrap();
    assert!(now["seconds"].as_u64() > first["seconds"].as_u64());
    assert_ne!(call(&real, "time_and_chance", json!({})).await.unwrap()["random"], now["random"]);
}

#[tokio::test]
async fn denials_are_in_the_audit_log_up_to_a_limit() {
    let catalog = seeker(json!({})).await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    call(&catalog, "remember", json!({"name": "bread"})).await.unwrap_err();
    assert_eq!(log.lines("hatchery::audit"), ["denied"]);
    assert_eq!(
        log.fields("hatchery::audit"),
        [
            r#"component="seeker" session="session" invocation="e-test" action="search the user's memory" grant="memory: read""#
        ]
    );
    call(&catalog, "state", json!({"key": "user:x", "more": 1000})).await.unwrap_err();
    drop(guard);
    let lines = log.lines("hatchery::audit");
    assert_eq!(lines.len(), 1 + 16 + 1);
    assert_eq!(lines.last().unwrap(), "denied more than 16 times in one call; further denials are not logged");
}

#[tokio::test]
async fn missing_grants_are_logged_at_load_and_reported_by_inspect() {
    let test_catalog = test_catalog(json!({"memory": "read", "tools": ["search/*"]}));
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let catalog = test_catalog.catalog().await;
    drop(guard);
    assert_eq!(catalog.components["seeker"].settings().grants.tools[0].as_str(), "search/*");
    let line = "component `seeker` requests more than it is granted; to grant it, add to hatchery.yaml:\ncomponents:\n  seeker:\n    \
                grants:\n      models: [\"seek-*\"]\n      state: {read: [\"app:theme\"]}\n      \
                files: [{host: FOLDER, guest: \"/data\", access: read}]";
    assert!(
        log.lines("hatchery_wasm::catalog::loader").iter().any(|message| message == line),
        "{:?}",
        log.lines("hatchery_wasm::catalog::loader")
    );
    let bytes = std::fs::read(component("seeker")).unwrap();
    let inspection = inspect(&test_catalog.options, "seeker", bytes).await.unwrap();
    assert_eq!(
        serde_json::to_value(&inspection.grants).unwrap(),
        json!({
            "requested": {"files": ["read /data"], "memory": ["read"], "models": ["seek-*"], "state.read": ["app:theme"]},
            "why": {"models": "it asks around"},
            "granted": {"memory": ["read"], "tools": ["search/*"]},
            "missing": {"files": ["read /data"], "models": ["seek-*"], "state.read": ["app:theme"]},
            "unused": {"tools": ["search/*"]},
        })
    );
}

#[tokio::test]
async fn a_grant_that_is_added_while_serving_applies_to_the_next_call() {
    let test_catalog = test_catalog(json!({}));
    let handle = test_catalog.open().await;
    let before = handle.current();
    let remember = async |catalog: &Arc<Catalog>| call(catalog, "remember", json!({"name": "bread"})).await;
    assert!(remember(&before).await.is_err());
    let mut settings = test_catalog.options.settings.clone();
    settings.components.insert("seeker".into(), settings_with_grants(json!({"memory": "read"})));
    handle.configure(settings.clone()).await;
    let after = handle.current();
    assert_eq!(after.generation, before.generation + 1);
    assert_eq!(after.file(&test_catalog.path("seeker.wasm")).unwrap().state, FileState::Loaded);
    assert!(remember(&after).await.is_ok());
    assert!(remember(&before).await.is_err(), "running calls keep their grants");
    handle.configure(settings).await;
    assert_eq!(handle.current().generation, after.generation, "nothing has changed");
}
