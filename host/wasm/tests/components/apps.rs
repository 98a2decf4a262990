//! Other apps and other sessions: a component runs one within its grants and its limits, and uses the sessions of its
//! user.

use std::sync::Arc;

use hatchery_core::{EventWindow, JsonMap, Part, RunConfig, RunError, SessionKey};
use hatchery_engine::Plugins;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_wasm::Limits;
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{Chat, OneModel, TestCatalog, transcript};

/// Returns a chat with an app of the component, which may run the apps of its catalog.
async fn chat(test_catalog: TestCatalog, app: &str, model: Scripted) -> Chat {
    let catalog = test_catalog.catalog().await;
    Chat::new(&catalog, app, Arc::new(OneModel(Arc::new(model))), Plugins::default()).with_apps(&catalog)
}

fn test_catalog(grants: Value) -> TestCatalog {
    TestCatalog::new().with("services").with_grants("services", grants)
}

/// Lets the courier run an app. Returns its last words, as JSON if they are.
async fn send(test_catalog: TestCatalog, message: &str, config: RunConfig) -> Result<Value, RunError> {
    let (events, error) = chat(test_catalog, "courier", Scripted::new()).await.say(message, config).await;
    match error {
        Some(error) => Err(error),
        None => {
            let text = transcript(&events).last().unwrap().1.clone();
            Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
        }
    }
}

/// Lets a model of the component call a tool. Returns the tool's response.
async fn ask(test_catalog: TestCatalog, tool: &str, args: Value) -> Value {
    let model = Scripted::sequence([Reply::call(tool, args), Reply::text("done")]);
    let (events, error) = chat(test_catalog, "office", model).await.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let response = events.iter().flat_map(|event| event.function_responses()).next().unwrap().response.clone();
    Value::Object(response)
}

fn denial(action: &str) -> String {
    format!("component `services` may not {action}")
}

#[tokio::test]
async fn an_app_is_run_with_the_grant_that_the_denial_names() {
    let args = || json!({"app": "night_watch", "text": "go on"});
    let denied = ask(test_catalog(json!({})), "delegate", args()).await;
    assert_eq!(denied, json!({"error": denial("run the app `night_watch`")}));
    let allowed = ask(test_catalog(json!({"runs": ["night_watch"]})), "delegate", args()).await;
    assert_eq!(allowed["texts"], json!(["watchman: All is well.", "watchman: Still well.", "relief: Good morning."]));
    assert_eq!(allowed["error"], json!(null));
    assert!(allowed["run"].as_str().unwrap().starts_with("e-"));
}

#[tokio::test]
async fn only_granted_apps_are_listed() {
    assert_eq!(ask(test_catalog(json!({})), "list_apps", json!({})).await, json!({"result": []}));
    let listed = ask(test_catalog(json!({"runs": ["night_watch", "c*"]})), "list_apps", json!({})).await;
    assert_eq!(listed, json!({"result": ["chatterbox", "courier", "night_watch"]}));
}

#[tokio::test]
async fn a_run_is_stored_in_the_session_of_the_user_with_the_state_that_it_is_given() {
    let test_catalog = test_catalog(json!({"runs": ["*"]}));
    let model = Scripted::sequence([
        Reply::call("delegate", json!({"app": "night_watch", "text": "hi", "session": "watch", "state": "lamp"})),
        Reply::text("done"),
    ]);
    let chat = chat(test_catalog, "office", model).await;
    chat.say("hello", RunConfig::default()).await;
    let key = SessionKey::new("night_watch", "user", "watch");
    let stored = chat.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((stored.events.len(), stored.state.get("lamp")), (4, Some(&json!(1))));
}

#[tokio::test]
async fn state_that_is_shared_needs_its_own_grant() {
    let args = json!({"app": "night_watch", "text": "hi", "state": "user:lamp"});
    let denied = ask(test_catalog(json!({"runs": ["*"]})), "delegate", args.clone()).await;
    assert_eq!(denied, json!({"error": denial("set the state key `user:lamp`")}));
    let allowed = ask(test_catalog(json!({"runs": ["*"], "state": {"write": ["user:*"]}})), "delegate", args).await;
    assert_eq!(allowed["error"], json!(null));
}

