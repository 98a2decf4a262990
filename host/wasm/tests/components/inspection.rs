//! The data behind `hatchery inspect`.

use hatchery_wasm::{inspect, version};

use crate::support::{TestCatalog, component};

#[tokio::test]
async fn inspection_reports_imports_and_exports() {
    let bytes = std::fs::read(component("misbehaver")).unwrap();
    let inspection = inspect(&TestCatalog::new().options, "misbehaver", bytes.clone()).await.unwrap();
    assert_eq!(inspection.name, "misbehaver");
    assert_eq!(inspection.size, bytes.len() as u64);
    assert_eq!(inspection.sha256.len(), 64);
    assert_eq!(inspection.contract.as_deref(), Some(version::OFFERED));
    assert!(inspection.imports.iter().any(|name| name.starts_with("hatchery:agent/session@")));
    assert!(inspection.exports.iter().any(|name| name.starts_with("hatchery:agent/guest-tools@")));
    let echo = inspection.tools.iter().find(|tool| tool.name == "echo").unwrap();
    assert_eq!(echo.description, "Returns its arguments.");
    assert_eq!(echo.parameters.as_ref().unwrap()["type"], "object");
    assert!(inspection.agents.iter().all(|agent| agent.is_app && agent.kind == "custom"));
    assert_eq!(inspection.callbacks[0].points, ["before-agent"]);
    let json = serde_json::to_value(&inspection).unwrap();
    assert_eq!(json["tools"][0]["isLongRunning"], false);
}

#[tokio::test]
async fn inspection_lists_every_kind_of_item() {
    let bytes = std::fs::read(component("gallery")).unwrap();
    let inspection = inspect(&TestCatalog::new().options, "gallery", bytes).await.unwrap();
    assert_eq!(inspection.plugins[0].name, "censor");
    assert_eq!(
        inspection.plugins[0].hooks,
        ["on-user-message", "on-event", "after-run", "on-run-error", "before-model"]
    );
    assert_eq!(inspection.code_executors, ["shout"]);
    assert_eq!(inspection.summarizers, ["counter"]);
    assert_eq!(inspection.examples, ["sums"]);
    assert_eq!(inspection.models, ["component:gallery/echo", "component:gallery/parrot"]);
    let asking: Vec<_> =
        inspection.tools.iter().filter(|tool| tool.requires_confirmation).map(|tool| &tool.name).collect();
    assert_eq!(asking, ["guarded"]);
    let equipped = inspection.agents.iter().find(|agent| agent.name == "equipped").unwrap();
    assert_eq!(equipped.toolsets, ["gallery"]);
    let json = serde_json::to_value(&inspection).unwrap();
    assert_eq!(json["codeExecutors"], serde_json::json!(["shout"]));
}

#[tokio::test]
async fn inspection_shows_toolsets_and_how_agents_use_their_tools() {
    let bytes = std::fs::read(component("polyglot_rust")).unwrap();
    let inspection = inspect(&TestCatalog::new().options, "polyglot_rust", bytes).await.unwrap();
    assert_eq!(inspection.toolsets, ["keys"]);
    let chief = inspection.agents.iter().find(|agent| agent.name == "chief").unwrap();
    assert_eq!(chief.tools[..3], ["scale (needs approval)", "look {\"limit\":3}", "AgentTool {\"agent\":\"clerk\"}"]);
    assert_eq!(chief.toolsets, ["keys"]);
}

#[tokio::test]
async fn a_file_that_cannot_be_loaded_cannot_be_inspected() {
    let error = inspect(&TestCatalog::new().options, "notes", b"notes".to_vec()).await.unwrap_err();
    assert!(error.to_string().starts_with("component `notes` is not a WebAssembly file"), "{error}");
}
