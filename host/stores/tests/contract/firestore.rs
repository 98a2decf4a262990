//! Behaviour that only Firestore has: the layout of documents, several hosts on one database, sizes.

mod recovery;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use hatchery_core::{
    Content, Event, EventData, EventWindow, JsonMap, MemoryService, Model, ModelError, ModelErrorKind, ModelResolver,
    RunTransition, Session, SessionKey, SessionService, State, StoreError, StoredRun, Timestamp, TurnStart,
};
use hatchery_stores::firestore::{
    FirestoreClient, FirestoreMemoryService, FirestoreProperties, FirestoreSessionService,
};
use serde_json::{Value, json};

use crate::emulator;
use crate::proxy::{Fault, Proxy};
use crate::support::{LONG, append, create, delta, event, event_at, ids, map, state};

/// Two services, as of two hosts, of one new database, with its name.
fn two_hosts() -> Option<([FirestoreSessionService; 2], String)> {
    let project = format!("test-{}", uuid::Uuid::new_v4());
    let first = FirestoreSessionService::new(emulator::project(&project)?);
    let second = FirestoreSessionService::new(emulator::project(&project)?);
    Some(([first, second], project))
}

/// Sends a request to the REST API of the emulator.
async fn rest(project: &str, path: &str, patch: Option<Value>) -> Value {
    let address = hatchery_test_services::firestore_emulator().unwrap();
    let url = format!("http://{address}/v1/projects/{project}/databases/(default)/documents/{path}");
    let client = reqwest::Client::new();
    let request = match patch {
        Some(patch) => client.patch(url).json(&patch),
        None => client.get(url),
    };
    let answer = request.bearer_auth("owner").send().await.unwrap().error_for_status().unwrap();
    answer.json().await.unwrap()
}

async fn document(project: &str, path: &str) -> Value {
    rest(project, path, None).await["fields"].clone()
}

