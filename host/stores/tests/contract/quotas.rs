//! Quotas, tripped in sequence on every backend.

mod tokens;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use hatchery_core::{
    ArtifactService, Event, EventActions, EventData, EventWindow, JsonMap, Part, Session, SessionKey, SessionService,
    StoreError,
};
use hatchery_stores::quotas::{QuotaArtifacts, QuotaSessions};
use hatchery_stores::{AppQuotas, DirectoryArtifacts, MemoryArtifacts, MemorySessions, Quota, Quotas, SqliteSessions};
use serde_json::{Value, json};

/// Services without quotas.
struct Backend {
    sessions: Arc<dyn SessionService>,
    artifacts: Arc<dyn ArtifactService>,
}

every_backend!(
    [
        keys_and_bytes_of_a_delta_are_limited,
        keys_and_bytes_of_session_state_are_limited,
        full_state_can_still_be_changed_and_reduced,
        events_and_bytes_of_a_session_are_limited,
        sessions_and_events_of_a_user_are_limited,
        a_fork_counts_as_a_session_with_its_events,
        the_state_of_a_user_counts_all_sessions,
        the_state_of_an_app_is_shared_by_its_users,
        concurrent_writes_do_not_exceed_a_quota_together,
        a_rejected_write_stores_nothing,
        data_of_other_processes_counts,
        an_app_may_have_its_own_quotas,
        versions_of_artifacts_are_counted_for_session_and_user,
        a_stream_that_exceeds_a_quota_is_not_stored,
        long_names_and_control_characters_are_rejected,
    ],
    memory(_folder) => Backend {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
    },
    files(folder) => files(folder).await,
    postgres(folder) => Backend {
        sessions: Arc::new(in_postgres!(sessions)),
        artifacts: Arc::new(DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap()),
    },
);

async fn files(folder: &Path) -> Backend {
    Backend {
        sessions: Arc::new(SqliteSessions::open(folder.join("sessions.db")).await.unwrap()),
        artifacts: Arc::new(DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap()),
    }
}

impl Backend {
    fn sessions(&self, quotas: impl IntoIterator<Item = (Quota, u64)>) -> QuotaSessions {
        QuotaSessions::new(self.sessions.clone(), with(quotas))
    }

    fn artifacts(&self, quotas: impl IntoIterator<Item = (Quota, u64)>) -> QuotaArtifacts {
        QuotaArtifacts::new(self.artifacts.clone(), with(quotas))
    }
}

fn with(quotas: impl IntoIterator<Item = (Quota, u64)>) -> Arc<AppQuotas> {
    let quotas = quotas.into_iter().fold(Quotas::default(), |quotas, (quota, value)| quotas.with(quota, value));
    Arc::new(quotas.into())
}

fn map(value: Value) -> JsonMap {
    serde_json::from_value(value).unwrap()
}

fn keys(prefix: &str, count: usize) -> JsonMap {
    (0..count).map(|number| (format!("{prefix}{number}"), json!(1))).collect()
}

fn delta(state_delta: JsonMap) -> Arc<Event> {
    Event::new(EventData { actions: EventActions { state_delta, ..EventActions::default() }, ..EventData::default() })
}

async fn create(sessions: &dyn SessionService, user: &str, id: &str) -> SessionKey {
    sessions.create("app", user, Some(id), JsonMap::new()).await.unwrap().key
}

/// Returns the key of the exceeded quota.
#[track_caller]
fn exceeded<T: std::fmt::Debug>(result: Result<T, StoreError>) -> &'static str {
    match result {
        Err(StoreError::QuotaExceeded { key, .. }) => key,
        other => panic!("no quota was exceeded: {other:?}"),
    }
}

async fn keys_and_bytes_of_a_delta_are_limited(backend: &Backend) {
    let sessions = backend.sessions([]);
    let key = create(&sessions, "ann", "s").await;
    sessions.append(&key, &delta(keys("a", 1000))).await.unwrap();
    let removals: JsonMap = keys("a", 1001).into_iter().map(|(key, _)| (key, Value::Null)).collect();
    for too_many in [keys("b", 1001), keys("app:", 1001), keys("temp:", 1001), removals] {
        let refused = sessions.append(&key, &delta(too_many.clone())).await;
        assert_eq!(exceeded(refused), "quotas.delta_keys");
        assert_eq!(exceeded(sessions.create("app", "ann", None, too_many).await), "quotas.delta_keys");
    }
    let text = "x".repeat((1 << 20) - "\"\"a".len());
    let fits = map(json!({"a": text}));
    sessions.append(&key, &delta(fits)).await.unwrap();
    let refused = sessions.append(&key, &delta(map(json!({"ab": text})))).await;
    assert_eq!(exceeded(refused), "quotas.delta_bytes");
}

