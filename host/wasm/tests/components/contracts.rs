//! Components of every released contract version that this host supports run unchanged. Others are refused with the
//! version that they need.

use std::sync::Arc;

use hatchery_core::{JsonMap, RunConfig};
use hatchery_models::scripted::Scripted;
use hatchery_wasm::version;
use hatchery_wasm::{Catalog, ComponentSettings, inspect};
use serde_json::json;

use crate::support::{Lab, call, component, run_app, settings_with_grants, transcript};

/// The frozen components, with the versions that they were built for.
const RELEASED: [(&str, &str); 1] = [("contract_0_1_0", "0.1.0")];

/// Returns a catalog with one of them, which has the grants that it requests.
async fn catalog(name: &str) -> Arc<Catalog> {
    let config = JsonMap::from_iter([("greeting".to_owned(), json!("Servus"))]);
    let settings = ComponentSettings { config, ..settings_with_grants(json!({"models": ["*"], "tools": ["*"]})) };
    Lab::new().with(name).with_settings(name, settings).catalog().await
}

/// Returns a built component that needs another version of the contract. Both versions must have the same length.
fn patched(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(component(name)).unwrap();
    let (from, to) = (format!("@{from}"), format!("@{to}"));
    let places: Vec<_> = bytes.windows(from.len()).enumerate().filter(|(_, it)| *it == from.as_bytes()).collect();
    let places: Vec<_> = places.into_iter().map(|(place, _)| place).collect();
    assert!(!places.is_empty(), "{name} does not want {from}");
    for place in places {
        bytes[place..place + to.len()].copy_from_slice(to.as_bytes());
    }
    bytes
}

#[tokio::test]
async fn a_tool_of_a_released_contract_is_called() {
    for (name, _) in RELEASED {
        let answer = call(&catalog(name).await, "greet", json!({"who": "Ada"})).await.unwrap();
        assert_eq!(answer, json!({"greeting": "Servus", "args": {"who": "Ada"}}), "{name}");
    }
}

#[tokio::test]
async fn an_agent_of_a_released_contract_calls_its_tool_and_its_model() {
    for (name, _) in RELEASED {
        let model = Scripted::new().default_reply("I am new.");
        let (events, error) = run_app(&*catalog(name).await, "old", "hello", model, RunConfig::default()).await;
        assert!(error.is_none(), "{name}: {error:?}");
        let texts: Vec<_> = transcript(&events).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, [r#"{"greeting":"Servus","args":{"from":"old"}}"#, "I am new."], "{name}");
    }
}

#[tokio::test]
async fn a_callback_of_a_released_contract_answers_instead_of_the_agent() {
    for (name, _) in RELEASED {
        let model = Scripted::new();
        let (events, error) = run_app(&*catalog(name).await, "old", "closed?", model, RunConfig::default()).await;
        assert!(error.is_none(), "{name}: {error:?}");
        assert_eq!(transcript(&events), [("old".to_owned(), "We are closed.".to_owned())], "{name}");
    }
}

#[tokio::test]
async fn inspecting_shows_the_version_that_a_component_was_built_for() {
    for (name, version) in RELEASED {
        let bytes = std::fs::read(component(name)).unwrap();
        assert_eq!(version::required_version(&bytes).as_deref(), Some(version));
        assert_eq!(inspect(&Lab::new().options, name, bytes).await.unwrap().contract.as_deref(), Some(version));
    }
}

#[tokio::test]
async fn every_patch_of_the_offered_version_is_supported_and_no_other() {
    let name = RELEASED[0].0;
    for (version, line) in [("0.2.0", "0.2"), ("0.3.0", "0.3"), ("1.1.0", "1")] {
        let bytes = patched(name, "0.1.0", version);
        assert_eq!(version::required_version(&bytes).as_deref(), Some(version));
        assert!(!version::is_supported(version));
        let lab = Lab::new();
        lab.write("old.wasm", bytes);
        assert_eq!(
            lab.reason(&lab.open().await.current(), "old.wasm"),
            format!(
                "component `old` wants `hatchery:agent@{line}`, this host offers 0.1; rebuild it with `hatchery build`"
            )
        );
    }
    for served in ["0.1.0", "0.1.1", "0.1.99"] {
        assert!(version::is_supported(served), "{served}");
    }
}
