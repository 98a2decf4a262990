//! Artifact services.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{
    ArtifactService, Blob, ByteStream, JsonMap, NewestVersion, Part, PartData, SessionKey, StoreError, Timestamp,
};
use hatchery_stores::encryption::EncryptedArtifacts;
use hatchery_stores::quotas::QuotaArtifacts;
use serde_json::json;

use crate::support::keys;

on_every_artifact_backend!([
    versions_count_from_zero,
    the_newest_version_is_loaded_unless_one_is_given,
    an_artifact_that_does_not_exist_is_none,
    reading_an_unknown_artifact_does_not_create_it,
    every_part_is_read_back_unchanged,
    sessions_do_not_see_each_others_artifacts,
    artifacts_of_a_user_are_visible_in_all_their_sessions,
    names_are_listed_in_order,
    similar_names_are_different_artifacts,
    names_that_leave_their_folder_are_rejected,
    a_name_that_is_too_long_for_file_systems_is_rejected,
    sessions_with_the_longest_ids_have_artifacts,
    a_deleted_artifact_is_gone_with_its_versions,
    deleting_an_unknown_artifact_is_no_error,
    concurrent_saves_get_distinct_versions,
    saves_and_deletions_may_run_concurrently,
    streams_are_versions_like_all_others,
    a_stream_of_many_chunks_is_read_back_unchanged,
    a_stream_that_fails_saves_nothing,
    the_newest_versions_are_listed_with_the_time_when_they_were_saved,
    versions_keep_their_metadata_and_the_time_when_they_were_saved,
]);

#[cfg(feature = "object-store")]
pub fn objects_in_memory(prefix: &str) -> hatchery_stores::ObjectArtifacts {
    hatchery_stores::ObjectArtifacts::new(Arc::new(object_store::memory::InMemory::new()), prefix).unwrap()
}

pub fn behind_quotas(artifacts: impl ArtifactService + 'static) -> QuotaArtifacts {
    QuotaArtifacts::new(Arc::new(artifacts), Arc::default())
}

pub fn encrypted(artifacts: impl ArtifactService + 'static) -> EncryptedArtifacts {
    EncryptedArtifacts::new(Arc::new(artifacts), keys())
}

fn session(user: &str, id: &str) -> SessionKey {
    SessionKey::new("app", user, id)
}

fn bytes(bytes: &'static [u8]) -> Part {
    let data = Bytes::from_static(bytes);
    PartData::InlineData(Blob { mime_type: "image/png".into(), data, display_name: Some("A picture".into()) }).into()
}

async fn save(artifacts: &dyn ArtifactService, session: &SessionKey, name: &str, text: &str) -> u64 {
    artifacts.save(session, name, &Part::text(text)).await.unwrap()
}

async fn load(artifacts: &dyn ArtifactService, session: &SessionKey, name: &str) -> Option<String> {
    let part = artifacts.load(session, name, None).await.unwrap()?;
    Some(part.as_text().unwrap().to_owned())
}

async fn versions_count_from_zero(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    // More than ten, so that numbers are not mistaken for text.
    for version in 0..12 {
        assert_eq!(save(artifacts, &s1, "a.txt", "x").await, version);
    }
    assert_eq!(artifacts.versions(&s1, "a.txt").await.unwrap(), (0..12).collect::<Vec<_>>());
    assert_eq!(save(artifacts, &s1, "b.txt", "x").await, 0);
}

async fn the_newest_version_is_loaded_unless_one_is_given(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    for text in ["zero", "one", "two"] {
        save(artifacts, &s1, "a.txt", text).await;
    }
    assert_eq!(load(artifacts, &s1, "a.txt").await.unwrap(), "two");
    for (version, text) in [(0, "zero"), (1, "one"), (2, "two")] {
        let part = artifacts.load(&s1, "a.txt", Some(version)).await.unwrap().unwrap();
        assert_eq!(part, Part::text(text));
    }
}