async fn keys_and_bytes_of_session_state_are_limited(backend: &Backend) {
    let sessions = backend.sessions([(Quota::SessionStateKeys, 3), (Quota::SessionStateBytes, 100)]);
    let key = create(&sessions, "ann", "s").await;
    sessions.append(&key, &delta(keys("a", 2))).await.unwrap();
    let refused = sessions.append(&key, &delta(keys("b", 2))).await;
    let error = refused.as_ref().unwrap_err().to_string();
    assert_eq!(
        error,
        "the state of a session may hold at most 3 keys: delete some; raise `quotas.session_state_keys` in \
         hatchery.yaml to allow more"
    );
    assert_eq!(exceeded(refused), "quotas.session_state_keys");
    let refused = sessions.append(&key, &delta(map(json!({"c": "x".repeat(100)})))).await;
    assert_eq!(exceeded(refused), "quotas.session_state_bytes");
    assert_eq!(exceeded(sessions.create("app", "ann", None, keys("a", 4)).await), "quotas.session_state_keys");
    // Other sessions have their own, and shared keys are not a session's.
    sessions.create("app", "ann", None, keys("a", 3)).await.unwrap();
    sessions.append(&key, &delta(keys("user:", 4))).await.unwrap();
}

async fn full_state_can_still_be_changed_and_reduced(backend: &Backend) {
    let key = create(&backend.sessions([]), "ann", "s").await;
    backend.sessions([]).append(&key, &delta(keys("a", 10))).await.unwrap();
    // The quota is lowered below the current usage.
    let sessions = backend.sessions([(Quota::SessionStateKeys, 3)]);
    sessions.append(&key, &delta(map(json!({"a1": 2})))).await.unwrap();
    sessions.append(&key, &delta(map(json!({"a1": null, "b": 1})))).await.unwrap();
    assert_eq!(exceeded(sessions.append(&key, &delta(map(json!({"c": 1})))).await), "quotas.session_state_keys");
    for number in 0..10 {
        sessions.append(&key, &delta(map(json!({format!("a{number}"): null})))).await.unwrap();
    }
    sessions.append(&key, &delta(keys("d", 2))).await.unwrap();
    // Many changes of the same keys use nothing up.
    for number in 0..600 {
        sessions.append(&key, &delta(map(json!({"d0": number % 10, "d1": number % 10})))).await.unwrap();
    }
    assert_eq!(exceeded(sessions.append(&key, &delta(map(json!({"e": 1})))).await), "quotas.session_state_keys");
}

async fn events_and_bytes_of_a_session_are_limited(backend: &Backend) {
    let sessions = backend.sessions([(Quota::SessionEvents, 3)]);
    let key = create(&sessions, "ann", "s").await;
    for _ in 0..3 {
        sessions.append(&key, &delta(JsonMap::new())).await.unwrap();
    }
    assert_eq!(exceeded(sessions.append(&key, &delta(JsonMap::new())).await), "quotas.session_events");
    assert_eq!(sessions.get(&key, EventWindow::All).await.unwrap().unwrap().events.len(), 3);

    let event = delta(JsonMap::new());
    let sessions = backend.sessions([(Quota::SessionBytes, 2 * event.json().len() as u64 + 10)]);
    let key = create(&sessions, "ann", "t").await;
    for _ in 0..2 {
        sessions.append(&key, &delta(JsonMap::new())).await.unwrap();
    }
    assert_eq!(exceeded(sessions.append(&key, &event).await), "quotas.session_bytes");
}

async fn sessions_and_events_of_a_user_are_limited(backend: &Backend) {
    let sessions = backend.sessions([(Quota::UserSessions, 2)]);
    let first = create(&sessions, "ann", "s1").await;
    create(&sessions, "ann", "s2").await;
    assert_eq!(exceeded(sessions.create("app", "ann", None, JsonMap::new()).await), "quotas.user_sessions");
    create(&sessions, "bob", "s1").await;
    sessions.delete(&first).await.unwrap();
    create(&sessions, "ann", "s3").await;

    let event = delta(JsonMap::new());
    let sessions = backend.sessions([(Quota::UserBytes, event.json().len() as u64 + 10)]);
    let [s2, s3] = ["s2", "s3"].map(|id| SessionKey::new("app", "ann", id));
    sessions.append(&s2, &event).await.unwrap();
    assert_eq!(exceeded(sessions.append(&s3, &event).await), "quotas.user_bytes");
    sessions.delete(&s2).await.unwrap();
    sessions.append(&s3, &event).await.unwrap();
}

