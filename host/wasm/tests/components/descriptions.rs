//! Agents are built only if their component has the grants that their description needs.

use std::sync::Arc;

use hatchery_core::{ItemResolver, RunConfig, Timestamp};
use hatchery_engine::Plugins;
use hatchery_models::scripted::Scripted;
use hatchery_wasm::{Catalog, FileState};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{Chat, OneModel, TestCatalog, call, run_app, settings_with_grants, transcript};

/// A folder with a component whose agent uses every kind of item, the component that it uses, and these grants for
/// the first.
fn test_catalog(grants: Value) -> TestCatalog {
    TestCatalog::new().with("lurker").with("gallery").with_grants("lurker", grants)
}

/// All grants that its agent needs.
fn all() -> Value {
    json!({
        "models": ["gemini-*"], "memory": "read", "artifacts": "read",
        "state": {"read": ["user:ssn", "app:theme"], "write": ["app:loot"]},
        "tools": ["gallery/*", "url_context", "agent:gallery/clerk"],
    })
}

async fn refused(test_catalog: &TestCatalog) -> (Arc<Catalog>, String) {
    let catalog = test_catalog.open().await.current();
    let reason = test_catalog.reason(&catalog, "lurker.wasm");
    assert!(catalog.app("lurker").is_none(), "{reason}");
    (catalog, reason)
}

#[tokio::test]
async fn an_agent_without_the_grants_that_it_needs_is_refused_with_all_missing_lines() {
    let test_catalog = test_catalog(json!({}));
    let (catalog, reason) = refused(&test_catalog).await;
    assert_eq!(
        reason,
        "agent `lurker/lurker` cannot be used: the agents of component `lurker` need grants that it does not have; to grant \
         them, run `hatchery grant lurker`, or add to hatchery.yaml:\n\
         components:\n  lurker:\n    grants:\n      models: [\"gemini-2.5-lurk\"]\n      memory: read\n      artifacts: read\n      \
         state: {read: [\"user:ssn\", \"app:theme\"], write: [\"app:loot\"]}\n      \
         tools: [\"agent:gallery/clerk\", \"gallery/guarded\", \"url_context\", \"gallery/configured\", \"gallery/house_rules\"]"
    );
    assert!(catalog.app("harmless").is_some(), "an agent that needs nothing is served");
    let missing = catalog.components["lurker"].grant_report().missing_lines("lurker").unwrap();
    assert!(reason.ends_with(&missing), "what /components says, inspect and doctor say:\n{missing}");
    // These lines are sufficient.
    let grants = json!({
        "models": ["gemini-2.5-lurk"], "memory": "read", "artifacts": "read",
        "state": {"read": ["user:ssn", "app:theme"], "write": ["app:loot"]},
        "tools": ["agent:gallery/clerk", "gallery/guarded", "url_context", "gallery/configured", "gallery/house_rules"],
    });
    assert!(self::test_catalog(grants).catalog().await.app("lurker").is_some());
}

#[tokio::test]
async fn missing_grants_of_an_agent_are_logged_once() {
    let test_catalog = test_catalog(json!({}));
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let (_, reason) = refused(&test_catalog).await;
    drop(guard);
    let (_, lines) = reason.split_once("\n").unwrap();
    let logged = ["hatchery_wasm::catalog::loader", "hatchery_wasm::catalog::loader::publish"].map(|it| log.lines(it));
    assert_eq!(logged.iter().flatten().filter(|line| line.contains(lines)).count(), 1, "{logged:?}");
}

#[tokio::test]
async fn each_missing_grant_is_refused_by_itself() {
    let without = |change: fn(&mut Value), line: &'static str| {
        let mut grants = all();
        change(&mut grants);
        (grants, line)
    };
    let cases = [
        without(|grants| grants["models"] = json!(["gpt-*"]), "models: [\"gemini-2.5-lurk\"]"),
        without(|grants| grants["memory"] = json!(null), "memory: read"),
        without(|grants| grants["artifacts"] = json!(null), "artifacts: read"),
        without(|grants| grants["state"]["read"] = json!(["app:*"]), "state: {read: [\"user:ssn\"]}"),
        without(|grants| grants["state"]["read"] = json!(["user:*"]), "state: {read: [\"app:theme\"]}"),
        without(|grants| grants["state"]["write"] = json!([]), "state: {write: [\"app:loot\"]}"),
        without(|grants| grants["tools"] = json!(["gallery/*", "agent:*"]), "tools: [\"url_context\"]"),
        without(|grants| grants["tools"] = json!(["gallery/*", "url_*"]), "tools: [\"agent:gallery/clerk\"]"),
        without(
            |grants| grants["tools"] = json!(["gallery/[gc]*", "gallery/g*", "gallery/c*", "url_context", "agent:*"]),
            "tools: [\"gallery/house_rules\"]",
        ),
    ];
    for (grants, line) in cases {
        let (_, reason) = refused(&test_catalog(grants.clone())).await;
        let end = format!("components:\n  lurker:\n    grants:\n      {line}");
        assert!(reason.ends_with(&end), "{grants}\n{reason}");
    }
}

