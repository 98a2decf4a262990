//! Agents of components in runs of the engine.

use hatchery_core::{RunConfig, StreamingMode};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_wasm::Limits;
use serde_json::json;

use crate::support::{Listener, TestCatalog, run_app, run_custom, transcript};

fn pair(author: &str, text: &str) -> (String, String) {
    (author.into(), text.into())
}

#[tokio::test]
async fn a_custom_agent_relays_drops_and_adds_events() {
    let catalog = TestCatalog::new().with("relay").catalog().await;
    let model = Scripted::new().default_reply("I am the talker");
    let (events, error) = run_app(&catalog, "relay", "hello", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        transcript(&events),
        [
            pair("talker", "I am the talker"),
            pair("counter", "two"),
            pair("counter", "three"),
            pair("relay", "dropped: one"),
        ]
    );
}

#[tokio::test]
async fn partial_events_of_a_relayed_answer_keep_the_id_of_the_complete_event() {
    let catalog = TestCatalog::new().with("relay").catalog().await;
    let model = Scripted::new().default_reply(Reply::chunks(["I am ", "the talker"]));
    let config = RunConfig { streaming_mode: StreamingMode::On, ..RunConfig::default() };
    let (events, error) = run_app(&catalog, "relay", "hello", model, config).await;
    assert!(error.is_none(), "{error:?}");
    let talker: Vec<_> = events.iter().filter(|event| event.author == "talker").collect();
    assert_eq!(talker.iter().map(|event| event.partial).collect::<Vec<_>>(), [true, true, false]);
    assert!(talker.iter().all(|event| event.id == talker[0].id));
}

#[tokio::test]
async fn an_agent_that_calls_its_model_gets_partial_responses_and_then_the_complete_one() {
    let catalog =
        TestCatalog::new().with("relay").with_grants("relay", json!({"models": ["scripted:*"]})).catalog().await;
    let model = Scripted::new().default_reply(Reply::chunks(["One ", "two"]));
    let (events, error) = run_app(&catalog, "asker", "hello", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let texts: Vec<_> = transcript(&events).into_iter().map(|(_, text)| text).collect();
    assert_eq!(texts, ["One ", "two", "One two", "again: One two"]);
    assert_eq!(events.iter().map(|event| event.partial).collect::<Vec<_>>(), [true, true, false, false]);
    assert!(events[..3].iter().all(|event| event.id == events[0].id), "pieces have the id of their whole");
    assert_ne!(events[3].id, events[0].id);
}

#[tokio::test]
async fn a_sub_agent_that_fails_and_is_relayed_ends_the_run_with_its_own_error() {
    let catalog = TestCatalog::new().with("relay").catalog().await;
    let model = Scripted::new().default_reply(Reply::status(429, "slow down"));
    let (events, error) = run_app(&catalog, "relay", "hello", model, RunConfig::default()).await;
    assert_eq!(error.expect("a failure").code(), "MODEL_RATE_LIMITED");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].error_code.as_deref(), Some("MODEL_RATE_LIMITED"));
}

#[tokio::test]
async fn an_agent_that_traps_ends_the_run_and_its_events_are_kept() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let (events, error) = run_app(&catalog, "trapping_agent", "hello", Scripted::new(), RunConfig::default()).await;
    assert_eq!(error.expect("a failure").code(), "COMPONENT_TRAPPED");
    assert_eq!(transcript(&events)[0], pair("trapping_agent", "about to trap"));
    assert_eq!(events.last().unwrap().error_code.as_deref(), Some("COMPONENT_TRAPPED"));
}

#[tokio::test]
async fn an_agent_that_fails_ends_the_run_with_its_own_code() {
    let catalog = TestCatalog::new().with("misbehaver").catalog().await;
    let (events, error) = run_app(&catalog, "failing_agent", "hello", Scripted::new(), RunConfig::default()).await;
    assert_eq!(error.expect("a failure").code(), "BROKEN");
    assert_eq!(transcript(&events)[0], pair("failing_agent", "about to fail"));
    assert_eq!(events.iter().filter(|event| event.error_code.is_some()).count(), 1, "the error is reported once");
}

#[tokio::test]
async fn a_slow_listener_slows_the_guest_down() {
    let catalog = TestCatalog::new().with("swap").with_limits(Limits::default()).catalog().await;
    let listener = Listener::new(1);
    let run = run_custom(&catalog, "swap", &listener);
    tokio::pin!(run);
    // The first event passes, the second is blocked, and the guest is not asked for the third.
    while listener.texts().len() < 2 {
        tokio::select! {
            ended = &mut run => panic!("{ended:?}"),
            () = listener.arrived.notified() => {}
        }
    }
    assert_eq!(listener.texts(), ["unset 1", "unset 2"]);
    listener.permits.add_permits(5);
    run.await.unwrap();
    assert_eq!(listener.texts(), ["unset 1", "unset 2", "unset 3"]);
}

fn dice_script() -> Scripted {
    Scripted::file(concat!(env!("CARGO_MANIFEST_DIR"), "/../../sample-agents/dice/answers.yaml"))
}

#[tokio::test]
async fn an_llm_agent_calls_its_components_tool_and_the_state_is_stored_with_the_answer() {
    let catalog = TestCatalog::new().with("dice").catalog().await;
    let (events, error) =
        run_app(&catalog, "dice", "Roll a die with 20 sides", dice_script(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let response = events[1].function_responses().next().expect("a function response");
    let rolled = response.response["result"].as_u64().expect("a number");
    assert!((1..=20).contains(&rolled));
    assert_eq!(events[1].actions.state_delta["last_roll"], rolled);
    assert_eq!(events[1].actions.state_delta["last_sides"], 20);
    assert_eq!(transcript(&events)[2], pair("dice", &format!("You rolled {rolled}.")));
}

#[tokio::test]
async fn a_components_callback_answers_instead_of_the_tool() {
    let catalog = TestCatalog::new().with("dice").catalog().await;
    let (events, error) =
        run_app(&catalog, "dice", "Roll a die with 1 side", dice_script(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let response = events[1].function_responses().next().expect("a function response");
    assert_eq!(response.response["error"], "a die has two sides or more, not 1");
    assert!(events[1].actions.state_delta.is_empty(), "the tool has not run");
}

#[tokio::test]
async fn state_changes_of_an_agent_are_stored_with_its_next_event() {
    let catalog = TestCatalog::new()
        .with("greeter")
        .with_grants("greeter", json!({"state": {"write": ["user:*"]}}))
        .catalog()
        .await;
    let (events, error) = run_app(&catalog, "greeter", "My name is Ada.", Scripted::new(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        transcript(&events),
        [pair("greeter", "Nice to meet you, Ada."), pair("greeter", "I will know you the next time.")]
    );
    assert_eq!(events[0].actions.state_delta["user:name"], "Ada");
    assert_eq!(events[0].actions.state_delta["visits"], 1);
    assert!(events[1].actions.state_delta.is_empty());
}