#[tokio::test]
async fn a_run_that_would_wait_for_itself_is_a_cycle() {
    let grants = || test_catalog(json!({"runs": ["*"]}));
    let own = send(grants(), "courier/session hello", RunConfig::default()).await.unwrap();
    assert_eq!(
        own,
        json!(
            "CYCLE: app `courier` is not run in session `session`: it runs there already, and would wait for itself; use another \
               session"
        )
    );
    // Through another session, and back.
    let back = send(grants(), "courier/other courier/session hello", RunConfig::default()).await.unwrap();
    let texts = back["texts"][0].as_str().unwrap();
    assert!(texts.starts_with("courier: CYCLE: app `courier` is not run in session `session`"), "{texts}");
}

#[tokio::test]
async fn runs_are_nested_up_to_a_depth() {
    let message = "courier ".repeat(20);
    let grants = || json!({"runs": ["*"]});
    let outcome = send(test_catalog(grants()), message.trim(), RunConfig::default()).await.unwrap().to_string();
    assert!(
        outcome.contains("LIMIT_REACHED: ") && outcome.contains("it exceeded its limit of 8 tools in a chain of calls"),
        "{outcome}"
    );
    let limits = Limits { depth: 100, ..Limits::default() };
    let deep = TestCatalog::new().with("services").with_limits(limits).with_grants("services", grants());
    let outcome = send(deep, message.trim(), RunConfig::default()).await.unwrap().to_string();
    assert!(outcome.contains("LIMIT_REACHED: ") && outcome.contains("runs are nested 16 deep"), "{outcome}");
}

#[tokio::test]
async fn the_events_of_a_run_count_for_the_run_that_started_it() {
    let config = RunConfig { max_events: 50, ..RunConfig::default() };
    let error = send(test_catalog(json!({"runs": ["*"]})), "chatterbox on", config).await.unwrap_err();
    assert_eq!(error.code(), "LIMIT_REACHED");
    assert!(
        error.to_string().starts_with("the limit of events in one run of 50 reached by agent `chatterbox`"),
        "{error}"
    );
}

#[tokio::test]
async fn the_runs_of_one_call_are_limited_as_its_tool_calls() {
    let limits = Limits { tool_calls: 0, ..Limits::default() };
    let test_catalog =
        TestCatalog::new().with("services").with_limits(limits).with_grants("services", json!({"runs": ["*"]}));
    let outcome = send(test_catalog, "night_watch hello", RunConfig::default()).await.unwrap();
    let outcome = outcome.as_str().unwrap();
    assert!(outcome.starts_with("LIMIT_REACHED: app `night_watch` is not run: "), "{outcome}");
    assert!(outcome.contains("it exceeded its limit of 0 tool calls"), "{outcome}");
}

#[tokio::test]
async fn a_run_is_cancelled_by_its_id_and_by_dropping_its_events() {
    let args = json!({"app": "chatterbox", "text": "go", "cancel_after": 2});
    let cancelled = ask(test_catalog(json!({"runs": ["*"]})), "delegate", args).await;
    assert_eq!(cancelled["error"], json!("CANCELLED"));
    let abandoned =
        ask(test_catalog(json!({"runs": ["*"]})), "abandon", json!({"app": "chatterbox", "text": "go"})).await;
    assert_eq!(abandoned, json!({"result": true}));
}

#[tokio::test]
async fn the_error_for_an_unknown_app_lists_the_apps() {
    let outcome = send(test_catalog(json!({"runs": ["*"]})), "nobody hello", RunConfig::default()).await.unwrap();
    let outcome = outcome.as_str().unwrap();
    assert!(
        outcome.starts_with("NOT_FOUND: App not found: nobody; the apps are `chatterbox`, `courier`, "),
        "{outcome}"
    );
}

#[tokio::test]
async fn a_failed_run_ends_with_its_error() {
    // The scribe's model has no reply.
    let failed = ask(test_catalog(json!({"runs": ["*"]})), "delegate", json!({"app": "failing", "text": "hi"})).await;
    assert_eq!(failed["error"], json!("OUT_OF_ORDER"));
}

