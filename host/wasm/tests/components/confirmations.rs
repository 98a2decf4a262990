//! Tools of components that ask a person before they go on.

use hatchery_core::{ItemResolver, ToolConfirmation};
use serde_json::json;

use crate::support::{Lab, call_in, context};

#[tokio::test]
async fn a_tool_says_that_a_person_has_to_agree_to_each_call() {
    let catalog = Lab::new().with("gallery").catalog().await;
    assert!(catalog.tool("guarded").unwrap().requires_confirmation());
    assert!(!catalog.tool("asks").unwrap().requires_confirmation());
}

#[tokio::test]
async fn a_tool_asks_a_person_with_a_hint_and_a_payload() {
    let catalog = Lab::new().with("gallery").catalog().await;
    let cx = context(&catalog).for_call(Some("call-1"));
    let waiting = call_in(&cx, &catalog, "asks", json!({})).await.unwrap();
    assert_eq!(waiting, json!({"status": "waiting for a person"}));
    let requested = cx.take_actions().requested_tool_confirmations;
    let asked = json!({"hint": "Are three days off all right?", "confirmed": false, "payload": {"days": 3}});
    assert_eq!(requested["call-1"], asked);
}

#[tokio::test]
async fn a_tool_is_told_what_a_person_has_decided_and_given() {
    let catalog = Lab::new().with("gallery").catalog().await;
    for confirmed in [true, false] {
        let decided = ToolConfirmation { hint: "for a week?".into(), confirmed, payload: Some(json!({"days": 7})) };
        let cx = context(&catalog).for_call(Some("call-1")).with_confirmation(Some(decided));
        let told = call_in(&cx, &catalog, "asks", json!({})).await.unwrap();
        assert_eq!(told, json!({"hint": "for a week?", "confirmed": confirmed, "days": 7}));
        assert!(cx.take_actions().is_empty(), "it has not asked again");
    }
}

#[tokio::test]
async fn nobody_can_be_asked_outside_of_a_tool_call() {
    let catalog = Lab::new().with("gallery").catalog().await;
    let error = call_in(&context(&catalog), &catalog, "asks", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("a confirmation can be asked for only in a tool call"), "{error}");
}
