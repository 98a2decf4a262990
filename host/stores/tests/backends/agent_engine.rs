//! Sessions and memory in Vertex AI Agent Engine.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{
    Content, Event, EventActions, EventData, EventWindow, ExpiryRule, HOST_USER, JsonMap, MemoryService, Part,
    PartData, Session, SessionKey, SessionService, State, StoreError, Timestamp, TurnStart,
};
use hatchery_stores::{AgentEngineMemory, AgentEngineSessions};
use serde_json::{Value, json};

use crate::fake_engine::{ENGINE, FakeEngine, TOKEN, tokens};

const SESSIONS: &str = "a session service is one of `memory:`, `sqlite:///absolute/path.db`, `sqlite:relative/path.db`, \
     `postgres://user@host/database`, `firestore://project/database` and `agentengine://project/location/engine`";
const LEASE: Duration = Duration::from_secs(60);

fn message(text: &str) -> Arc<Event> {
    let content = Some(Arc::new(Content::user(text)));
    Event::new(EventData { author: "user".into(), content, ..EventData::default() })
}

async fn create(sessions: &dyn SessionService, id: &str) -> SessionKey {
    sessions.create("app", "ann", Some(id), JsonMap::new()).await.unwrap().key
}

fn error<T>(result: Result<T, StoreError>) -> String {
    result.err().unwrap().to_string()
}

#[tokio::test]
async fn an_event_is_stored_in_the_fields_that_other_programs_read() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let key = create(&sessions, "s1").await;
    let json = json!({
        "id": "e1", "invocationId": "e-1", "author": "dice", "timestamp": 1_700_000_000.25, "branch": "a.b",
        "content": { "role": "model", "parts": [{ "inlineData": { "mimeType": "image/png", "data": "AAEC" } }] },
        "errorCode": "SAFETY", "errorMessage": "no", "longRunningToolIds": ["c1"], "finishReason": "STOP",
        "actions": {
            "stateDelta": { "a": 1, "gone": "__ADK_SENTINEL_REMOVED__", "temp:t": 1 }, "artifactDelta": { "f": 2 },
            "transferToAgent": "other", "escalate": true, "skipSummarization": true,
        },
        "customMetadata": { "k": "v" },
    });
    sessions.append(&key, &Event::from_json(json.to_string()).unwrap()).await.unwrap();
    let [stored]: [Value; 1] = server.events("s1").try_into().unwrap();
    let expected = json!({
        "author": "dice", "invocationId": "e-1", "timestamp": "2023-11-14T22:13:20.250000Z",
        "content": json["content"], "errorCode": "SAFETY", "errorMessage": "no",
        "actions": {
            "stateDelta": { "a": 1, "gone": null }, "artifactDelta": { "f": 2 }, "transferAgent": "other",
            "escalate": true, "skipSummarization": true,
        },
        "eventMetadata": { "branch": "a.b", "longRunningToolIds": ["c1"], "customMetadata": { "k": "v" } },
        "rawEvent": { "hatchery": json.to_string() }, "name": format!("{ENGINE}/sessions/s1/events/0"),
    });
    assert_eq!(stored, expected);
    let (method, body) = server.requests().remove(0);
    assert_eq!(method, format!("POST /v1beta1/{ENGINE}/sessions?sessionId=s1"));
    assert_eq!(body, json!({ "userId": "ann", "displayName": "app", "sessionState": {} }));
}

#[tokio::test]
async fn events_of_adk_are_read() {
    let server = FakeEngine::start().await;
    let event = json!({
        "author": "dice", "invocationId": "e-1", "timestamp": "2023-11-14T22:13:20.250Z",
        "content": { "role": "model", "parts": [{ "text": "hello" }] },
        "actions": { "stateDelta": { "a": 1 }, "transferAgent": "other" },
        "eventMetadata": {
            "turnComplete": true, "branch": "a.b", "longRunningToolIds": ["c1"],
            "customMetadata": { "own": 1, "_usage_metadata": { "prompt_token_count": 5 } },
        },
    });
    server.add("123", "ann", json!({ "a": 1, "b": 2 }), vec![event]);
    let sessions = server.sessions();
    let key = SessionKey::new("any-app", "ann", "123");
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(serde_json::to_value(&session.state).unwrap(), json!({ "a": 1, "b": 2 }));
    let read: Value = serde_json::from_slice(session.events[0].json()).unwrap();
    let expected = json!({
        "id": "0", "author": "dice", "invocationId": "e-1", "timestamp": 1_700_000_000.25,
        "content": { "role": "model", "parts": [{ "text": "hello" }] },
        "actions": { "stateDelta": { "a": 1 }, "transferToAgent": "other" }, "turnComplete": true, "branch": "a.b",
        "longRunningToolIds": ["c1"], "customMetadata": { "own": 1 }, "usageMetadata": { "promptTokenCount": 5 },
    });
    assert_eq!(read, expected);
    assert_eq!(sessions.append(&key, &message("hi")).await.unwrap(), 2);
    let listed = sessions.list("any-app", "ann").await.unwrap();
    assert_eq!(listed.into_iter().map(|session| session.key).collect::<Vec<_>>(), [key]);
}