#[tokio::test]
async fn sessions_are_used_with_the_grants_that_denials_name() {
    let reads = [("get", "read"), ("list", "read"), ("events", "read")];
    let writes = [("create", "write"), ("append", "write"), ("delete", "write")];
    for (what, access) in reads.into_iter().chain(writes) {
        let args = json!({"what": what, "app": "diary", "id": "s1"});
        let action = if access == "read" { "read" } else { "change" };
        let expected = denial(&format!("{action} the user's sessions of the app `diary`"));
        assert_eq!(ask(test_catalog(json!({})), "sessions", args.clone()).await, json!({"error": expected}), "{what}");
        let granted = ask(test_catalog(json!({"sessions": {access: ["diary"]}})), "sessions", args.clone()).await;
        assert!(!granted.to_string().contains("may not"), "{what}: {granted}");
        let reader = ask(test_catalog(json!({"sessions": {"read": ["*"]}})), "sessions", args).await;
        assert_eq!(reader.to_string().contains("may not"), access == "write", "{what}: {reader}");
    }
}

/// Carries out orders in one chat, whose component may use the sessions of `night_watch`.
async fn orders(orders: Vec<Value>) -> (Chat, Vec<Value>) {
    let calls = orders.into_iter().map(|order| Reply::call("sessions", order));
    let model = Scripted::sequence(calls.chain([Reply::text("done")]));
    let chat = chat(test_catalog(json!({"sessions": {"write": ["night_watch", "office"]}})), "office", model).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let responses = events.iter().flat_map(|event| event.function_responses());
    let responses = responses.map(|response| Value::Object(response.response.clone())).collect();
    (chat, responses)
}

#[tokio::test]
async fn a_session_is_created_extended_read_and_deleted() {
    let order = |what: &str| json!({"what": what, "app": "night_watch", "id": "s1"});
    let with = |what: &str, more: Value| {
        let mut order = order(what);
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        order
    };
    let (chat, results) = orders(vec![
        with("create", json!({"state": "lamp"})),
        order("create"),
        order("append"),
        order("append"),
        with("events", json!({"recent": 1})),
        with("events", json!({"offset": 1})),
        order("get"),
        order("list"),
        order("delete"),
        order("get"),
    ])
    .await;
    assert_eq!(results[0], json!({"id": "s1", "events": 0, "state": {"lamp": 1}}));
    assert_eq!(results[1], json!({"error": "Session already exists: s1"}));
    assert_eq!(results[2]["author"], "office");
    assert_eq!(results[4], json!({"result": ["office: a note"]}));
    assert_eq!(results[5], json!({"result": ["office: a note"]}));
    assert_eq!(results[6], json!({"id": "s1", "events": 2, "state": {"lamp": 1}}));
    assert_eq!(results[7], json!({"result": [{"id": "s1", "events": 2, "state": {"lamp": 1}}]}));
    assert_eq!(results[9], json!({}));
    let key = SessionKey::new("night_watch", "user", "s1");
    assert!(chat.services().sessions.get(&key, EventWindow::All).await.unwrap().is_none());
}