async fn an_artifact_that_does_not_exist_is_none(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    assert!(artifacts.load(&s1, "a.txt", None).await.unwrap().is_none());
    assert!(artifacts.load(&s1, "a.txt", Some(0)).await.unwrap().is_none());
    save(artifacts, &s1, "a.txt", "x").await;
    assert!(artifacts.load(&s1, "a.txt", Some(1)).await.unwrap().is_none());
    assert!(artifacts.load(&s1, "a.txt", Some(u64::MAX)).await.unwrap().is_none());
}

async fn reading_an_unknown_artifact_does_not_create_it(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    assert!(artifacts.versions(&s1, "a.txt").await.unwrap().is_empty());
    assert!(artifacts.versions(&s1, "user:a.txt").await.unwrap().is_empty());
    assert!(artifacts.load(&s1, "b.txt", None).await.unwrap().is_none());
    artifacts.delete(&s1, "c.txt").await.unwrap();
    assert!(artifacts.list(&s1).await.unwrap().is_empty());
}

async fn every_part_is_read_back_unchanged(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let mut parts =
        vec![bytes(b""), bytes(b"\n\nline\0\xff\n{}"), Part::text("two\nlines \u{2028} \u{0}"), Part::default()];
    parts.push(Part { thought: true, thought_signature: Some(Bytes::from_static(b"\x00\xff")), ..bytes(b"x\n") });
    for json in [
        json!({"fileData": {"fileUri": "gs://a/b", "mimeType": "text/plain"}, "videoMetadata": {"fps": 1.5}}),
        json!({"functionCall": {"id": "c1", "name": "roll", "args": {"n": [1, null]}, "new": {}}}),
        json!({"functionResponse": {"name": "roll", "response": {"result": 4}}}),
        json!({"executableCode": {"language": "PYTHON", "code": "print(1)\n"}}),
        json!({"futureKind": {"a": 1}}),
    ] {
        parts.push(serde_json::from_value(json).unwrap());
    }
    for (version, part) in parts.iter().enumerate() {
        assert_eq!(artifacts.save(&s1, "part", part).await.unwrap(), version as u64);
        assert_eq!(artifacts.load(&s1, "part", None).await.unwrap().as_ref(), Some(part));
    }
}

async fn sessions_do_not_see_each_others_artifacts(artifacts: &dyn ArtifactService) {
    let own = session("ann", "s1");
    save(artifacts, &own, "a.txt", "x").await;
    for other in [session("ann", "s2"), session("bob", "s1"), SessionKey::new("other", "ann", "s1")] {
        assert!(artifacts.load(&other, "a.txt", None).await.unwrap().is_none());
        assert!(artifacts.list(&other).await.unwrap().is_empty());
        assert_eq!(save(artifacts, &other, "a.txt", "y").await, 0);
    }
    assert_eq!(load(artifacts, &own, "a.txt").await.unwrap(), "x");
}

async fn artifacts_of_a_user_are_visible_in_all_their_sessions(artifacts: &dyn ArtifactService) {
    let (s1, s2) = (session("ann", "s1"), session("ann", "s2"));
    save(artifacts, &s1, "user:a.txt", "the user's").await;
    save(artifacts, &s1, "a.txt", "the session's").await;
    assert_eq!(load(artifacts, &s2, "user:a.txt").await.unwrap(), "the user's");
    assert_eq!(load(artifacts, &s1, "a.txt").await.unwrap(), "the session's");
    assert_eq!(artifacts.list(&s2).await.unwrap(), ["user:a.txt"]);
    assert_eq!(save(artifacts, &s2, "user:a.txt", "newer").await, 1);
    assert_eq!(artifacts.versions(&s1, "user:a.txt").await.unwrap(), [0, 1]);
    for stranger in [session("bob", "s1"), SessionKey::new("other", "ann", "s1")] {
        assert!(artifacts.load(&stranger, "user:a.txt", None).await.unwrap().is_none());
        assert!(artifacts.list(&stranger).await.unwrap().is_empty());
    }
}