#[tokio::test]
async fn sessions_of_others_are_neither_read_nor_deleted() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    create(&sessions, "s1").await;
    for key in [SessionKey::new("app", "bob", "s1"), SessionKey::new("other", "ann", "s1")] {
        assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_none());
        let refused = sessions.append(&key, &message("x")).await;
        assert!(matches!(refused, Err(StoreError::SessionNotFound(_))), "{refused:?}");
        sessions.delete(&key).await.unwrap();
        let taken = sessions.create(&key.app, &key.user, Some("s1"), JsonMap::new()).await;
        assert!(matches!(taken, Err(StoreError::SessionExists(_))), "{taken:?}");
    }
    assert!(sessions.get(&SessionKey::new("app", "ann", "s1"), EventWindow::All).await.unwrap().is_some());
    server.add("o'b", "a\"b\\c", json!({}), Vec::new());
    assert_eq!(sessions.list("app", "a\"b\\c").await.unwrap().len(), 1);
    assert!(sessions.list("app", "\" OR user_id=\"ann").await.unwrap().is_empty());
}

#[tokio::test]
async fn an_id_that_agent_engine_does_not_accept_is_rejected() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    for id in ["S1", "1a", "a-", "a_b", "a/b", "é", &"a".repeat(64)] {
        let refused = sessions.create("app", "ann", Some(id), JsonMap::new()).await;
        let Err(refused @ StoreError::InvalidName { .. }) = refused else { panic!("{id}: {refused:?}") };
        let reason = "the id of a session in Agent Engine has at most 63 characters of a-z, 0-9 and `-`, the first a \
                      letter and the last not `-`; leave it empty to get a new one";
        assert_eq!(refused.to_string(), format!("invalid name `{id}`: {reason}"));
    }
    for id in ["", "..", "../../7", "a/events", "a:appendEvent"] {
        assert!(sessions.get(&SessionKey::new("app", "ann", id), EventWindow::All).await.unwrap().is_none());
    }
    assert!(server.requests().is_empty(), "{:?}", server.requests());
}

#[tokio::test]
async fn a_long_session_is_read_in_pages_and_only_when_a_turn_begins() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let key = create(&sessions, "s1").await;
    for number in 0..150 {
        sessions.append(&key, &message(&number.to_string())).await.unwrap();
    }
    let TurnStart::Begun(turn) = sessions.begin_turn(&key, None, LEASE).await.unwrap() else { panic!("it is held") };
    assert_eq!(turn.revision, 150);
    let before = server.requests().len();
    for expected in 151..=153 {
        assert_eq!(sessions.append_with(&key, &message("next"), Some(turn.fence)).await.unwrap(), expected);
    }
    assert_eq!(server.requests().len() - before, 3, "an append is one request");
}

#[tokio::test]
async fn events_of_another_program_are_noticed_when_a_turn_begins() {
    let server = FakeEngine::start().await;
    let (ours, theirs) = (server.sessions(), server.sessions());
    let key = create(&ours, "s1").await;
    ours.append(&key, &message("ours")).await.unwrap();
    theirs.append(&key, &message("theirs")).await.unwrap();
    let TurnStart::Begun(turn) = ours.begin_turn(&key, None, LEASE).await.unwrap() else { panic!("it is held") };
    assert_eq!(turn.revision, 2);
    assert_eq!(ours.append_with(&key, &message("next"), Some(turn.fence)).await.unwrap(), 3);
}

#[tokio::test]
async fn an_append_whose_answer_was_lost_is_not_repeated() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let key = create(&sessions, "s1").await;
    sessions.append(&key, &message("first")).await.unwrap();
    let event = message("hello");
    // Another connection of this host has stored it, and its answer was lost.
    server.sessions().append(&key, &event).await.unwrap();
    server.fail(500, json!({ "error": { "code": 500, "message": "internal" } }));
    let failed = error(sessions.append(&key, &message("other")).await);
    assert_eq!(failed, "cannot append an event to a session in agentengine://p/l/7: HTTP 500: internal");
    assert_eq!(sessions.append(&key, &event).await.unwrap(), 2);
    assert_eq!(server.events("s1").len(), 2);
}