#[tokio::test]
async fn an_agent_whose_needs_are_granted_runs_with_them() {
    let catalog = test_catalog(all()).catalog().await;
    let model = Arc::new(OneModel(Arc::new(Scripted::new().default_reply("the loot"))));
    let chat = Chat::new(&catalog, "lurker", model, Plugins::default());
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert!(transcript(&events).iter().any(|(_, text)| text == "the loot"), "{events:?}");
    assert_eq!(chat.session().await.state.get("app:loot"), Some(&json!("the loot")));
}

#[tokio::test]
async fn a_revoked_grant_unloads_the_agent() {
    let test_catalog = test_catalog(all());
    let handle = test_catalog.open().await;
    assert!(handle.current().app("lurker").is_some());
    let mut settings = test_catalog.options.settings.clone();
    settings.components.insert("lurker".into(), settings_with_grants(json!({"models": ["gemini-2.5-lurk"]})));
    handle.configure(settings).await;
    let catalog = handle.current();
    assert!(catalog.app("lurker").is_none(), "{:?}", catalog.file(&test_catalog.path("lurker.wasm")));
    assert!(catalog.app("harmless").is_some());
}

#[tokio::test]
async fn the_lines_of_a_grant_that_is_revoked_while_the_host_serves_are_logged_once() {
    let test_catalog = test_catalog(all());
    let handle = test_catalog.open().await;
    let (mut settings, mut grants) = (test_catalog.options.settings.clone(), all());
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    for (key, remaining) in [("memory", json!(null)), ("tools", json!(["gallery/*", "url_context"]))] {
        grants[key] = remaining;
        settings.components.insert("lurker".into(), settings_with_grants(grants.clone()));
        handle.configure(settings.clone()).await;
    }
    drop(guard);
    assert!(handle.current().app("lurker").is_none());
    let logged = log.lines("hatchery_wasm::catalog::loader");
    let lines: Vec<_> = logged.iter().filter_map(|line| line.split_once("add to hatchery.yaml:\n")).collect();
    let lines: Vec<_> = lines.into_iter().map(|(_, lines)| lines).collect();
    let head = "components:\n  lurker:\n    grants:\n      ";
    assert_eq!(lines, [format!("{head}memory: read"), format!("{head}tools: [\"agent:gallery/clerk\"]")]);
}

#[tokio::test]
async fn items_of_a_private_component_are_for_yaml_agents_and_its_own_only() {
    let mut test_catalog =
        test_catalog(json!({"models": ["*"], "memory": "read", "artifacts": "write", "tools": ["*"],
        "state": {"read": ["*"], "write": ["*"]}}));
    test_catalog = test_catalog.with("seeker").with_grants("seeker", json!({"tools": ["*"]}));
    assert!(test_catalog.catalog().await.app("lurker").is_some(), "as long as it is not private");
    test_catalog.options.settings.components.entry("gallery".into()).or_default().private = true;
    test_catalog.write(
        "office/root_agent.yaml",
        "name: boss\nmodel: m\ninstruction: Work.\ntools: [{name: gallery/guarded}]\n",
    );
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let (catalog, reason) = refused(&test_catalog).await;
    drop(guard);
    let private = "component `gallery` is private (`components.gallery.private` in hatchery.yaml), so only YAML agents and its \
                   own agents may use its items";
    assert!(
        reason.starts_with(
            "agent `lurker/lurker` cannot be used: component `lurker` may not use the agent `gallery/clerk`: "
        ) && reason.contains(&format!("component `lurker` may not use the tool `gallery/guarded`: {private}")),
        "{reason}"
    );
    assert!(!reason.contains("add to hatchery.yaml"), "no grant helps: {reason}");
    let logged = log.lines("hatchery_wasm::catalog::loader::publish");
    let sentences: Vec<_> = reason.lines().collect();
    assert!(sentences.len() > 1, "{reason}");
    assert!(
        logged.iter().any(|line| sentences.iter().all(|sentence| line.contains(sentence))),
        "a reason of several lines is logged: {logged:?}"
    );
    assert!(catalog.app("office").is_some() && catalog.app("butler").is_some());
    let error = call(&catalog, "seeker/call", json!({"name": "gallery/guarded"})).await.unwrap_err().to_string();
    assert_eq!(error, "component `seeker` may not call the tool `gallery/guarded`: component `gallery` is private");
}