async fn names_are_listed_in_order(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    for name in ["z", "user:m", "b/c", "a", "user:a", "é"] {
        save(artifacts, &s1, name, "x").await;
        save(artifacts, &s1, name, "y").await;
    }
    assert_eq!(artifacts.list(&s1).await.unwrap(), ["a", "b/c", "user:a", "user:m", "z", "é"]);
}

async fn similar_names_are_different_artifacts(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let mut names = vec![
        "a/b",
        "a%2Fb",
        "a%2fb",
        "a\\b",
        "a b",
        "a",
        "a/b/0",
        "a/",
        "a//b",
        "./a",
        ".",
        "...",
        "..a",
        "%",
        " ",
        "0",
        "sessions",
        "user",
        "User:a",
        "a:b",
        "user:a/b",
        "user:user:a",
        "東京/レポート.pdf",
        "🙂",
        ".unfinished",
    ];
    for name in &names {
        assert_eq!(save(artifacts, &s1, name, name).await, 0, "{name}");
    }
    for name in &names {
        assert_eq!(load(artifacts, &s1, name).await.as_deref(), Some(*name));
    }
    names.sort_unstable();
    assert_eq!(artifacts.list(&s1).await.unwrap(), names);

    // The same goes for users, apps and sessions.
    let odd = ["", ".", "..", "a/b", "../app", "user", "%"];
    for name in odd {
        let key = SessionKey::new(name, name, name);
        assert_eq!(save(artifacts, &key, "x", name).await, 0, "{name}");
        assert_eq!(save(artifacts, &key, "user:x", name).await, 0, "{name}");
    }
    for name in odd {
        let key = SessionKey::new(name, name, name);
        assert_eq!(load(artifacts, &key, "user:x").await.as_deref(), Some(name));
        assert_eq!(artifacts.list(&key).await.unwrap(), ["user:x", "x"]);
    }
}

async fn names_that_leave_their_folder_are_rejected(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    for (bare, reason) in [
        ("", "an artifact needs a name"),
        ("/etc/passwd", "the name of an artifact cannot start with `/`"),
        ("..", "the name of an artifact cannot have `..` between its slashes"),
        ("../a", "the name of an artifact cannot have `..` between its slashes"),
        ("a/../b", "the name of an artifact cannot have `..` between its slashes"),
        ("a\\..\\b", "the name of an artifact cannot have `..` between its slashes"),
    ] {
        for name in [bare.to_owned(), format!("user:{bare}")] {
            let refusals = [
                artifacts.save(&s1, &name, &Part::text("x")).await.map(drop),
                artifacts.load(&s1, &name, None).await.map(drop),
                artifacts.versions(&s1, &name).await.map(drop),
                artifacts.delete(&s1, &name).await,
            ];
            for refusal in refusals {
                let Err(error @ StoreError::InvalidName { .. }) = refusal else { panic!("{name:?}: {refusal:?}") };
                assert_eq!(error.to_string(), format!("invalid name `{name}`: {reason}"));
            }
        }
    }
    assert!(artifacts.list(&s1).await.unwrap().is_empty());
}

async fn a_name_that_is_too_long_for_file_systems_is_rejected(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let (fits, too_long) = ("a".repeat(255), "a".repeat(256));
    save(artifacts, &s1, &fits, "x").await;
    assert_eq!(load(artifacts, &s1, &fits).await.unwrap(), "x");
    for name in [too_long, "/a".repeat(64).split_off(1) + "/bc"] {
        let refused = artifacts.save(&s1, &name, &Part::text("x")).await;
        let Err(error @ StoreError::InvalidName { .. }) = refused else { panic!("{refused:?}") };
        let reason = "too long: as a file name it may take up to 255 bytes, three for each special character or \
                      capital letter";
        assert_eq!(error.to_string(), format!("invalid name `{name}`: {reason}"));
    }
}