#[tokio::test]
async fn a_failure_that_passes_is_not_seen() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let key = create(&sessions, "s1").await;
    server.fail(503, json!({}));
    assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_some());
    server.fail(429, json!({}));
    sessions.append(&key, &message("hello")).await.unwrap();
    assert_eq!(server.events("s1").len(), 1);
    server.fail_operation(503);
    create(&sessions, "s2").await;
    server.fail(401, json!({}));
    sessions.append(&key, &message("again")).await.unwrap();
    assert_eq!(server.events("s1").len(), 2);
}

#[tokio::test]
async fn errors_name_the_engine_and_the_next_step_and_no_token() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let key = create(&sessions, "s1").await;
    server.fail(403, json!({ "error": { "message": format!("{TOKEN} lacks a permission") } }));
    assert_eq!(
        error(sessions.get(&key, EventWindow::All).await),
        "cannot read a session in agentengine://p/l/7: HTTP 403: [token] lacks a permission; give the account the \
         role roles/aiplatform.user"
    );
    let elsewhere = AgentEngineSessions::open("agentengine://p/l/8", tokens(), |name| server.variable(name)).unwrap();
    assert_eq!(
        error(elsewhere.create("app", "ann", None, JsonMap::new()).await),
        "cannot create a session in agentengine://p/l/8: HTTP 404: The ReasoningEngine does not exist; check the project, \
         the location and the engine"
    );
    for _ in 0..3 {
        server.fail(429, json!({}));
    }
    let Err(busy @ StoreError::Busy { .. }) = sessions.get(&key, EventWindow::All).await else {
        panic!("it should be busy")
    };
    assert_eq!(busy.to_string(), "Vertex AI Agent Engine refuses so many requests; try again in 5 s");
}

#[tokio::test]
async fn what_agent_engine_cannot_store_is_refused() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let key = create(&sessions, "s1").await;
    assert!(sessions.runs().is_none() && sessions.journal().is_none());
    assert_eq!(error(sessions.fork(&key, 0, None).await), "this session service cannot fork sessions");
    assert_eq!(error(sessions.rewind(&key, 0).await), "this session service cannot rewind sessions");
    let memory = server.memory();
    let because = "because it stores facts about users; use Google's console for single facts";
    assert_eq!(
        error(memory.delete_session(&key).await),
        format!("Memory Bank cannot delete the entries of a session, {because}")
    );
    assert_eq!(error(memory.sessions(None, None).await), format!("Memory Bank cannot list sessions, {because}"));
    assert_eq!(
        error(memory.entries(&key).await),
        format!("Memory Bank cannot list the entries of a session, {because}")
    );
}

#[tokio::test]
async fn engines_have_addresses_of_several_forms() {
    let variable = |name: &str| match name {
        "GOOGLE_CLOUD_PROJECT" => Some("p".to_owned()),
        "GOOGLE_CLOUD_LOCATION" => Some("l".to_owned()),
        _ => None,
    };
    for uri in [
        "agentengine://7",
        "agentengine://p/l/7",
        &format!("agentengine://{ENGINE}"),
        "agentengine://example.com:p/l/7",
    ] {
        assert!(AgentEngineSessions::open(uri, tokens(), variable).is_ok(), "{uri}");
        assert!(AgentEngineMemory::open(uri, tokens(), variable).is_ok(), "{uri}");
    }
    for uri in
        ["agentengine://", "agentengine://p/l", "agentengine://p/../7", "agentengine://p//7", "agentengine://p/l/7/x"]
    {
        assert_eq!(
            error(AgentEngineSessions::open(uri, tokens(), variable)),
            format!("invalid name `agentengine:…`: {SESSIONS}")
        );
    }
    assert_eq!(
        error(AgentEngineSessions::open("agentengine://7", tokens(), |_| None)),
        "set GOOGLE_CLOUD_PROJECT, or write agentengine://PROJECT/LOCATION/ENGINE"
    );
    let plain = |name: &str| (name == "GOOGLE_VERTEX_BASE_URL").then(|| "http://proxy.example".to_owned());
    assert_eq!(
        error(AgentEngineSessions::open("agentengine://p/l/7", tokens(), plain)),
        "GOOGLE_VERTEX_BASE_URL is not an https URL, so no access token is sent there; correct it"
    );
}

