//! Running totals equal the totals of a complete count after any sequence of operations.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use hatchery_core::{
    ArtifactService, ArtifactUsage, Event, EventActions, EventData, EventWindow, JsonMap, Part, Session, SessionKey,
    SessionService, StoreError, TurnStart,
};
use hatchery_stores::{DirectoryArtifacts, MemoryArtifacts, MemorySessions, SqliteSessions};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A service that uses the default method for usage.
struct DefaultUsageSessions<'a>(&'a dyn SessionService);

#[async_trait]
impl SessionService for DefaultUsageSessions<'_> {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.0.create(app, user, id, state).await
    }
    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.0.get(key, window).await
    }
    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        self.0.list(app, user).await
    }
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.0.delete(key).await
    }
    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        self.0.begin_turn(key, previous, lease).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.0.renew_turn(key, fence, lease).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        self.0.append_with(key, event, fence).await
    }
}

#[derive(Debug, Clone)]
enum Step {
    Create { user: usize, id: usize, state: Vec<(String, Value)> },
    Append { user: usize, id: usize, state: Vec<(String, Value)> },
    Delete { user: usize, id: usize },
}

const USERS: [&str; 2] = ["ann", "bob"];
const IDS: [&str; 3] = ["s1", "s2", "kept"];

fn state() -> impl Strategy<Value = Vec<(String, Value)>> {
    let key = ("(|user:|app:|temp:)", "[a-cé]").prop_map(|(prefix, name)| format!("{prefix}{name}"));
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!("__ADK_SENTINEL_REMOVED__")),
        "\\PC{0,12}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!({"nested": [1, 2.5, "\u{0}"]})),
    ];
    prop::collection::vec((key, value), 0..6)
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..USERS.len(), 0..2_usize);
    prop_oneof![
        2 => (place(), state()).prop_map(|((user, id), state)| Step::Create { user, id, state }),
        6 => (place(), state()).prop_map(|((user, id), state)| Step::Append { user, id, state }),
        1 => place().prop_map(|(user, id)| Step::Delete { user, id }),
    ]
}

fn event(state: Vec<(String, Value)>) -> Arc<Event> {
    let actions = EventActions { state_delta: state.into_iter().collect(), ..EventActions::default() };
    Event::new(EventData { actions, ..EventData::default() })
}

async fn perform(sessions: &dyn SessionService, steps: &[Step]) {
    for user in USERS {
        // Shows the shared state also when the other sessions are gone.
        sessions.create("app", user, Some("kept"), JsonMap::new()).await.unwrap();
    }
    for step in steps.iter().cloned() {
        let key = |user: usize, id: usize| SessionKey::new("app", USERS[user], IDS[id]);
        // Sessions that exist already, or not, are part of the game.
        match step {
            Step::Create { user, id, state } => {
                let _ = sessions.create("app", USERS[user], Some(IDS[id]), state.into_iter().collect()).await;
            }
            Step::Append { user, id, state } => {
                let _ = sessions.append(&key(user, id), &event(state)).await;
            }
            Step::Delete { user, id } => sessions.delete(&key(user, id)).await.unwrap(),
        }
    }
    for user in USERS {
        for id in IDS {
            let key = SessionKey::new("app", user, id);
            let counted = DefaultUsageSessions(sessions).usage(&key).await.unwrap();
            assert_eq!(sessions.usage(&key).await.unwrap(), counted, "{key}");
        }
    }
}

fn block_on(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(future);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn totals_in_memory_equal_a_recount(steps in prop::collection::vec(step(), 0..30)) {
        block_on(async { perform(&MemorySessions::new(), &steps).await });
    }

    #[test]
    fn totals_in_sqlite_equal_a_recount(steps in prop::collection::vec(step(), 0..30)) {
        let folder = tempfile::tempdir().unwrap();
        block_on(async {
            let sessions = SqliteSessions::open(folder.path().join("sessions.db")).await.unwrap();
            perform(&sessions, &steps).await;
            sessions.close().await;
        });
    }
}

every_backend!(
    [totals_of_artifacts_equal_the_stored_sizes],
    memory(_folder) => MemoryArtifacts::new(),
    directory(folder) => open(folder).await,
);

// A server that cannot be installed is reported, and its tests end.
#[cfg(feature = "object-store")]
every_backend!(
    [totals_of_artifacts_equal_the_stored_sizes],
    s3(_folder) => match crate::object_stores::s3_artifacts().await { Some(artifacts) => artifacts, None => return },
    azure(_folder) => match crate::object_stores::azure_artifacts().await { Some(artifacts) => artifacts, None => return },
);

async fn open(folder: &Path) -> DirectoryArtifacts {
    DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap()
}

async fn totals_of_artifacts_equal_the_stored_sizes(artifacts: &dyn ArtifactService) {
    let [s1, s2] = ["s1", "s2"].map(|id| SessionKey::new("app", "ann", id));
    assert_eq!(artifacts.usage(&s1).await.unwrap(), ArtifactUsage::default());
    let picture: Part =
        serde_json::from_value(json!({"inlineData": {"mimeType": "image/png", "data": "AAECAw=="}})).unwrap();
    let text = Part::text("é\n");
    for (session, name, part) in [
        (&s1, "a", &picture),
        (&s1, "a", &text),
        (&s1, "B", &text),
        (&s2, "c", &picture),
        (&s2, "user:d", &text),
        (&SessionKey::new("app", "bob", "s1"), "a", &text),
        (&SessionKey::new("other", "ann", "s1"), "a", &text),
    ] {
        artifacts.save(session, name, part).await.unwrap();
    }
    let metadata: JsonMap = serde_json::from_value(json!({"author": "é"})).unwrap();
    for (name, part) in [("with", &picture), ("with", &text)] {
        let before = artifacts.usage(&s1).await.unwrap().session_bytes;
        artifacts.save_with(&s1, name, part, &metadata).await.unwrap();
        let after = artifacts.usage(&s1).await.unwrap().session_bytes;
        assert_eq!(after - before, part.stored_bytes() + r#"[,{"author":"é"}]"#.len() as u64);
    }
    artifacts.delete(&s1, "with").await.unwrap();
    let (picture, text) = (picture.stored_bytes(), text.stored_bytes());
    assert_eq!(picture, r#"{"inlineData":{"mimeType":"image/png","data":""}}"#.len() as u64 + 4);
    let user = ArtifactUsage { user_versions: 5, user_bytes: 2 * picture + 3 * text, ..ArtifactUsage::default() };
    let first = ArtifactUsage { session_versions: 3, session_bytes: picture + 2 * text, ..user };
    assert_eq!(artifacts.usage(&s1).await.unwrap(), first);
    let second = ArtifactUsage { session_versions: 1, session_bytes: picture, ..user };
    assert_eq!(artifacts.usage(&s2).await.unwrap(), second);
    artifacts.delete(&s1, "a").await.unwrap();
    let after = artifacts.usage(&s1).await.unwrap();
    assert_eq!((after.session_versions, after.user_versions), (1, 3));
    assert_eq!((after.session_bytes, after.user_bytes), (text, picture + 2 * text));
}