async fn a_fork_counts_as_a_session_with_its_events(backend: &Backend) {
    let sessions = backend.sessions([(Quota::UserSessions, 2)]);
    let key = create(&sessions, "ann", "s1").await;
    sessions.append(&key, &delta(JsonMap::new())).await.unwrap();
    let fork = sessions.fork(&key, 1, None).await.unwrap().key;
    assert_eq!(exceeded(sessions.fork(&key, 1, None).await), "quotas.user_sessions");
    let used = sessions.usage(&key).await.unwrap().user.event_bytes;
    sessions.delete(&fork).await.unwrap();
    let sessions = backend.sessions([(Quota::UserBytes, used - 1)]);
    assert_eq!(exceeded(sessions.fork(&key, 1, None).await), "quotas.user_bytes");
    sessions.rewind(&key, 0).await.unwrap();
    sessions.fork(&key, 0, None).await.unwrap();
    let invalid = sessions.fork(&key, 0, Some("a\u{1b}b")).await.unwrap_err();
    assert_eq!(invalid.code(), "INVALID_NAME");
    // A revision that no session may have.
    let beyond = sessions.fork(&key, 200_000, None).await.unwrap_err();
    assert_eq!(beyond.code(), "REFUSED");
}

async fn the_state_of_a_user_counts_all_sessions(backend: &Backend) {
    let sessions = backend.sessions([(Quota::UserStateKeys, 4), (Quota::UserStateBytes, 60)]);
    let [s1, s2] = [create(&sessions, "ann", "s1").await, create(&sessions, "ann", "s2").await];
    sessions.append(&s1, &delta(keys("a", 2))).await.unwrap();
    sessions.append(&s2, &delta(map(json!({"b": 1, "user:c": 1, "app:d": 1})))).await.unwrap();
    for refused in [keys("e", 1), keys("user:", 1)] {
        assert_eq!(exceeded(sessions.append(&s1, &delta(refused)).await), "quotas.user_state_keys");
    }
    let larger = map(json!({"a0": "x".repeat(60)}));
    assert_eq!(exceeded(sessions.append(&s1, &delta(larger)).await), "quotas.user_state_bytes");
    sessions.append(&s1, &delta(map(json!({"user:c": null, "f": 1})))).await.unwrap();
    sessions.delete(&s1).await.unwrap();
    sessions.append(&s2, &delta(keys("g", 3))).await.unwrap();
}

async fn the_state_of_an_app_is_shared_by_its_users(backend: &Backend) {
    let sessions = backend.sessions([(Quota::AppStateKeys, 2), (Quota::AppStateBytes, 60)]);
    let [ann, bob] = [create(&sessions, "ann", "s").await, create(&sessions, "bob", "s").await];
    sessions.append(&ann, &delta(map(json!({"app:a": 1})))).await.unwrap();
    sessions.append(&bob, &delta(map(json!({"app:b": 1})))).await.unwrap();
    for key in [&ann, &bob] {
        assert_eq!(exceeded(sessions.append(key, &delta(map(json!({"app:c": 1})))).await), "quotas.app_state_keys");
    }
    let larger = map(json!({"app:a": "x".repeat(60)}));
    assert_eq!(exceeded(sessions.append(&bob, &delta(larger)).await), "quotas.app_state_bytes");
    assert_eq!(exceeded(sessions.create("app", "cem", None, keys("app:", 1)).await), "quotas.app_state_keys");
    sessions.append(&bob, &delta(map(json!({"app:a": null, "app:c": 1})))).await.unwrap();
}

async fn concurrent_writes_do_not_exceed_a_quota_together(backend: &Backend) {
    let quotas = [(Quota::SessionStateKeys, 10), (Quota::UserSessions, 5), (Quota::AppStateKeys, 10)];
    let sessions = backend.sessions(quotas);
    let created = (0..8).map(|_| sessions.create("app", "ann", None, JsonMap::new()));
    let created = futures::future::join_all(created).await;
    assert_eq!(created.iter().filter(|created| created.is_ok()).count(), 5);
    let key = created.into_iter().find_map(Result::ok).unwrap().key;
    let events: Vec<_> = (0..30).map(|number| delta(map(json!({format!("k{number}"): 1})))).collect();
    let appended = futures::future::join_all(events.iter().map(|event| sessions.append(&key, event))).await;
    assert_eq!(appended.iter().filter(|appended| appended.is_ok()).count(), 10);
    let mut keys = Vec::new();
    for user in ["bob", "cem", "dan"] {
        keys.push(create(&sessions, user, "s").await);
    }
    let events: Vec<_> = (0..30).map(|number| delta(map(json!({format!("app:k{number}"): 1})))).collect();
    let appends = events.iter().zip(keys.iter().cycle()).map(|(event, key)| sessions.append(key, event));
    let appended = futures::future::join_all(appends).await;
    assert_eq!(appended.iter().filter(|appended| appended.is_ok()).count(), 10);
}

