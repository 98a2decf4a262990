//! Attacks on the session history: additional keys of a guest or a client do not change the meaning of the known ones.

use anyhow::Result;
use hatchery_tests::Stage;
use hatchery_tests::host::{USER, events_in, message, session_path};
use hatchery_tests::stage::new_session_id;
use serde_json::{Value, json};

#[tokio::test]
async fn additional_keys_of_an_event_cannot_forge_it_or_break_the_session() -> Result<()> {
    let stage = Stage::new("").await?;
    let kinds = [
        "text",
        "call",
        "call_snake",
        "response",
        "thought",
        "other",
        "in_call",
        "in_response",
        "blob",
        "event",
        "event_snake",
        "actions",
    ];
    for kind in kinds {
        let reply = stage.send("forger", &json!({ "kind": kind })).await?;
        let stored = stage.host.session("forger", &reply.session).await?;
        let events = events_in(&stored)?;
        for event in events.iter().filter(|event| event["author"] != "user") {
            let forged = ["forged", "Mallory", "\"paid\"", "transferToAgent", "mine"]
                .iter()
                .find(|word| event.to_string().contains(**word));
            assert_eq!(forged, None, "{kind}: {event}");
        }
        assert!(stored["state"].get("user:forged").is_none(), "{kind}: {stored}");
        // The session is of use to everybody as before.
        stage.host.get(&format!("/apps/forger/users/{USER}/sessions")).await?.json(200)?;
        let again =
            stage.host.post("/run", &message("forger", &reply.session, &json!({ "kind": kind }).to_string())).await?;
        assert_ne!(again.status, 404, "{kind}: {}", again.text);
        stage.host.get(&session_path("forger", &reply.session)).await?.json(200)?;
    }
    stage.check_neighbours().await
}

#[tokio::test]
async fn an_agent_cannot_set_state_of_others_or_rewrite_their_history() -> Result<()> {
    let stage = Stage::new("").await?;
    let reply = stage.send("meddler", &json!({ "kind": "state" })).await?;
    let denied = "agent `meddler`: component `hostile` may not set the state key `user:meddled`";
    assert_eq!((reply.status, &reply.body["detail"]), (500, &json!(denied)), "{reply:?}");
    stage.wait_for_audit(&["denied", "component=\"hostile\"", "user:meddled"]).await?;
    let other = new_session_id();
    stage.host.create_session("meddler", &other).await?;
    let state = stage.host.session("meddler", &other).await?["state"].clone();
    assert_eq!(state, json!({}), "the user's state was changed");

    let reply = stage.send("meddler", &json!({ "kind": "compaction" })).await?;
    assert_eq!((reply.status, &reply.body["code"]), (500, &json!("DENIED")), "{reply:?}");
    let detail = reply.body["detail"].to_string();
    assert!(detail.contains("component `hostile` may not compact the session's history"), "{detail}");
    stage.wait_for_audit(&["denied", "component=\"hostile\"", "compact the session's history"]).await?;
    let stored = stage.host.session("meddler", &reply.session).await?.to_string();
    assert!(!stored.contains("agreed to everything"), "{stored}");
    Ok(())
}

#[tokio::test]
async fn parts_that_no_model_accepts_are_refused_by_the_server() -> Result<()> {
    let stage = Stage::new("").await?;
    let session = new_session_id();
    stage.host.create_session("dice", &session).await?;
    let path = session_path("dice", &session);
    for parts in [
        json!([{ "foo": 1 }]),
        json!([{ "text": "Hello", "foo": 1 }]),
        json!([{ "functionCall": { "name": "roll_die", "args": { "sides": 6 } } }]),
        json!([{}]),
        json!([{ "text": "Hello", "functionResponse": { "name": "roll_die", "response": {} } }]),
        json!([null]),
    ] {
        let mut body = message("dice", &session, "");
        body["newMessage"]["parts"] = parts.clone();
        for route in ["/run", "/run_sse"] {
            let answer = stage.host.post(route, &body).await?;
            assert!((400..500).contains(&answer.status), "{parts}: {} {}", answer.status, answer.text);
        }
        assert_eq!(stage.host.get(&path).await?.json(200)?["events"], json!([]), "{parts} was stored");
    }
    let reply = stage.host.run("dice", &session, "Roll a die with 6 sides").await?;
    assert!(!reply.is_empty(), "the session can be used");
    Ok(())
}

#[tokio::test]
async fn contradictory_imported_events_are_refused_or_read_as_checked() -> Result<()> {
    let stage = Stage::new("").await?;
    let part = json!({ "text": "harmless", "functionCall": { "name": "pay", "args": {} }, "function_call": {} });
    let event = json!({
        "id": "1", "invocationId": "e", "invocation_id": "f", "author": "dice", "timestamp": 1.75e9,
        "content": { "role": "model", "parts": [part] }, "actions": { "stateDelta": {}, "artifactDelta": {}, "state_delta": { "a": 1 } },
    });
    let sessions = format!("/apps/dice/users/{USER}/sessions");
    let answer = stage.host.post(&sessions, &json!({ "sessionId": "import", "events": [event] })).await?;
    assert!(answer.status < 500, "{}", answer.text);
    let read = stage.host.get(&format!("{sessions}/import")).await?;
    assert!(matches!(read.status, 200 | 404), "{}", read.text);
    let listed: Value = stage.host.get(&sessions).await?.json(200)?;
    assert!(listed.is_array(), "{listed}");
    Ok(())
}
