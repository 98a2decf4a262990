//! Encryption at rest.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{
    ArtifactService, Blob, CallRecord, Content, Event, EventActions, EventData, EventWindow, JsonMap, MemoryService,
    Part, PartData, Services, SessionKey, SessionService, StoreError, StoredRun, TurnStart,
};
use hatchery_stores::encryption::{EncryptedArtifacts, EncryptedMemory, EncryptedSessions, EncryptionKeys, PlainData};
use hatchery_stores::{DirectoryArtifacts, MemoryArtifacts, MemorySessions, SqliteMemory, SqliteSessions};
use hatchery_test_support::map;
use serde_json::json;

/// Texts that must not be readable in the storage.
const SECRET: &str = "aubergine";

fn keys(keys: &[(&str, &str)]) -> EncryptionKeys {
    let keys: Vec<_> = keys.iter().map(|(id, digits)| (*id, digits.repeat(32))).collect();
    EncryptionKeys::from_hex(keys.iter().map(|(id, key)| (*id, key.as_str()))).unwrap()
}

/// Opens the services of a folder.
async fn plain(folder: &Path) -> Services {
    Services {
        sessions: Arc::new(SqliteSessions::open(folder.join("sessions.db")).await.unwrap()),
        artifacts: Arc::new(DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap()),
        memory: Arc::new(SqliteMemory::open(folder.join("memory.db")).await.unwrap()),
        ..hatchery_test_support::services()
    }
}

fn secret_event() -> Arc<Event> {
    Event::new(EventData {
        author: "user".into(),
        content: Some(Arc::new(Content::user(SECRET))),
        actions: EventActions { state_delta: map(json!({"k": SECRET, "app:k": [SECRET]})), ..EventActions::default() },
        ..EventData::default()
    })
}

fn picture() -> Part {
    let data = Bytes::from(SECRET.repeat(20_000));
    PartData::InlineData(Blob { mime_type: format!("image/{SECRET}"), data, display_name: None }).into()
}

/// Stores the secret in every way.
async fn store(services: &Services) -> (SessionKey, Arc<Event>) {
    let state = map(json!({"user:initial": {"a": SECRET}}));
    let key = services.sessions.create("app", "ann", Some("s1"), state).await.unwrap().key;
    let event = secret_event();
    services.sessions.append(&key, &event).await.unwrap();
    let turn = services.sessions.begin_turn(&key, None, std::time::Duration::from_secs(9)).await.unwrap();
    let TurnStart::Begun(turn) = turn else { panic!("nobody else has a turn") };
    let record = CallRecord { call: "tool/0".into(), outcome: Some(format!("{{\"a\":\"{SECRET}\"}}")) };
    services.sessions.journal().unwrap().record(&key, "r1", turn.fence, &record).await.unwrap();
    let run = StoredRun { is_background: true, request: Some(SECRET.into()), ..StoredRun::new(key.clone(), "r1", 0) };
    services.sessions.runs().unwrap().add(&run).await.unwrap();
    services.artifacts.save(&key, "picture", &picture()).await.unwrap();
    services.artifacts.save(&key, "note", &Part::text(SECRET)).await.unwrap();
    services.memory.add_events(&key, std::slice::from_ref(&event)).await.unwrap();
    (key, event)
}

/// Checks that everything of [`store`] is there.
async fn check(services: &Services, key: &SessionKey, event: &Event) {
    let session = services.sessions.get(key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(session.events[0].json(), event.json());
    let state = json!({"k": SECRET, "app:k": [SECRET], "user:initial": {"a": SECRET}});
    assert_eq!(serde_json::to_value(&session.state).unwrap(), state);
    let records = services.sessions.journal().unwrap().read(key, "r1").await.unwrap().unwrap();
    assert_eq!(records[0].outcome.as_deref(), Some("{\"a\":\"aubergine\"}"));
    let run = services.sessions.runs().unwrap().get(key, "r1").await.unwrap().unwrap();
    assert_eq!(run.request.as_deref(), Some(SECRET));
    assert_eq!(services.artifacts.load(key, "picture", None).await.unwrap(), Some(picture()));
    assert_eq!(services.artifacts.load(key, "note", None).await.unwrap(), Some(Part::text(SECRET)));
    let found = services.memory.search("app", "ann", SECRET).await.unwrap();
    assert_eq!((found.len(), found[0].content.text()), (1, SECRET.to_owned()));
}

/// Returns the files that contain a word.
fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, word));
        } else if fs::read(&path).unwrap().windows(word.len()).any(|bytes| bytes == word.as_bytes()) {
            found.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    found
}