async fn a_rejected_write_stores_nothing(backend: &Backend) {
    let sessions = backend.sessions([(Quota::SessionStateKeys, 1)]);
    let key = create(&sessions, "ann", "s").await;
    let before = backend.sessions.usage(&key).await.unwrap();
    let mixed = map(json!({"a": 1, "b": 1, "user:c": 1, "app:d": 1}));
    assert_eq!(exceeded(sessions.append(&key, &delta(mixed.clone())).await), "quotas.session_state_keys");
    assert_eq!(exceeded(sessions.create("app", "ann", Some("t"), mixed).await), "quotas.session_state_keys");
    assert_eq!(backend.sessions.usage(&key).await.unwrap(), before);
    assert!(sessions.get(&SessionKey::new("app", "ann", "t"), EventWindow::All).await.unwrap().is_none());
    // Writes that the service itself refuses are not counted either.
    let unknown = SessionKey::new("app", "ann", "unknown");
    for _ in 0..3 {
        let refused = sessions.append(&unknown, &delta(keys("a", 1))).await;
        assert!(matches!(refused, Err(StoreError::SessionNotFound(_))), "{refused:?}");
    }
    sessions.append(&key, &delta(keys("a", 1))).await.unwrap();
}

async fn data_of_other_processes_counts(backend: &Backend) {
    let quotas = [(Quota::SessionEvents, 1000)];
    let (one, other) = (backend.sessions(quotas), backend.sessions(quotas));
    let key = create(&one, "ann", "s").await;
    one.append(&key, &delta(JsonMap::new())).await.unwrap();
    for _ in 0..998 {
        other.append(&key, &delta(JsonMap::new())).await.unwrap();
    }
    // The next append shows that there are others, and the one after it counts their events.
    one.append(&key, &delta(JsonMap::new())).await.unwrap();
    assert_eq!(exceeded(one.append(&key, &delta(JsonMap::new())).await), "quotas.session_events");
}

async fn an_app_may_have_its_own_quotas(backend: &Backend) {
    let quotas = AppQuotas {
        default: Quotas::default().with(Quota::UserSessions, 1),
        apps: [("wide".to_owned(), Quotas::default().with(Quota::UserSessions, 0))].into(),
    };
    let sessions = QuotaSessions::new(backend.sessions.clone(), Arc::new(quotas));
    for _ in 0..3 {
        sessions.create("wide", "ann", None, JsonMap::new()).await.unwrap();
    }
    create(&sessions, "ann", "s").await;
    assert_eq!(exceeded(sessions.create("app", "ann", None, JsonMap::new()).await), "quotas.user_sessions");
}

async fn versions_of_artifacts_are_counted_for_session_and_user(backend: &Backend) {
    let [s1, s2] = ["s1", "s2"].map(|id| SessionKey::new("app", "ann", id));
    let part = Part::text("0123456789");
    let artifacts = backend.artifacts([(Quota::SessionArtifacts, 2), (Quota::UserArtifacts, 4)]);
    artifacts.save(&s1, "a", &part).await.unwrap();
    artifacts.save(&s1, "a", &part).await.unwrap();
    assert_eq!(exceeded(artifacts.save(&s1, "b", &part).await), "quotas.session_artifacts");
    artifacts.save(&s1, "user:c", &part).await.unwrap();
    artifacts.save(&s2, "user:c", &part).await.unwrap();
    assert_eq!(exceeded(artifacts.save(&s2, "user:c", &part).await), "quotas.user_artifacts");
    assert_eq!(exceeded(artifacts.save(&s2, "d", &part).await), "quotas.user_artifacts");
    artifacts.save(&SessionKey::new("app", "bob", "s1"), "a", &part).await.unwrap();
    artifacts.delete(&s1, "a").await.unwrap();
    artifacts.save(&s1, "b", &part).await.unwrap();

    // Another process's quotas: what is stored counts from the beginning. 3 versions of the user, 1 of the session.
    let size = part.stored_bytes();
    let quotas = [(Quota::SessionArtifactBytes, 2 * size), (Quota::UserArtifactBytes, 4 * size + 1)];
    let artifacts = backend.artifacts(quotas);
    let error = artifacts.save(&s1, "b", &Part::text("x".repeat(100))).await;
    assert_eq!(exceeded(error), "quotas.session_artifact_bytes");
    artifacts.save(&s1, "b", &part).await.unwrap();
    assert_eq!(exceeded(artifacts.save(&s2, "b", &part).await), "quotas.user_artifact_bytes");
}

