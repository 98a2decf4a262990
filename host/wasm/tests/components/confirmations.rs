//! Tools of components that request a confirmation.

use hatchery_core::{ItemResolver, ToolConfirmation};
use serde_json::json;

use crate::support::{TestCatalog, call_in, context};

#[tokio::test]
async fn a_tool_can_require_confirmation_of_each_call() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    assert!(catalog.tool("guarded").unwrap().requires_confirmation());
    assert!(!catalog.tool("asks").unwrap().requires_confirmation());
}

#[tokio::test]
async fn a_tool_requests_a_confirmation_with_a_hint_and_a_payload() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let cx = context(&catalog).for_call(Some("call-1"));
    let waiting = call_in(&cx, &catalog, "asks", json!({})).await.unwrap();
    assert_eq!(waiting, json!({"status": "waiting for a person"}));
    let requested = cx.take_actions().requested_tool_confirmations;
    let request = json!({"hint": "Are three days off all right?", "confirmed": false, "payload": {"days": 3}});
    assert_eq!(requested["call-1"], request);
}

#[tokio::test]
async fn a_tool_gets_the_decision_and_the_payload_of_a_confirmation() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    for confirmed in [true, false] {
        let decided = ToolConfirmation { hint: "for a week?".into(), confirmed, payload: Some(json!({"days": 7})) };
        let cx = context(&catalog).for_call(Some("call-1")).with_confirmation(Some(decided));
        let answer = call_in(&cx, &catalog, "asks", json!({})).await.unwrap();
        assert_eq!(answer, json!({"hint": "for a week?", "confirmed": confirmed, "days": 7}));
        assert!(cx.take_actions().is_empty(), "it has not requested one again");
    }
}

#[tokio::test]
async fn no_confirmation_can_be_requested_outside_of_a_tool_call() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let error = call_in(&context(&catalog), &catalog, "asks", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("a confirmation can only be requested in a tool call"), "{error}");
}
