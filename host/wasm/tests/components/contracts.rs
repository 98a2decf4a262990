//! Contract versions: every patch of the offered version is served. Components of other versions are refused with the
//! version that they need.

use std::sync::Arc;

use hatchery_core::{Event, ItemResolver, JsonMap, RunConfig};
use hatchery_engine::Plugins;
use hatchery_models::scripted::Scripted;
use hatchery_wasm::{Catalog, ComponentSettings, inspect, version};
use serde_json::json;

use crate::support::{Chat, OneModel, TestCatalog, call, component, context, settings_with_grants, transcript};

/// Returns a built component that needs another version of the contract. Both versions must have the same length.
fn with_contract_version(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(component(name)).unwrap();
    let (from, to) = (format!("@{from}"), format!("@{to}"));
    let is_version = |it: &[u8], place: usize| it == from.as_bytes() && bytes[..place].ends_with_interface();
    let places: Vec<_> =
        bytes.windows(from.len()).enumerate().filter(|(place, it)| is_version(it, *place)).map(|it| it.0).collect();
    assert!(!places.is_empty(), "{name} does not need {from}");
    for place in places {
        bytes[place..place + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

trait Interface {
    /// Returns true if the bytes end in the name of an interface of `hatchery:agent`, whose version follows.
    fn ends_with_interface(&self) -> bool;
}

impl Interface for [u8] {
    fn ends_with_interface(&self) -> bool {
        let interface = self.iter().rev().take_while(|byte| byte.is_ascii_lowercase() || **byte == b'-').count();
        self[..self.len() - interface].ends_with(b"hatchery:agent/")
    }
}

/// Returns a catalog with the component that was built against contract 0.2.0.
async fn contract_0_2_0_catalog() -> Arc<Catalog> {
    let config = JsonMap::from_iter([("greeting".to_owned(), json!("Hello"))]);
    let grants = json!({"models": ["*"], "memory": "write", "runs": ["*"], "sessions": {"read": ["*"]}});
    let settings = ComponentSettings { config, ..settings_with_grants(grants) };
    TestCatalog::new().with("contract_0_2_0").with_settings("contract_0_2_0", settings).catalog().await
}

/// Returns the texts of events. Changes of state by the plugin are events without one.
fn texts_of(events: &[Arc<Event>]) -> Vec<String> {
    transcript(events).into_iter().map(|(_, text)| text).filter(|text| !text.is_empty()).collect()
}

#[tokio::test]
async fn a_component_of_contract_0_2_0_uses_what_the_host_offered_then() {
    let bytes = std::fs::read(component("contract_0_2_0")).unwrap();
    assert_eq!(version::required_version(&bytes).as_deref(), Some("0.2.0"));
    let catalog = contract_0_2_0_catalog().await;
    let plugins = Plugins::new(vec![catalog.plugin("counter", JsonMap::new()).unwrap()]).unwrap();
    let model = Arc::new(Scripted::new().default_reply("You said {user}."));
    let chat = Chat::new(&catalog, "old", Arc::new(OneModel(model)), plugins).with_apps(&catalog);
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let texts = texts_of(&events);
    let greeted: serde_json::Value = serde_json::from_str(&texts[0]).unwrap();
    let expected = json!({
        "greeting": "Hello", "args": {"from": "old"}, "configured": {"tone": "warm"}, "seen": [1, true, 2, 1, 0],
    });
    assert_eq!(greeted, expected);
    assert_eq!(texts[1], "You said hello.");
    let state = chat.session().await.state;
    assert_eq!((state.get("greeted"), state.get("plugins")), (Some(&json!(true)), Some(&json!(["counter"]))));
    let (events, _) = chat.say("closed?", RunConfig::default()).await;
    assert_eq!(texts_of(&events), ["We are closed."]);
}

#[tokio::test]
async fn a_toolset_of_contract_0_2_0_computes_its_tools() {
    let catalog = contract_0_2_0_catalog().await;
    let cx = context(&catalog);
    let tools = catalog.toolset("contract_0_2_0/keys").unwrap().tools(&cx).await.unwrap();
    assert_eq!(tools[0].declaration().name, "greet_user");
    assert_eq!(tools[0].call(JsonMap::new(), &cx).await.unwrap(), json!(["keys", "greet_user", {}]));
}

#[tokio::test]
async fn a_component_of_another_patch_of_the_offered_version_is_served() {
    let bytes = with_contract_version("misbehaver", version::OFFERED, "0.2.9");
    let test_catalog = TestCatalog::new();
    test_catalog.write("later.wasm", &bytes);
    let catalog = test_catalog.catalog().await;
    let answer = call(&catalog, "echo", json!({"value": "hello"})).await.unwrap();
    assert_eq!(answer, json!({"value": "hello"}));
    assert_eq!(inspect(&test_catalog.options, "later", bytes).await.unwrap().contract.as_deref(), Some("0.2.9"));
}

#[tokio::test]
async fn every_patch_of_the_offered_version_is_supported_and_no_other() {
    for (version, line) in [("0.1.0", "0.1"), ("0.3.0", "0.3"), ("1.2.0", "1")] {
        let bytes = with_contract_version("misbehaver", version::OFFERED, version);
        assert_eq!(version::required_version(&bytes).as_deref(), Some(version));
        assert!(!version::is_supported(version));
        let test_catalog = TestCatalog::new();
        test_catalog.write("old.wasm", bytes);
        assert_eq!(
            test_catalog.reason(&test_catalog.open().await.current(), "old.wasm"),
            format!(
                "component `old` needs `hatchery:agent@{line}`, but this host offers 0.2; rebuild it with `hatchery build`"
            )
        );
    }
    for served in ["0.2.0", "0.2.1", "0.2.99"] {
        assert!(version::is_supported(served), "{served}");
    }
}