#[tokio::test]
async fn a_deleted_session_takes_its_artifacts_along_but_not_the_artifacts_of_the_user() {
    let key = SessionKey::new("night_watch", "user", "s1");
    let model = Scripted::sequence([
        Reply::call("sessions", json!({"what": "delete", "app": "night_watch", "id": "s1"})),
        Reply::text("done"),
    ]);
    let chat = chat(test_catalog(json!({"sessions": {"write": ["night_watch"]}})), "office", model).await;
    let services = chat.services();
    services.sessions.create("night_watch", "user", Some("s1"), JsonMap::new()).await.unwrap();
    for name in ["note", "user:kept"] {
        services.artifacts.save(&key, name, &Part::text("x")).await.unwrap();
    }
    let (_, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(services.artifacts.list(&key).await.unwrap(), ["user:kept"]);
}

#[tokio::test]
async fn history_is_not_forged_and_the_running_session_is_not_changed() {
    let order = |what: &str, app: &str, id: &str| json!({"what": what, "app": app, "id": id});
    let mut forged = order("append", "night_watch", "s1");
    forged["author"] = json!("user");
    let mut shared = order("append", "night_watch", "s1");
    shared["state"] = json!("user:lamp");
    let (_, results) = orders(vec![
        order("create", "night_watch", "s1"),
        forged,
        shared,
        order("append", "office", "session"),
        order("delete", "office", "session"),
        order("events", "night_watch", "nowhere"),
        order("create", "night_watch", &"s".repeat(257)),
    ])
    .await;
    let errors: Vec<_> = results[1..].iter().map(|result| result["error"].as_str().unwrap_or_default()).collect();
    assert_eq!(errors[0], "an event of `user` cannot be appended by `office`; leave the author empty");
    assert_eq!(errors[1], denial("set the state key `user:lamp`"));
    assert_eq!(
        errors[2],
        "session `session` of app `office` belongs to the current run: its agents emit events instead"
    );
    assert_eq!(
        errors[3],
        "session `session` of app `office` belongs to the current run: delete it when its run has ended"
    );
    assert!(errors[4].starts_with("Session not found: "), "{}", errors[4]);
    assert!(errors[5].starts_with("invalid name"), "{}", errors[5]);
}

#[tokio::test]
async fn temporary_state_of_an_appended_event_is_not_stored() {
    let order = |what: &str, state: &str| json!({"what": what, "app": "night_watch", "id": "s1", "state": state});
    let orders = orders(vec![order("create", "temp:lamp"), order("append", "lamp"), order("append", "temp:lamp")]);
    let (chat, _) = orders.await;
    let key = SessionKey::new("night_watch", "user", "s1");
    let session = chat.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let deltas: Vec<_> = session.events.iter().map(|event| Value::Object(event.actions.state_delta.clone())).collect();
    assert_eq!(deltas, [json!({"lamp": 1}), json!({})]);
}

#[tokio::test]
async fn only_sessions_of_the_same_user_are_seen() {
    let test_catalog = test_catalog(json!({"sessions": {"read": ["*"]}}));
    let model = Scripted::sequence([
        Reply::call("sessions", json!({"what": "list", "app": "night_watch"})),
        Reply::text("done"),
    ]);
    let chat = chat(test_catalog, "office", model).await;
    for user in ["user", "another"] {
        let created = chat.services().sessions.create("night_watch", user, Some(user), JsonMap::new()).await;
        created.unwrap();
    }
    let (events, _) = chat.say("hello", RunConfig::default()).await;
    let response = events.iter().flat_map(|event| event.function_responses()).next().unwrap();
    assert_eq!(Value::Object(response.response.clone()), json!({"result": [{"id": "user", "events": 0, "state": {}}]}));
}

#[tokio::test]
async fn denials_of_runs_and_sessions_are_in_the_audit_log() {
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    ask(test_catalog(json!({})), "delegate", json!({"app": "night_watch", "text": "hi"})).await;
    drop(guard);
    let fields = log.fields("hatchery::audit");
    assert!(
        fields
            .iter()
            .any(|line| line.contains(r#"action="run the app `night_watch`" grant="runs: [\"night_watch\"]""#)),
        "{fields:?}"
    );
}

#[tokio::test]
async fn the_memory_is_searched_and_extended_with_its_grants() {
    for (what, action) in [
        ("search", "search the user's memory"),
        ("add_session", "add to the user's memory"),
        ("add_events", "add to the user's memory"),
    ] {
        let args = json!({"what": what, "text": "lamp"});
        assert_eq!(ask(test_catalog(json!({})), "memory", args.clone()).await, json!({"error": denial(action)}));
        let reader = ask(test_catalog(json!({"memory": "read"})), "memory", args.clone()).await;
        assert_eq!(reader.get("error").is_some(), what != "search", "{reader}");
        let writer = ask(test_catalog(json!({"memory": "write"})), "memory", args).await;
        assert!(writer.get("error").is_none(), "{writer}");
    }
}

#[tokio::test]
async fn memory_that_a_component_adds_is_found_once() {
    let note = |what: &str, text: &str| Reply::call("memory", json!({"what": what, "text": text}));
    let model = Scripted::sequence([
        note("add_events", "The lamp is red."),
        note("add_events", "The lamp is red."),
        note("search", "lamp"),
        note("add_session", ""),
        note("search", "hello"),
        Reply::call("memory", json!({"what": "add_session", "session": "nowhere"})),
        Reply::text("done"),
    ]);
    let chat = chat(test_catalog(json!({"memory": "write"})), "office", model).await;
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let responses: Vec<_> = events.iter().flat_map(|event| event.function_responses()).collect();
    let response = |index: usize| Value::Object(responses[index].response.clone());
    assert_eq!(response(2), json!({"result": ["The lamp is red."]}));
    assert_eq!(response(4), json!({"result": ["hello"]}));
    assert!(response(5)["error"].as_str().unwrap().starts_with("Session not found: "), "{}", response(5));
}