#[tokio::test]
async fn nothing_of_the_content_is_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let services = keys(&[("k", "01")]).encrypt(plain(folder.path()).await);
    let (key, event) = store(&services).await;
    check(&services, &key, &event).await;
    // The services stay open, so that SQLite does not remove its log while the files are read.
    assert_eq!(files_with(folder.path(), SECRET), [] as [&str; 0]);
    assert!(!files_with(folder.path(), "hatchery:sealed:k:").is_empty(), "the content is sealed");

    let other = tempfile::tempdir().unwrap();
    let unencrypted = plain(other.path()).await;
    store(&unencrypted).await;
    assert!(files_with(other.path(), SECRET).len() >= 4, "without encryption it is found");
}

#[tokio::test]
async fn what_an_earlier_key_or_none_has_stored_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let unencrypted = plain(folder.path()).await;
    let (key, event) = store(&unencrypted).await;
    drop(unencrypted);
    check(&keys(&[("k", "01")]).encrypt(plain(folder.path()).await), &key, &event).await;

    let folder = tempfile::tempdir().unwrap();
    let (key, event) = store(&keys(&[("old", "01")]).encrypt(plain(folder.path()).await)).await;
    let rotated = keys(&[("new", "02"), ("old", "01")]).encrypt(plain(folder.path()).await);
    check(&rotated, &key, &event).await;
    let newer = secret_event();
    assert_eq!(rotated.sessions.append(&key, &newer).await.unwrap(), 2);
    assert_eq!(rotated.sessions.append(&key, &event).await.unwrap(), 1, "a repeated append of the earlier key's event");
}

#[tokio::test]
async fn a_missing_or_wrong_key_is_named_and_nothing_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let (key, event) = store(&keys(&[("old", "01")]).encrypt(plain(folder.path()).await)).await;
    for (given, reason) in [
        (
            ("new", "02"),
            "it is encrypted with the key `old`, which is not among `encryption.keys` in hatchery.yaml; add it there",
        ),
        (
            ("old", "02"),
            "the key `old` does not open it: `encryption.keys` in hatchery.yaml has another key of this id, or the stored data was changed",
        ),
    ] {
        let services = keys(&[given]).encrypt(plain(folder.path()).await);
        let refused = services.sessions.get(&key, EventWindow::Recent(1)).await.unwrap_err();
        assert_eq!(refused.code(), "STORE_FAILED");
        let refused = refused.to_string();
        assert!(refused.starts_with("cannot decrypt ") && refused.ends_with(&format!(": {reason}")), "{refused}");
        let refused = services.artifacts.load(&key, "note", None).await.unwrap_err().to_string();
        assert_eq!(refused, format!("cannot decrypt the artifact `note` ({key}): {reason}"));
        let refused = services.memory.search("app", "ann", SECRET).await.unwrap_err().to_string();
        assert_eq!(refused, format!("cannot decrypt a message ({key}): {reason}"));
        let refused = services.sessions.append(&key, &event).await.unwrap_err().to_string();
        assert_eq!(refused, format!("cannot decrypt event `{}` ({key}): {reason}", event.id));
    }
}

#[tokio::test]
async fn an_event_that_was_moved_to_another_user_is_not_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let inner: Arc<dyn SessionService> = Arc::new(SqliteSessions::open(folder.path().join("s.db")).await.unwrap());
    let sessions = EncryptedSessions::new(inner.clone(), Arc::new(keys(&[("k", "01")])));
    let [ann, bob] = ["ann", "bob"].map(|user| SessionKey::new("app", user, "s1"));
    for key in [&ann, &bob] {
        sessions.create(&key.app, &key.user, Some(&key.id), JsonMap::new()).await.unwrap();
    }
    sessions.append(&ann, &secret_event()).await.unwrap();
    let stored = inner.get(&ann, EventWindow::All).await.unwrap().unwrap().events[0].clone();
    inner.append(&bob, &stored).await.unwrap();
    let refused = sessions.get(&bob, EventWindow::All).await.unwrap_err().to_string();
    assert!(refused.contains("the key `k` does not open it"), "{refused}");
}

#[tokio::test]
async fn an_artifact_whose_end_was_cut_off_or_changed_is_not_accepted() {
    let inner = Arc::new(MemoryArtifacts::new());
    let artifacts = EncryptedArtifacts::new(inner.clone(), Arc::new(keys(&[("k", "01")])));
    let key = SessionKey::new("app", "ann", "s1");
    artifacts.save(&key, "a", &picture()).await.unwrap();
    let stored = inner.load(&key, "a", None).await.unwrap().unwrap();
    let PartData::InlineData(blob) = stored.data else { panic!("it has bytes") };
    // The header with the id `k`, and two of the three segments.
    let two_segments = 6 + 1 + 1 + 32 + 2 * ((64 << 10) + 16);
    let mut changed = blob.data.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    for data in [blob.data.slice(..two_segments), blob.data.slice(..blob.data.len() - 1), changed.into()] {
        inner.save(&key, "a", &PartData::InlineData(Blob { data, ..blob.clone() }).into()).await.unwrap();
        let refused = artifacts.load(&key, "a", None).await.unwrap_err().to_string();
        assert!(refused.contains("the key `k` does not open it"), "{refused}");
        let streamed = artifacts.load_stream(&key, "a", None).await.unwrap().unwrap();
        let read: Result<Vec<Bytes>, StoreError> = streamed.bytes.try_collect().await;
        assert!(read.is_err());
    }
}

