//! Tools and callbacks of components.

use hatchery_core::{ItemResolver, RunError, ToolError};
use hatchery_wasm::ComponentSettings;
use serde_json::json;

use crate::imports::CapturedLog;
use crate::support::{TestCatalog, call, call_in, context};

#[tokio::test]
async fn a_tool_gets_its_arguments_and_returns_its_result() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let value = json!({"value": {"b": [1, 2.5, null, "ü"], "a": {}}});
    assert_eq!(call(&catalog, "misbehaver/echo", value.clone()).await.unwrap(), value);
}

#[tokio::test]
async fn a_trap_is_an_error_for_the_model_and_the_next_call_works() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    match call(&catalog, "trap", json!({})).await {
        Err(ToolError::Recoverable(message)) => assert_eq!(
            message,
            "tool `trap` of component `misbehaver` failed: it crashed: abort, failed assertion or uncaught exception"
        ),
        other => panic!("{other:?}"),
    }
    assert_eq!(call(&catalog, "echo", json!({"value": 7})).await.unwrap(), json!({"value": 7}));
}

#[tokio::test]
async fn the_message_of_a_panic_is_returned_and_the_log_has_its_place() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let error = call(&catalog, "panics", json!({"text": "the vase is broken"})).await.unwrap_err().to_string();
    drop(guard);
    assert_eq!(error, "tool `panics` of component `gallery` failed: it panicked: the vase is broken");
    let logged = log.lines("hatchery_wasm::error");
    let [line] = logged.as_slice() else { panic!("{logged:?}") };
    let (reason, words) = line.split_once("; it wrote to stderr: ").expect("the end of the guest's stderr");
    assert_eq!(reason, error);
    assert!(words.contains("panicked at ") && words.contains("tools.rs:"), "{words}");
}

#[tokio::test]
async fn a_fatal_error_of_a_tool_carries_its_code() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let error = call(&catalog, "fatal", json!({})).await.unwrap_err();
    assert_eq!(error.to_string(), "tool `fatal`: beyond repair");
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_an_error_for_the_model() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let error = call(&catalog, "slow", json!({"millis": "soon"})).await.unwrap_err();
    assert!(matches!(error, ToolError::Recoverable(_)), "{error:?}");
    assert!(error.to_string().contains("millis") || error.to_string().contains("soon"), "{error}");
}

#[tokio::test]
async fn a_tool_reads_its_own_state_changes_and_they_are_collected() {
    let catalog = TestCatalog::new()
        .with("misbehaver")
        .with_grants("misbehaver", json!({"state": {"write": ["user:mood"]}}))
        .catalog()
        .await;
    let cx = context(&catalog);
    let args = json!({"key": "user:mood", "value": {"good": true}});
    let result = call_in(&cx, &catalog, "state_rw", args).await.unwrap();
    assert_eq!(result, json!({"before": null, "after": {"good": true}}));
    let again = call_in(&cx, &catalog, "state_rw", json!({"key": "user:mood", "value": null})).await.unwrap();
    assert_eq!(again, json!({"before": {"good": true}, "after": null}));
    assert_eq!(cx.take_actions().state_delta, json!({"user:mood": null}).as_object().unwrap().clone());
}

#[tokio::test]
async fn a_tool_calls_another_tool_in_a_store_of_its_own() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let inner = json!({"tool": "echo", "args": {"value": "deep"}});
    let outer = json!({"tool": "misbehaver/relay_tool", "args": inner});
    assert_eq!(call(&catalog, "relay_tool", outer).await.unwrap(), json!({"value": "deep"}));
}

#[tokio::test]
async fn a_tool_that_calls_one_that_traps_gets_an_error_and_continues() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let error = call(&catalog, "relay_tool", json!({"tool": "trap", "args": {}})).await.unwrap_err();
    assert!(error.to_string().contains("tool `trap` of component `misbehaver` failed: it crashed"), "{error}");
}

#[tokio::test]
async fn a_callback_that_traps_ends_the_run_with_a_code() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let callback = catalog.callback("trapping_callback").unwrap();
    match callback.before_agent(&context(&catalog)).await {
        Err(error @ RunError::Component { code: "COMPONENT_TRAPPED", .. }) => {
            assert!(
                error
                    .to_string()
                    .starts_with("component `misbehaver`: callback `trapping_callback` failed: it crashed: "),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_callback_is_not_called_for_hooks_that_it_does_not_list() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let callback = catalog.callback("trapping_callback").unwrap();
    let error = callback.after_agent(&context(&catalog)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "callback `misbehaver/trapping_callback` of agent `agent`: it cannot be used as `after-agent`; it is made for \
         `before-agent`"
    );
}

#[tokio::test]
async fn calls_of_one_component_run_at_the_same_time() {
    let settings = ComponentSettings::default();
    let catalog = TestCatalog::new().with("misbehaver").with_settings("misbehaver", settings).catalog().await;
    let began = std::time::Instant::now();
    let calls = (0..20).map(|_| call(&catalog, "slow", json!({"millis": 300})));
    for result in futures::future::join_all(calls).await {
        assert_eq!(result.unwrap(), json!(300));
    }
    assert!(began.elapsed() < std::time::Duration::from_secs(5), "{:?}", began.elapsed());
}