/// Bytes that are sent while others are saved count, too.
async fn a_stream_that_exceeds_a_quota_is_not_stored(backend: &Backend) {
    let s1 = create(&*backend.sessions, "ann", "s1").await;
    let artifacts = backend.artifacts([(Quota::SessionArtifactBytes, 1_000), (Quota::SessionArtifacts, 2)]);
    let chunk = || Ok(Bytes::from(vec![b'x'; 300]));
    let send = async |count: usize| {
        let chunks = stream::iter(std::iter::repeat_with(chunk).take(count)).boxed();
        artifacts.save_stream(&s1, "a", "text/plain", chunks).await
    };
    assert_eq!(exceeded(send(4).await), "quotas.session_artifact_bytes");
    assert!(artifacts.list(&s1).await.unwrap().is_empty());
    // Another save takes the room of this stream while it is received.
    let other = Part::text("y".repeat(500));
    let late = stream::once(async {
        artifacts.save(&s1, "b", &other).await.unwrap();
        chunk()
    });
    let chunks = late.chain(stream::iter([chunk()])).boxed();
    assert_eq!(exceeded(artifacts.save_stream(&s1, "a", "text/plain", chunks).await), "quotas.session_artifact_bytes");
    assert_eq!(send(1).await.unwrap(), 0);
    assert_eq!(exceeded(send(0).await), "quotas.session_artifacts");
    assert_eq!(artifacts.list(&s1).await.unwrap(), ["a", "b"]);
}

async fn long_names_and_control_characters_are_rejected(backend: &Backend) {
    let (sessions, artifacts) = (backend.sessions([]), backend.artifacts([]));
    let long = "x".repeat(257);
    for (name, what) in [(long.as_str(), "has at most 256 bytes"), ("a\u{1b}b", "has no control characters")] {
        let keys = [("app", [name, "u", "s"]), ("user", ["a", name, "s"]), ("session", ["a", "u", name])];
        for (kind, [app, user, id]) in keys {
            let key = SessionKey::new(app, user, id);
            let expected = match kind {
                "app" => format!("the name of an app {what}"),
                kind => format!("the id of a {kind} {what}"),
            };
            let event = delta(JsonMap::new());
            let mut errors = vec![
                sessions.create(app, user, Some(id), JsonMap::new()).await.unwrap_err(),
                sessions.get(&key, EventWindow::All).await.unwrap_err(),
                sessions.append(&key, &event).await.unwrap_err(),
                artifacts.save(&key, "a", &Part::text("x")).await.unwrap_err(),
                artifacts.load(&key, "a", None).await.unwrap_err(),
                artifacts.list(&key).await.unwrap_err(),
                artifacts.versions(&key, "a").await.unwrap_err(),
            ];
            if kind != "session" {
                errors.push(sessions.list(app, user).await.unwrap_err());
            }
            for error in errors {
                assert_eq!(error.code(), "INVALID_NAME");
                assert!(error.to_string().ends_with(&expected), "{error}");
            }
        }
        let key = SessionKey::new("a", "u", "s");
        for error in [
            artifacts.save(&key, name, &Part::text("x")).await.unwrap_err(),
            artifacts.load(&key, name, None).await.unwrap_err(),
            artifacts.versions(&key, name).await.unwrap_err(),
        ] {
            assert!(error.to_string().ends_with(&format!("the name of an artifact {what}")), "{error}");
        }
    }
    sessions.delete(&SessionKey::new("app", "ann", "old\nname")).await.unwrap();
}

/// Sessions whose forks are made, and never returned.
struct EndlessForks(MemorySessions);

#[async_trait]
impl hatchery_core::WrapperSessionService for EndlessForks {
    fn inner(&self) -> &dyn SessionService {
        &self.0
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        self.0.fork(key, revision, id).await?;
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_fork_whose_caller_goes_away_counts() {
    let forks = Arc::new(EndlessForks(MemorySessions::new()));
    let sessions = QuotaSessions::new(forks, with([(Quota::UserSessions, 2)]));
    let key = create(&sessions, "ann", "s1").await;
    assert!(sessions.fork(&key, 0, Some("s2")).now_or_never().is_none());
    assert_eq!(exceeded(sessions.create("app", "ann", Some("s3"), JsonMap::new()).await), "quotas.user_sessions");
}