#[tokio::test]
async fn the_length_of_an_encrypted_stream_is_the_number_of_its_bytes() {
    let artifacts = EncryptedArtifacts::new(Arc::new(MemoryArtifacts::new()), Arc::new(keys(&[("k", "01")])));
    let key = SessionKey::new("app", "ann", "s1");
    for len in [0, 1, 65_000, 65_536 - 48, 65_536, 200_000] {
        let sent = stream::iter([Ok(Bytes::from(vec![b'x'; len]))]).boxed();
        artifacts.save_stream(&key, "a", "text/plain", sent).await.unwrap();
        let read = artifacts.load_stream(&key, "a", None).await.unwrap().unwrap();
        assert_eq!(read.len, len as u64);
        let bytes: Vec<Bytes> = read.bytes.try_collect().await.unwrap();
        assert_eq!(bytes.concat().len(), len);
    }
}

#[tokio::test]
async fn a_memory_that_cannot_list_its_entries_says_so() {
    struct SearchOnly;

    #[async_trait::async_trait]
    impl MemoryService for SearchOnly {
        async fn add_session(&self, _: &hatchery_core::Session) -> Result<(), StoreError> {
            Ok(())
        }

        async fn add_events(&self, _: &SessionKey, _: &[Arc<Event>]) -> Result<(), StoreError> {
            Ok(())
        }

        async fn search(&self, _: &str, _: &str, _: &str) -> Result<Vec<hatchery_core::MemoryEntry>, StoreError> {
            Ok(Vec::new())
        }
    }
    let memory = EncryptedMemory::new(Arc::new(SearchOnly), Arc::new(keys(&[("k", "01")])));
    let refused = memory.search("app", "ann", SECRET).await.unwrap_err().to_string();
    assert_eq!(refused, "this memory service cannot list its sessions");
}

/// Changes a character of a sealed text, but not the last one, some of whose bits are padding.
fn damaged(sealed: &str) -> String {
    let (before, rest) = sealed.split_at(sealed.len() - 8);
    let other = if rest.starts_with('A') { 'B' } else { 'A' };
    format!("{before}{other}{}", &rest[1..])
}

/// Copies a session, with a change of its second sealed event.
async fn copy(inner: &dyn SessionService, key: &SessionKey, change: impl Fn(&str) -> String) -> SessionKey {
    let stored = inner.get(key, EventWindow::All).await.unwrap().unwrap();
    let copy = inner.create(&key.app, &key.user, None, JsonMap::new()).await.unwrap().key;
    for (index, event) in stored.events.iter().enumerate() {
        let sealed = event.custom_metadata.as_ref().unwrap()["hatchery:sealedEvent"].as_str().unwrap();
        let sealed = if index == 1 { change(sealed) } else { sealed.to_owned() };
        let data = EventData {
            id: event.id.clone(),
            author: event.author.clone(),
            custom_metadata: Some(Box::new(json!({ "hatchery:sealedEvent": sealed }))),
            timestamp: event.timestamp,
            ..EventData::default()
        };
        inner.append(&copy, &Event::new(data)).await.unwrap();
    }
    copy
}

fn message(text: &str) -> Arc<Event> {
    let content = Some(Arc::new(Content::user(text)));
    Event::new(EventData { author: "user".into(), content, ..EventData::default() })
}

#[tokio::test]
async fn a_damaged_event_is_shown_as_unreadable_and_its_session_continues() {
    let inner: Arc<dyn SessionService> = Arc::new(MemorySessions::new());
    let sessions = EncryptedSessions::new(inner.clone(), Arc::new(keys(&[("k", "01")])));
    let original = sessions.create("app", "ann", None, JsonMap::new()).await.unwrap().key;
    for text in ["one", "two", "three"] {
        sessions.append(&original, &message(text)).await.unwrap();
    }
    let key = copy(&*inner, &original, damaged).await;
    for (window, second) in [(EventWindow::All, 1), (EventWindow::Recent(2), 0), (EventWindow::AfterRevision(1), 0)] {
        let events = sessions.get(&key, window).await.unwrap().unwrap().events;
        let error = (events[second].error_code.as_deref(), events[second].error_message.as_deref());
        let expected = "event 2 of the session cannot be read and is left out: it cannot be decrypted";
        assert_eq!(error, (Some("UNREADABLE_EVENT"), Some(expected)), "{window:?}");
        assert_eq!(events.last().unwrap().content.as_ref().unwrap().text(), "three");
    }
    assert_eq!(sessions.append(&key, &message("four")).await.unwrap(), 4);
    let unknown = copy(&*inner, &original, |sealed| sealed.replace(":k:", ":lost:")).await;
    let refused = sessions.get(&unknown, EventWindow::All).await.unwrap_err();
    assert_eq!(refused.code(), "STORE_FAILED", "a key that is missing can be added");
}