async fn sessions_with_the_longest_ids_have_artifacts(artifacts: &dyn ArtifactService) {
    // Those of 256 bytes that take the most as file names, and that differ only at their ends.
    let keys = ["A", "B"].map(|end| {
        let [user, id] = ["X", "é"].map(|text| text.repeat(255 / text.len()) + end);
        SessionKey::new("app", user, id)
    });
    for key in &keys {
        assert!(artifacts.list(key).await.unwrap().is_empty());
        save(artifacts, key, "a", &key.id).await;
        save(artifacts, key, "user:b", &key.user).await;
    }
    for key in &keys {
        assert_eq!(artifacts.list(key).await.unwrap(), ["a", "user:b"]);
        assert_eq!(load(artifacts, key, "a").await.as_deref(), Some(&*key.id));
        assert_eq!(load(artifacts, key, "user:b").await.as_deref(), Some(&*key.user));
        assert_eq!(artifacts.usage(key).await.unwrap().user_versions, 2);
        assert_eq!(artifacts.delete_all(key).await.unwrap(), ["a"]);
    }
}

async fn a_deleted_artifact_is_gone_with_its_versions(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    for name in ["a", "b", "user:a", "user:b"] {
        save(artifacts, &s1, name, "0").await;
        save(artifacts, &s1, name, "1").await;
    }
    artifacts.delete(&s1, "a").await.unwrap();
    artifacts.delete(&s1, "user:b").await.unwrap();
    assert_eq!(artifacts.list(&s1).await.unwrap(), ["b", "user:a"]);
    assert!(artifacts.versions(&s1, "a").await.unwrap().is_empty());
    assert!(artifacts.load(&s1, "a", Some(0)).await.unwrap().is_none());
    assert_eq!(save(artifacts, &s1, "a", "new").await, 0);
    assert_eq!(load(artifacts, &s1, "a").await.unwrap(), "new");
}

async fn deleting_an_unknown_artifact_is_no_error(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    artifacts.delete(&s1, "a").await.unwrap();
    save(artifacts, &s1, "b", "x").await;
    artifacts.delete(&s1, "a").await.unwrap();
    assert_eq!(artifacts.list(&s1).await.unwrap(), ["b"]);
}

async fn the_newest_versions_are_listed_with_the_time_when_they_were_saved(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    assert_eq!(artifacts.newest_versions(&s1).await.unwrap(), []);
    // Stores count in seconds, or with a coarse clock.
    let before = Timestamp::now().as_seconds() - 2.0;
    for (name, count) in [("user:b", 2), ("a/b", 11), ("c", 1)] {
        for _ in 0..count {
            save(artifacts, &s1, name, "x").await;
        }
    }
    save(artifacts, &session("ann", "s2"), "user:b", "x").await;
    save(artifacts, &session("ann", "s2"), "other", "x").await;
    let newest = artifacts.newest_versions(&s1).await.unwrap();
    let numbers: Vec<_> = newest.iter().map(|newest| (newest.name.as_str(), newest.version)).collect();
    assert_eq!(numbers, [("a/b", 10), ("c", 0), ("user:b", 2)]);
    let after = Timestamp::now().as_seconds() + 2.0;
    for NewestVersion { name, created, .. } in newest {
        let created = created.unwrap().as_seconds();
        assert!(before <= created && created <= after, "{name}: {before} {created} {after}");
    }
    artifacts.delete(&s1, "a/b").await.unwrap();
    let newest = artifacts.newest_versions(&s1).await.unwrap();
    assert_eq!(newest.iter().map(|newest| &newest.name).collect::<Vec<_>>(), ["c", "user:b"]);
}

