//! Components of every released contract version that this host serves run as they are, and those of others are refused with what they want.

use std::sync::Arc;

use hatchery_core::{JsonMap, RunConfig};
use hatchery_models::scripted::Scripted;
use hatchery_wasm::version;
use hatchery_wasm::{Catalog, ComponentSettings, inspect};
use serde_json::json;

use crate::support::{Lab, call, component, granted, run_app, said};

/// The built components of released versions, with these.
const RELEASED: [(&str, &str); 1] = [("contract_0_1_0", "0.1.0")];

/// A catalog with one of them, which has what it asks for.
async fn catalog(name: &str) -> Arc<Catalog> {
    let config = JsonMap::from_iter([("greeting".to_owned(), json!("Servus"))]);
    let settings = ComponentSettings { config, ..granted(json!({"models": ["*"], "tools": ["*"]})) };
    Lab::new().with(name).configured(name, settings).catalog().await
}

/// A built component that wants another version of the contract, which must be written with as many characters.
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
async fn an_agent_of_a_released_contract_calls_its_tool_and_asks_its_model() {
    for (name, _) in RELEASED {
        let model = Scripted::new().default_reply("I am new.");
        let (events, error) = run_app(&*catalog(name).await, "old", "hello", model, RunConfig::default()).await;
        assert!(error.is_none(), "{name}: {error:?}");
        let texts: Vec<_> = said(&events).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, [r#"{"greeting":"Servus","args":{"from":"old"}}"#, "I am new."], "{name}");
    }
}

#[tokio::test]
async fn a_callback_of_a_released_contract_answers_in_place_of_the_agent() {
    for (name, _) in RELEASED {
        let model = Scripted::new();
        let (events, error) = run_app(&*catalog(name).await, "old", "closed?", model, RunConfig::default()).await;
        assert!(error.is_none(), "{name}: {error:?}");
        assert_eq!(said(&events), [("old".to_owned(), "We are closed.".to_owned())], "{name}");
    }
}

#[tokio::test]
async fn inspecting_shows_the_version_that_a_component_was_built_for() {
    for (name, version) in RELEASED {
        let bytes = std::fs::read(component(name)).unwrap();
        assert_eq!(version::wanted(&bytes).as_deref(), Some(version));
        assert_eq!(inspect(&Lab::new().options, name, bytes).await.unwrap().contract.as_deref(), Some(version));
    }
}

#[tokio::test]
async fn every_patch_of_the_offered_version_is_served_and_no_other() {
    let name = RELEASED[0].0;
    for (wanted, said) in [("0.2.0", "0.2"), ("0.3.0", "0.3"), ("1.1.0", "1")] {
        let bytes = patched(name, "0.1.0", wanted);
        assert_eq!(version::wanted(&bytes).as_deref(), Some(wanted));
        assert!(!version::is_served(wanted));
        let lab = Lab::new();
        lab.write("old.wasm", bytes);
        assert_eq!(
            lab.reason(&lab.open().await.current(), "old.wasm"),
            format!(
                "component `old` wants `hatchery:agent@{said}`, this host offers 0.1; rebuild it with `hatchery build`"
            )
        );
    }
    for served in ["0.1.0", "0.1.1", "0.1.99"] {
        assert!(version::is_served(served), "{served}");
    }
}