#[tokio::test]
async fn facts_are_generated_from_messages_and_found_by_similarity() {
    let server = FakeEngine::start().await;
    let memory = server.memory();
    let event = |parts: Vec<Part>| {
        Event::new(EventData { content: Some(Arc::new(Content::new("model", parts))), ..EventData::default() })
    };
    let thought = Part { thought: true, ..Part::text("secret thought") };
    let silent = Event::new(EventData { actions: EventActions::default(), ..EventData::default() });
    let session = Session {
        key: SessionKey::new("app", "ann", "s1"),
        state: State::default(),
        events: [event(vec![thought.clone(), Part::text("likes green apples")]), event(vec![thought]), silent]
            .into_iter()
            .collect(),
        revision: 3,
        created: Timestamp::default(),
        last_update_time: Timestamp::default(),
    };
    memory.add_session(&session).await.unwrap();
    let call: PartData =
        serde_json::from_value::<Part>(json!({ "functionCall": { "name": "f", "args": {} } })).unwrap().data;
    memory.add_events(&session.key, &[event(vec![Part::text("lives in Rome"), call.into()])]).await.unwrap();
    let (_, body) = server.requests().remove(0);
    let content = json!({ "role": "model", "parts": [{ "text": "likes green apples" }] });
    let expected = json!({
        "scope": { "app_name": "app", "user_id": "ann" }, "directContentsSource": { "events": [{ "content": content }] },
    });
    assert_eq!(body, expected);

    let found = memory.search("app", "ann", "Rome or Milan").await.unwrap();
    assert_eq!(
        found.iter().map(|entry| entry.content.text()).collect::<Vec<_>>(),
        ["lives in Rome", "likes green apples"]
    );
    assert_eq!((found[0].author.as_deref(), found[0].timestamp.as_micros()), (Some("user"), 1_767_323_045_500_000));
    assert!(memory.search("app", "bob", "Rome").await.unwrap().is_empty());
    assert!(memory.search("other", "ann", "Rome").await.unwrap().is_empty());
    let before = server.requests().len();
    assert!(memory.search("app", "ann", "  ").await.unwrap().is_empty());
    memory.add_events(&session.key, &[]).await.unwrap();
    assert_eq!(server.requests().len(), before, "nothing is asked for without a query, nor added without a message");
}

async fn list_expired(sessions: &dyn SessionService, rule: ExpiryRule, limit: usize) -> Vec<(String, i64)> {
    let found = sessions.list_expired("app", &rule, limit).await.unwrap();
    found.into_iter().map(|session| (session.key.id.to_string(), session.updated.as_micros())).collect()
}

#[tokio::test]
async fn sessions_that_retention_rules_name_are_found_by_their_last_change() {
    let server = FakeEngine::start().await;
    let sessions = server.sessions();
    let made = [("app", "ann", "a3"), ("app", "ann", "a1"), ("app", "ann", "a2"), ("app", "bob", "b1")];
    for (app, user, id) in made.into_iter().chain([("other", "ann", "o"), ("app", HOST_USER, "h")]) {
        let key = sessions.create(app, user, Some(id), JsonMap::new()).await.unwrap().key;
        let timestamp = Timestamp::from_micros(i64::from(id.as_bytes()[0]));
        sessions.append(&key, &Event::new(EventData { timestamp, ..EventData::default() })).await.unwrap();
    }
    // The session of another program does not name its app, so no rule of an app deletes it.
    server.add("adk", "ann", json!({}), Vec::new());
    for (id, day) in [("a1", 1), ("b1", 2), ("a2", 3), ("a3", 4), ("o", 1), ("h", 1), ("adk", 1)] {
        server.set_update_time(id, &format!("2026-01-0{day}T00:00:00Z"));
    }
    let third_day = Timestamp::from_iso("2026-01-03T00:00:00Z");
    let idle = ExpiryRule { idle_since: third_day, ..ExpiryRule::default() };
    // The time is the time of the newest event, which shows whether the session was used since.
    assert_eq!(list_expired(&sessions, idle, 10).await, [("a1".to_owned(), 97), ("b1".to_owned(), 98)]);
    assert_eq!(list_expired(&sessions, idle, 1).await, [("a1".to_owned(), 97)]);
    let newest = ExpiryRule { user_sessions: Some(1), ..ExpiryRule::default() };
    assert_eq!(list_expired(&sessions, newest, 10).await, [("a1".to_owned(), 97), ("a2".to_owned(), 97)]);
    assert!(list_expired(&sessions, ExpiryRule::default(), 10).await.is_empty());

    let key = SessionKey::new("app", "ann", "a1");
    assert!(matches!(sessions.begin_turn(&key, None, LEASE).await.unwrap(), TurnStart::Begun(_)));
    assert_eq!(list_expired(&sessions, idle, 10).await, [("b1".to_owned(), 98)]);
}