async fn versions_keep_their_metadata_and_the_time_when_they_were_saved(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let metadata = |author: &str| -> JsonMap {
        serde_json::from_value(json!({"author": author, "pages": [1, 2.5, null], "größe": {"z": 1, "a": "\n\u{0}"}}))
            .unwrap()
    };
    let before = Timestamp::now().as_seconds() - 2.0;
    for (name, part) in [("a", Part::text("one")), ("user:b", bytes(b"[{\n\xff"))] {
        assert_eq!(artifacts.save_with(&s1, name, &part, &metadata("ada")).await.unwrap(), 0);
        assert_eq!(artifacts.save(&s1, name, &part).await.unwrap(), 1);
        let stream = chunks(vec![Ok(Bytes::from_static(b"[{")), Ok(Bytes::from_static(b"\n"))]);
        let saved = artifacts.save_stream_with(&s1, name, "text/plain", &metadata("bob"), stream).await;
        assert_eq!(saved.unwrap(), 2);
        for (version, expected) in [(0, metadata("ada")), (1, JsonMap::new()), (2, metadata("bob"))] {
            let artifact = artifacts.load_stream(&s1, name, Some(version)).await.unwrap().unwrap();
            assert_eq!(artifact.custom_metadata, expected, "{name} {version}");
            let created = artifact.created.unwrap().as_seconds();
            let after = Timestamp::now().as_seconds() + 2.0;
            assert!(before <= created && created <= after, "{name}: {before} {created} {after}");
        }
        for version in [0, 1] {
            assert_eq!(artifacts.load(&s1, name, Some(version)).await.unwrap().as_ref(), Some(&part));
        }
        assert_eq!(read_stream(artifacts, &s1, name, Some(2)).await.unwrap(), ("text/plain".into(), b"[{\n".to_vec()));
        let times =
            async |version: u64| artifacts.load_stream(&s1, name, Some(version)).await.unwrap().unwrap().created;
        assert!(times(0).await <= times(2).await);
    }
}

fn chunks(chunks: Vec<Result<Bytes, StoreError>>) -> ByteStream<'static> {
    stream::iter(chunks).boxed()
}

/// Reads a version as a stream: its media type and its bytes.
async fn read_stream(
    artifacts: &dyn ArtifactService,
    session: &SessionKey,
    name: &str,
    version: Option<u64>,
) -> Option<(String, Vec<u8>)> {
    let artifact = artifacts.load_stream(session, name, version).await.unwrap()?;
    let PartData::InlineData(blob) = artifact.part.data else { panic!("{:?}", artifact.part) };
    assert!(blob.data.is_empty());
    let bytes: Vec<Bytes> = artifact.bytes.try_collect().await.unwrap();
    assert!(bytes.iter().all(|chunk| !chunk.is_empty()));
    assert_eq!(bytes.iter().map(Bytes::len).sum::<usize>() as u64, artifact.len);
    Some((blob.mime_type, bytes.concat()))
}

async fn streams_are_versions_like_all_others(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    assert!(read_stream(artifacts, &s1, "a", None).await.is_none());
    let text = || chunks(vec![Ok(Bytes::from_static(b"one\n")), Ok(Bytes::from_static(b"two\n"))]);
    assert_eq!(artifacts.save_stream(&s1, "a", "text/csv", text()).await.unwrap(), 0);
    assert_eq!(artifacts.save_stream(&s1, "a", "", chunks(vec![])).await.unwrap(), 1);
    assert_eq!(artifacts.save(&s1, "a", &bytes(b"\x89PNG")).await.unwrap(), 2);
    assert_eq!(artifacts.versions(&s1, "a").await.unwrap(), [0, 1, 2]);
    let read = async |version: Option<u64>| read_stream(artifacts, &s1, "a", version).await.unwrap();
    assert_eq!(read(Some(0)).await, ("text/csv".into(), b"one\ntwo\n".to_vec()));
    assert_eq!(read(Some(1)).await, (String::new(), Vec::new()));
    assert_eq!(read(None).await, ("image/png".into(), b"\x89PNG".to_vec()));
    assert!(read_stream(artifacts, &s1, "a", Some(3)).await.is_none());
    let loaded = artifacts.load(&s1, "a", Some(0)).await.unwrap().unwrap();
    let PartData::InlineData(blob) = loaded.data else { panic!("{loaded:?}") };
    assert_eq!((&*blob.mime_type, &blob.data[..]), ("text/csv", &b"one\ntwo\n"[..]));

    save(artifacts, &s1, "note", "no bytes").await;
    let note = artifacts.load_stream(&s1, "note", None).await.unwrap().unwrap();
    assert_eq!((note.part, note.len), (Part::text("no bytes"), 0));
    assert_eq!(note.bytes.count().await, 0);
    let refused = artifacts.save_stream(&s1, "../a", "", text()).await;
    assert!(matches!(refused, Err(StoreError::InvalidName { .. })), "{refused:?}");
}