#[tokio::test]
async fn a_damaged_value_of_one_session_does_not_hide_the_others() {
    let inner: Arc<dyn SessionService> = Arc::new(MemorySessions::new());
    let sessions = EncryptedSessions::new(inner.clone(), Arc::new(keys(&[("k", "01")])));
    sessions.create("app", "ann", Some("s1"), map(json!({"a": 1}))).await.unwrap();
    sessions.create("app", "ann", Some("s2"), map(json!({"a": 2, "b": 3}))).await.unwrap();
    let stored = inner.get(&SessionKey::new("app", "ann", "s2"), EventWindow::All).await.unwrap().unwrap();
    let broken = damaged(stored.state.get("a").unwrap().as_str().unwrap());
    let state_delta = map(json!({ "a": broken }));
    let actions = EventActions { state_delta, ..EventActions::default() };
    inner.append(&stored.key, &Event::new(EventData { actions, ..EventData::default() })).await.unwrap();
    let mut listed: Vec<_> = sessions.list("app", "ann").await.unwrap();
    listed.sort_by(|one, other| one.key.id.cmp(&other.key.id));
    let states: Vec<_> = listed.iter().map(|session| serde_json::to_value(&session.state).unwrap()).collect();
    assert_eq!(states, [json!({"a": 1}), json!({"b": 3})]);
    assert_eq!(sessions.list_page("app", "ann", None, 9).await.unwrap().sessions.len(), 2);
    let refused = sessions.get(&stored.key, EventWindow::All).await.unwrap_err().to_string();
    assert!(refused.starts_with("cannot decrypt the state `a` ("), "{refused}");
}

#[tokio::test]
async fn data_that_is_not_encrypted_can_be_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (key, event) = store(&plain(folder.path()).await).await;
    let strict = keys(&[("k", "01")]).with_plain_data(PlainData::Refuse).encrypt(plain(folder.path()).await);
    let reason = ": it is not encrypted, and `encryption.plain` in hatchery.yaml refuses that: it was \
                  stored without encryption, or somebody has replaced it";
    let refused = [
        strict.sessions.get(&key, EventWindow::All).await.unwrap_err(),
        strict.sessions.append(&key, &event).await.unwrap_err(),
        strict.sessions.journal().unwrap().read(&key, "r1").await.unwrap_err(),
        strict.sessions.runs().unwrap().get(&key, "r1").await.unwrap_err(),
        strict.artifacts.load(&key, "picture", None).await.unwrap_err(),
        strict.artifacts.load_stream(&key, "note", None).await.unwrap_err(),
        strict.memory.search("app", "ann", SECRET).await.unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.code(), "STORE_FAILED");
        let error = error.to_string();
        assert!(error.starts_with("cannot decrypt ") && error.ends_with(reason), "{error}");
    }

    // What is encrypted is read, and a plain event among it is not used.
    let folder = tempfile::tempdir().unwrap();
    let strict = || keys(&[("k", "01")]).with_plain_data(PlainData::Refuse);
    let (key, event) = store(&strict().encrypt(plain(folder.path()).await)).await;
    let services = strict().encrypt(plain(folder.path()).await);
    check(&services, &key, &event).await;
    plain(folder.path()).await.sessions.append(&key, &message("forged")).await.unwrap();
    let events = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap().events;
    assert_eq!((events.len(), events[1].error_code.as_deref()), (2, Some("UNREADABLE_EVENT")));
    assert_eq!(events[1].content, None);
}

#[tokio::test]
async fn a_large_session_is_decrypted_outside_of_the_workers() {
    let sessions = EncryptedSessions::new(Arc::new(MemorySessions::new()), Arc::new(keys(&[("k", "01")])));
    for (id, bytes, is_ready) in [("small", 10, true), ("large", 1 << 20, false)] {
        let key = sessions.create("app", "ann", Some(id), JsonMap::new()).await.unwrap().key;
        sessions.append(&key, &message(&"x".repeat(bytes))).await.unwrap();
        let mut get = sessions.get(&key, EventWindow::All);
        assert_eq!(futures::poll!(&mut get).is_ready(), is_ready, "{id}");
        if !is_ready {
            assert_eq!(get.await.unwrap().unwrap().events.len(), 1);
        }
    }
}
