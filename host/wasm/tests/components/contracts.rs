//! Contract versions: every patch of the offered version is served. Components of other versions are refused with the version that they
//! need.

use hatchery_wasm::{inspect, version};
use serde_json::json;

use crate::support::{Lab, call, component};

/// Returns a built component that needs another version of the contract. Both versions must have the same length.
fn patched(name: &str, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut bytes = std::fs::read(component(name)).unwrap();
    let (from, to) = (format!("@{from}"), format!("@{to}"));
    let is_version = |it: &[u8], place: usize| it == from.as_bytes() && bytes[..place].ends_with_interface();
    let places: Vec<_> =
        bytes.windows(from.len()).enumerate().filter(|(place, it)| is_version(it, *place)).map(|it| it.0).collect();
    assert!(!places.is_empty(), "{name} does not want {from}");
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

#[tokio::test]
async fn a_component_of_a_contract_that_is_no_longer_served_is_told_to_be_rebuilt() {
    let bytes = std::fs::read(component("contract_0_1_0")).unwrap();
    assert_eq!(version::required_version(&bytes).as_deref(), Some("0.1.0"));
    let lab = Lab::new();
    lab.write("old.wasm", bytes);
    assert_eq!(
        lab.reason(&lab.open().await.current(), "old.wasm"),
        "component `old` wants `hatchery:agent@0.1`, this host offers 0.2; rebuild it with `hatchery build`"
    );
}

#[tokio::test]
async fn a_component_of_another_patch_of_the_offered_version_is_served() {
    let bytes = patched("misbehaver", version::OFFERED, "0.2.9");
    let lab = Lab::new();
    lab.write("later.wasm", &bytes);
    let catalog = lab.catalog().await;
    let answer = call(&catalog, "echo", json!({"value": "hello"})).await.unwrap();
    assert_eq!(answer, json!({"value": "hello"}));
    assert_eq!(inspect(&lab.options, "later", bytes).await.unwrap().contract.as_deref(), Some("0.2.9"));
}

#[tokio::test]
async fn every_patch_of_the_offered_version_is_supported_and_no_other() {
    for (version, line) in [("0.1.1", "0.1"), ("0.3.0", "0.3"), ("1.2.0", "1")] {
        let bytes = patched("misbehaver", version::OFFERED, version);
        assert_eq!(version::required_version(&bytes).as_deref(), Some(version));
        assert!(!version::is_supported(version));
        let lab = Lab::new();
        lab.write("old.wasm", bytes);
        assert_eq!(
            lab.reason(&lab.open().await.current(), "old.wasm"),
            format!(
                "component `old` wants `hatchery:agent@{line}`, this host offers 0.2; rebuild it with `hatchery build`"
            )
        );
    }
    for served in ["0.2.0", "0.2.1", "0.2.99"] {
        assert!(version::is_supported(served), "{served}");
    }
}