/// Large enough for more than one piece in an object store.
async fn a_stream_of_many_chunks_is_read_back_unchanged(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let sent: Vec<Bytes> = (0..170_u32).map(|number| number.to_be_bytes().repeat(25_000).into()).collect();
    let (expected, stream) = (sent.concat(), chunks(sent.into_iter().map(Ok).collect()));
    assert_eq!(artifacts.save_stream(&s1, "user:large", "application/zip", stream).await.unwrap(), 0);
    let (mime_type, read) = read_stream(artifacts, &session("ann", "s2"), "user:large", None).await.unwrap();
    assert_eq!(mime_type, "application/zip");
    assert!(read == expected, "{} bytes are read, {} were sent", read.len(), expected.len());
}

async fn a_stream_that_fails_saves_nothing(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    for sent in [0, 100, 10 << 20] {
        let failure = Err(StoreError::InvalidRequest("the client is gone".into()));
        let stream = chunks(vec![Ok(Bytes::from(vec![b'x'; sent])), failure].split_off(usize::from(sent == 0)));
        let failed = artifacts.save_stream(&s1, "a", "text/plain", stream).await;
        assert_eq!(failed.unwrap_err().to_string(), "the client is gone");
        assert!(artifacts.list(&s1).await.unwrap().is_empty(), "after {sent} bytes");
        assert_eq!(artifacts.usage(&s1).await.unwrap().session_bytes, 0);
    }
    assert_eq!(save(artifacts, &s1, "a", "x").await, 0);
}

async fn concurrent_saves_get_distinct_versions(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let texts: Vec<String> = (0..16).map(|number| number.to_string()).collect();
    let parts: Vec<Part> = texts.iter().map(Part::text).collect();
    let saves = join_all(parts.iter().map(|part| artifacts.save(&s1, "a", part))).await;
    let versions: Vec<u64> = saves.into_iter().map(Result::unwrap).collect();
    assert_eq!(versions.iter().copied().collect::<BTreeSet<_>>(), (0..16).collect());
    for (version, part) in versions.iter().zip(&parts) {
        assert_eq!(artifacts.load(&s1, "a", Some(*version)).await.unwrap().as_ref(), Some(part));
    }
}

async fn saves_and_deletions_may_run_concurrently(artifacts: &dyn ArtifactService) {
    let s1 = session("ann", "s1");
    let part = Part::text("x");
    let save_and_delete = async |number: u64| {
        if number.is_multiple_of(2) {
            artifacts.save(&s1, "a", &part).await.map(drop)
        } else {
            artifacts.delete(&s1, "a").await
        }
    };
    for result in join_all((0..40).map(save_and_delete)).await {
        result.unwrap();
    }
    for version in artifacts.versions(&s1, "a").await.unwrap() {
        assert_eq!(artifacts.load(&s1, "a", Some(version)).await.unwrap().as_ref(), Some(&part));
    }
}