/// Returns the names of the documents of a collection, also of those that are missing but have collections.
async fn documents(project: &str, path: &str) -> Vec<String> {
    let list = rest(project, &format!("{path}?showMissing=true&pageSize=300"), None).await;
    let list = list["documents"].as_array().cloned().unwrap_or_default();
    list.iter().map(|document| document["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned()).collect()
}

fn long_event(bytes: usize) -> Arc<Event> {
    let content = Some(Arc::new(Content::user("é".repeat(bytes / 2))));
    Event::new(EventData { author: "user".into(), content, ..EventData::default() })
}

#[tokio::test]
async fn documents_have_the_layout_and_the_keys_of_adk() {
    let Some(([sessions, _], project)) = two_hosts() else { return };
    let initial = map(json!({"mood": "good", "user:name": "Ann", "app:theme": {"dark": [null, 1.5]}}));
    let key = sessions.create("app", "ann", Some("s1"), initial).await.unwrap().key;
    let appended = Event::new(EventData {
        id: "e1".into(),
        author: "user".into(),
        content: Some(Arc::new(Content::user("hello"))),
        timestamp: Timestamp::from_micros(1_700_000_000_250_000),
        ..EventData::default()
    });
    append(&sessions, &key, [appended.clone()]).await;

    let session = document(&project, "adk-session/ann/sessions/app~s1").await;
    for (field, expected) in [
        ("id", json!({"stringValue": "s1"})),
        ("appName", json!({"stringValue": "app"})),
        ("userId", json!({"stringValue": "ann"})),
        ("updateTime", json!({"stringValue": "2023-11-14T22:13:20.250000Z"})),
        ("state", json!({"mapValue": {"fields": {"mood": {"stringValue": "\"good\""}}}})),
    ] {
        assert_eq!(session[field], expected, "{field}");
    }
    let stored = document(&project, "adk-session/ann/sessions/app~s1/user-event/e1").await;
    for (field, expected) in [
        ("id", json!({"stringValue": "e1"})),
        ("appName", json!({"stringValue": "app"})),
        ("userId", json!({"stringValue": "ann"})),
        ("author", json!({"stringValue": "user"})),
        ("role", json!({"stringValue": "user"})),
        ("timestamp", json!({"stringValue": "2023-11-14T22:13:20.250000Z"})),
        ("revision", json!({"integerValue": "1"})),
        ("json", json!({"stringValue": String::from_utf8(appended.json().to_vec()).unwrap()})),
    ] {
        assert_eq!(stored[field], expected, "{field}");
    }
    let app = document(&project, "app-state/app").await;
    let theme = json!({"mapValue": {"fields": {"theme": {"stringValue": "{\"dark\":[null,1.5]}"}}}});
    assert_eq!((&app["appName"]["stringValue"], &app["state"]), (&json!("app"), &theme));
    let user = document(&project, "user-state/app/users/ann").await;
    assert_eq!(user["state"], json!({"mapValue": {"fields": {"name": {"stringValue": "\"Ann\""}}}}));
}

#[tokio::test]
async fn the_root_collection_can_be_another_one() {
    let Some(client) = emulator::client() else { return };
    let properties = FirestoreProperties { root_collection: "chats".into(), ..FirestoreProperties::default() };
    let other = FirestoreSessionService::with_properties(client.clone(), &properties);
    let key = create(&other, "ann", "s1").await;
    assert!(FirestoreSessionService::new(client).get(&key, EventWindow::All).await.unwrap().is_none());
    assert!(other.get(&key, EventWindow::All).await.unwrap().is_some());
}

#[tokio::test]
async fn two_hosts_that_append_at_once_lose_nothing() {
    let Some((hosts, _)) = two_hosts() else { return };
    let key = create(&hosts[0], "ann", "s1").await;
    let events: Vec<_> =
        (0..20).map(|number| delta(json!({format!("k{number}"): number, "user:last": number}))).collect();
    let appends = events.iter().enumerate().map(|(index, event)| hosts[index % 2].append(&key, event));
    let revisions: BTreeSet<u64> = join_all(appends).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(revisions, (1..=20).collect());
    for host in &hosts {
        let session = host.get(&key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!((session.revision, session.events.len(), session.state.len()), (20, 20, 21));
    }
    let usage = hosts[1].usage(&key).await.unwrap();
    assert_eq!((usage.session.events, usage.session.state.keys, usage.user.state.keys), (20, 20, 21));
}

#[tokio::test]
async fn one_event_that_two_hosts_append_is_stored_once() {
    let Some((hosts, _)) = two_hosts() else { return };
    let key = create(&hosts[0], "ann", "s1").await;
    let event = event("hello");
    let appends = (0..8).map(|index| hosts[index % 2].append(&key, &event));
    assert!(join_all(appends).await.into_iter().all(|revision| revision.unwrap() == 1));
    assert_eq!(ids(&hosts[0], &key, EventWindow::All).await, [event.id.as_str()]);
}

#[tokio::test]
async fn a_host_whose_turn_another_host_has_taken_writes_nothing() {
    let Some(([first, second], _)) = two_hosts() else { return };
    let key = create(&first, "ann", "s1").await;
    let begin = async |host: &FirestoreSessionService, previous| match host.begin_turn(&key, previous, LONG).await {
        Ok(TurnStart::Begun(turn)) => Some(turn.fence),
        Ok(TurnStart::Held { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    let fence = begin(&first, None).await.unwrap();
    assert_eq!(begin(&second, None).await, None, "the first host holds the session");
    first.renew_turn(&key, fence, std::time::Duration::ZERO).await.unwrap();
    let next = begin(&second, None).await.unwrap();
    let late = first.append_with(&key, &event("late"), Some(fence)).await;
    assert!(matches!(late, Err(StoreError::Fenced(_))), "{late:?}");
    let run = StoredRun::new(key.clone(), "r1", 0);
    let late = first.runs().unwrap().start(&run, fence).await;
    assert!(matches!(late, Err(StoreError::Fenced(_))), "{late:?}");
    assert_eq!(second.append_with(&key, &event("hello"), Some(next)).await.unwrap(), 1);
}

#[tokio::test]
async fn of_two_hosts_that_begin_a_turn_or_a_session_one_succeeds() {
    let Some((hosts, _)) = two_hosts() else { return };
    let created = join_all((0..8).map(|index| hosts[index % 2].create("app", "ann", Some("s1"), JsonMap::new()))).await;
    assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 1);
    let key = SessionKey::new("app", "ann", "s1");
    let turns = join_all((0..8).map(|index| hosts[index % 2].begin_turn(&key, None, LONG))).await;
    let begun = turns.into_iter().filter(|turn| matches!(turn.as_ref().unwrap(), TurnStart::Begun(_)));
    assert_eq!(begun.count(), 1);
}

#[tokio::test]
async fn a_run_that_one_host_starts_and_another_one_cancels_has_one_outcome() {
    let Some(([first, second], _)) = two_hosts() else { return };
    let key = create(&first, "ann", "s1").await;
    let TurnStart::Begun(turn) = first.begin_turn(&key, None, LONG).await.unwrap() else { panic!("it is held") };
    for number in 0..10 {
        let run = StoredRun::new(key.clone(), format!("r{number}"), 0);
        first.runs().unwrap().add(&run).await.unwrap();
        let (started, cancelled) = futures::join!(
            first.runs().unwrap().start(&run, turn.fence),
            second.runs().unwrap().change(&key, &run.id, None, &RunTransition::RequestCancel),
        );
        let stored = second.runs().unwrap().get(&key, &run.id).await.unwrap().unwrap();
        let (started, cancelled) = (started.unwrap(), cancelled.unwrap().unwrap());
        assert!(stored == started || stored == cancelled);
        assert!(stored.is_cancel_requested || stored.state.has_ended(), "the request is not lost");
    }
}

#[tokio::test]
async fn an_event_of_several_megabytes_is_stored_in_parts() {
    let Some(([sessions, _], project)) = two_hosts() else { return };
    let key = create(&sessions, "ann", "s1").await;
    let long = long_event(2_500_000);
    append(&sessions, &key, [event("before"), long.clone(), event("after")]).await;
    assert_eq!(sessions.append(&key, &long).await.unwrap(), 2, "a repeated append");
    let other = Event::new(EventData { id: long.id.clone(), ..EventData::default() });
    assert_eq!(sessions.append(&key, &other).await.unwrap_err().code(), "EVENT_EXISTS");
    let fork = sessions.fork(&key, 2, None).await.unwrap().key;
    for key in [&key, &fork] {
        let read = sessions.get(key, EventWindow::All).await.unwrap().unwrap();
        assert_eq!(read.events[1].json(), long.json());
    }
    let parts = format!("adk-session/ann/sessions/app~s1/user-event/{}/parts", long.id);
    assert_eq!(documents(&project, &parts).await.len(), 3);
    sessions.rewind(&key, 1).await.unwrap();
    assert_eq!(documents(&project, &parts).await.len(), 0);
    sessions.delete(&fork).await.unwrap();
    assert_eq!(
        sessions.usage(&key).await.unwrap().user.event_bytes,
        sessions.usage(&key).await.unwrap().session.event_bytes
    );
}

#[tokio::test]
async fn a_value_that_is_too_large_is_an_error_that_says_so() {
    let Some(([sessions, _], _)) = two_hosts() else { return };
    let key = create(&sessions, "ann", "s1").await;
    let error = sessions.append(&key, &delta(json!({"large": "x".repeat(1_100_000)}))).await.unwrap_err();
    assert_eq!(error.code(), "REFUSED");
    let message = error.to_string();
    let expected = "Firestore stores at most 1 MiB in a document, such as the state of a session or what one call returned, and \
                    10 MiB at once: keep large values as artifacts (";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(sessions.append(&key, &event("hello")).await.unwrap(), 1, "nothing was stored");
}

#[tokio::test]
async fn state_keys_that_firestore_reserves_are_stored() {
    let Some(([sessions, _], _)) = two_hosts() else { return };
    let key = create(&sessions, "ann", "s1").await;
    let state_keys = json!({"__name__": 1, "%": 2, "": 3, "a.b`c\\d": 4, "app:__x__": 5, "user:": 6});
    append(&sessions, &key, [delta(state_keys.clone())]).await;
    assert_eq!(state(&sessions, &key).await, state_keys);
    append(&sessions, &key, [delta(json!({"__name__": null, "": null, "a.b`c\\d": null}))]).await;
    assert_eq!(state(&sessions, &key).await, json!({"%": 2, "app:__x__": 5, "user:": 6}));
}

#[tokio::test]
async fn sessions_are_listed_by_time_also_before_1970() {
    let Some(([sessions, _], _)) = two_hosts() else { return };
    for (id, micros) in [("a", -20), ("b", 30), ("c", -10)] {
        let key = create(&sessions, "ann", id).await;
        append(&sessions, &key, [event_at(micros)]).await;
    }
    let listed = sessions.list("app", "ann").await.unwrap();
    assert_eq!(listed.iter().map(|session| &*session.key.id).collect::<Vec<_>>(), ["b", "c", "a"]);
}

#[tokio::test]
async fn appends_and_reads_of_the_newest_events_cost_the_same_in_long_sessions() {
    let Some(proxy) = Proxy::start().await else { return };
    let sessions = FirestoreSessionService::new(proxy.client());
    let key = create(&sessions, "ann", "s1").await;
    append(&sessions, &key, (0..60).map(|number| event(&number.to_string()))).await;
    proxy.take_reads();
    sessions.append(&key, &event("next")).await.unwrap();
    assert_eq!(proxy.take_reads(), [(":commit", 0)], "nothing but the writes");
    sessions.append(&key, &delta(json!({"a": 1}))).await.unwrap();
    assert_eq!(proxy.take_reads(), [(":batchGet", 1), (":commit", 0)], "the session, for its usage");
    sessions.get(&key, EventWindow::Recent(20)).await.unwrap();
    assert_eq!(proxy.take_reads(), [(":batchGet", 1), (":runQuery", 20)]);
    sessions.get(&key, EventWindow::RecentSince { count: 5, time: Timestamp::from_micros(0) }).await.unwrap();
    assert_eq!(proxy.take_reads(), [(":batchGet", 1), (":runQuery", 5)]);
    sessions.get(&key, EventWindow::AfterRevision(62)).await.unwrap();
    assert_eq!(proxy.take_reads(), [(":batchGet", 1)]);
    sessions.list_page("app", "ann", None, 10).await.unwrap();
    assert_eq!(proxy.take_reads(), [(":batchGet", 0), (":runQuery", 1)], "lists come without events");
}

#[tokio::test]
async fn stop_words_find_nothing() {
    let Some(client) = emulator::client() else { return };
    let key = SessionKey::new("app", "ann", "s1");
    let words = |words: &[&str]| FirestoreProperties {
        stop_words: words.iter().map(|word| (*word).to_owned()).collect(),
        ..FirestoreProperties::default()
    };
    let message = event("The lamp is on the table");
    let memory = FirestoreMemoryService::new(client.clone());
    memory.add_events(&key, std::slice::from_ref(&message)).await.unwrap();
    let found =
        async |memory: &FirestoreMemoryService, query: &str| memory.search("app", "ann", query).await.unwrap().len();
    assert_eq!((found(&memory, "where is THE lamp?").await, found(&memory, "is the on").await), (1, 0));
    let own = FirestoreMemoryService::with_properties(client, &words(&["lamp"]));
    own.delete_session(&key).await.unwrap();
    own.add_events(&key, &[message]).await.unwrap();
    assert_eq!((found(&own, "lamp").await, found(&own, "table").await, found(&own, "is").await), (0, 1, 1));
}

#[tokio::test]
async fn a_session_that_two_hosts_add_to_memory_is_remembered_once() {
    let Some(client) = emulator::client() else { return };
    let hosts = [FirestoreMemoryService::new(client.clone()), FirestoreMemoryService::new(client)];
    let key = SessionKey::new("app", "ann", "s1");
    let events: Vec<_> = (0..6).map(|number| event(&format!("apple {number}"))).collect();
    let session = Session {
        key: key.clone(),
        state: State::default(),
        events: events.iter().cloned().collect(),
        revision: 6,
        created: Timestamp::default(),
        last_update_time: Timestamp::default(),
    };
    let adds = (0..4).map(|index| hosts[index % 2].add_session(&session));
    join_all(adds).await.into_iter().for_each(Result::unwrap);
    let adds = events.iter().enumerate().map(|(index, event)| {
        let (host, key) = (&hosts[index % 2], &key);
        async move { host.add_events(key, std::slice::from_ref(event)).await }
    });
    join_all(adds).await.into_iter().for_each(Result::unwrap);
    assert_eq!(hosts[0].search("app", "ann", "apple").await.unwrap().len(), 6);
    let remembered = hosts[1].sessions(None, None).await.unwrap();
    assert_eq!(remembered.iter().map(|session| session.entries).collect::<Vec<_>>(), [6]);
    hosts[1].delete_session(&key).await.unwrap();
    assert!(hosts[0].sessions(None, None).await.unwrap().is_empty());
}

struct NoModels;

impl ModelResolver for NoModels {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Err(ModelError::new(ModelErrorKind::UnknownModel, name, "there are no models"))
    }
}

#[tokio::test]
async fn the_services_of_a_runner_on_firestore_have_quotas() {
    let Some(client) = emulator::client() else { return };
    let properties = FirestoreProperties::default();
    let artifacts = Arc::new(hatchery_stores::MemoryArtifacts::new());
    let services = hatchery_stores::in_firestore(client.clone(), &properties, artifacts, Arc::new(NoModels));
    let key = create(&*services.sessions, "ann", "s1").await;
    let message = event("red apples");
    append(&*services.sessions, &key, [message.clone()]).await;
    services.memory.add_events(&key, &[message]).await.unwrap();
    let sessions = FirestoreSessionService::new(client.clone());
    assert_eq!(ids(&sessions, &key, EventWindow::All).await.len(), 1);
    let memory = FirestoreMemoryService::new(client);
    assert_eq!(memory.search("app", "ann", "apples").await.unwrap().len(), 1);
    let error = services.sessions.create("app", "a\u{1}", None, JsonMap::new()).await.unwrap_err();
    assert_eq!(error.code(), "INVALID_NAME");
}

#[tokio::test]
async fn a_client_without_access_tokens_or_with_a_wrong_name_is_an_error() {
    let message = |builder: hatchery_stores::firestore::FirestoreBuilder| builder.build().unwrap_err().to_string();
    assert_eq!(
        message(FirestoreClient::builder("project")),
        "Firestore needs access tokens: set `access_tokens`, or FIRESTORE_EMULATOR_HOST for the emulator"
    );
    assert_eq!(message(FirestoreClient::builder("a/b")), "`a/b` is not the id of a Firestore project");
    assert_eq!(message(FirestoreClient::builder("a").database("")), "`` is not the id of a Firestore database");
    let error = message(FirestoreClient::builder("project").emulator("127.0.0.1:x"));
    assert!(error.starts_with("`127.0.0.1:x` is not the address of a Firestore emulator ("), "{error}");
    assert!(error.ends_with("): write it as `127.0.0.1:8080`"), "{error}");
}

#[tokio::test]
async fn a_properties_file_names_the_root_collection_and_the_stop_words() {
    let folder = tempfile::tempdir().unwrap();
    let defaults = FirestoreProperties::find_for(folder.path(), Some("test")).await.unwrap();
    assert_eq!(defaults, FirestoreProperties::default());
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("adk-firestore.properties", "firebase.root.collection.name=all\nkeyword.extraction.stopwords=der, die\n");
    write("adk-firestore-test.properties", "firebase.root.collection.name=test\ngcs.adk.bucket.name=files\n");
    for (environment, root, bucket) in
        [(Some("test"), "test", Some("files")), (Some("other"), "all", None), (None, "all", None)]
    {
        let found = FirestoreProperties::find_for(folder.path(), environment).await.unwrap();
        assert_eq!((&*found.root_collection, found.bucket.as_deref()), (root, bucket));
        assert_eq!(found.stop_words.contains("die"), root == "all");
    }
    write("adk-firestore.properties", "firebase.root.collection.name=a/b\n");
    let error = FirestoreProperties::find_for(folder.path(), None).await.unwrap_err().to_string();
    let file = folder.path().join("adk-firestore.properties");
    let expected = "`firebase.root.collection.name`: `a/b` is not the name of a Firestore collection";
    assert_eq!(error, format!("{}: {expected}", file.display()));
}