#[tokio::test]
async fn a_callback_needs_a_grant_for_a_model_that_replaces_the_agents_own() {
    let run = async |grants: Value| {
        let test_catalog = TestCatalog::new().with("lurker").with_grants("lurker", grants);
        let agent =
            "name: plain\nmodel: cheap-1\ninstruction: Talk.\nbefore_model_callbacks: [{name: lurker/upgrade}]\n";
        test_catalog.write("plain/root_agent.yaml", agent);
        let catalog = test_catalog.open().await.current();
        assert_eq!(catalog.file(&test_catalog.path("plain/root_agent.yaml")).unwrap().state, FileState::Loaded);
        run_app(&catalog, "plain", "hello", Scripted::new().default_reply("hi"), RunConfig::default()).await
    };
    let (events, error) = run(json!({})).await;
    let error = error.expect("a refusal");
    assert_eq!(error.code(), "DENIED");
    assert!(error.to_string().ends_with("component `lurker` may not ask the model `dear-1`"), "{error}");
    assert!(transcript(&events).iter().all(|(_, text)| text != "hi"), "no model was asked");
    let (events, error) = run(json!({"models": ["dear-*"]})).await;
    assert!(error.is_none(), "{error:?}");
    assert!(transcript(&events).iter().any(|(_, text)| text == "hi"));
}

#[tokio::test]
async fn a_yaml_agent_uses_a_component_s_agent_within_the_component_s_grants() {
    let test_catalog = test_catalog(json!({}));
    test_catalog.write(
        "boss/root_agent.yaml",
        "name: boss\nmodel: m\ninstruction: Lead.\nsub_agents: [{code: lurker/lurker}]\n",
    );
    let catalog = test_catalog.open().await.current();
    let reason = test_catalog.reason(&catalog, "boss/root_agent.yaml");
    assert!(reason.contains("component `lurker` need grants that it does not have"), "{reason}");
    assert!(catalog.agent("lurker/lurker").is_err() && catalog.agent("lurker/harmless").is_ok());
}

#[tokio::test]
async fn the_host_sets_the_id_the_run_and_the_time_of_an_event() {
    let catalog = TestCatalog::new().with("lurker").with_grants("lurker", all()).open().await.current();
    let began = Timestamp::now();
    let (events, error) = run_app(&catalog, "impostor", "hello", Scripted::new(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let [event] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!((event.author.as_str(), transcript(&events)[0].1.as_str()), ("impostor", "It was long ago."));
    assert!(event.id != "forged" && event.invocation_id != "e-forged" && event.timestamp > began, "{event:?}");
}

#[tokio::test]
async fn a_call_that_is_hidden_beside_a_text_ends_the_run_and_is_not_stored() {
    let catalog = TestCatalog::new().with("lurker").with_grants("lurker", all()).open().await.current();
    let model = Arc::new(OneModel(Arc::new(Scripted::new())));
    let chat = Chat::new(&catalog, "impostor", model, Plugins::default());
    let (_, error) = chat.say("override", RunConfig::default()).await;
    let error = error.expect("a refusal");
    assert!(
        error.to_string().contains(
            "`extra` of a part is not an object of keys without a field: `functionCall` is a field of a part; set the field"
        ),
        "{error}"
    );
    let session = chat.session().await;
    assert!(
        session.events.iter().all(|event| !str::from_utf8(event.json()).unwrap().contains("adk_request_confirmation"))
    );
    let (_, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "the session continues: {error:?}");
}
