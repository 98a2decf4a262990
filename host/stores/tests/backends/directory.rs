//! Artifacts in a directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, stream};
use hatchery_core::{ArtifactService, Blob, Part, PartData, SessionKey, StoreError};
use hatchery_stores::DirectoryArtifacts;

fn session() -> SessionKey {
    SessionKey::new("app", "ann", "s1")
}

/// Returns the files of artifacts.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let entries = entries.filter(|path| !path.ends_with(".layout"));
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[tokio::test]
async fn everything_is_found_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("missing/folders");
    let picture: Part = PartData::InlineData(Blob {
        mime_type: "image/png".into(),
        data: Bytes::from_static(b"\x89PNG\r\n\x1a\n"),
        display_name: None,
    })
    .into();
    let before = DirectoryArtifacts::open(&root).await.unwrap();
    before.save(&session(), "a/b.png", &picture).await.unwrap();
    before.save(&session(), "user:notes", &Part::text("x")).await.unwrap();

    let after = DirectoryArtifacts::open(&root).await.unwrap();
    assert_eq!(after.list(&session()).await.unwrap(), ["a/b.png", "user:notes"]);
    assert_eq!(after.load(&session(), "a/b.png", None).await.unwrap(), Some(picture.clone()));
    assert_eq!(after.save(&session(), "a/b.png", &picture).await.unwrap(), 1);
    assert_eq!(before.versions(&session(), "a/b.png").await.unwrap(), [0, 1]);
}

#[tokio::test]
async fn a_version_is_one_file_with_the_raw_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    let data = Bytes::from(vec![b'\n'; 10_000]);
    let blob = Blob { mime_type: "text/plain".into(), data: data.clone(), display_name: None };
    artifacts.save(&session(), "a/b", &PartData::InlineData(blob).into()).await.unwrap();
    artifacts.save(&session(), "user:c", &Part::text("x")).await.unwrap();
    let mut files = files_below(folder.path());
    files.sort();
    let version = folder.path().join("app/ann/sessions/s1/a%2Fb/0");
    assert_eq!(files, [version.clone(), folder.path().join("app/ann/user/c/0")]);
    let stored = fs::read(version).unwrap();
    assert!(stored.ends_with(&data) && stored.len() < 10_100, "{} bytes", stored.len());
}

#[tokio::test]
async fn a_stream_that_ends_early_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    let sent = || Ok(Bytes::from_static(b"some bytes"));
    let failing = stream::iter([sent(), Err(StoreError::InvalidRequest("gone".into()))]).boxed();
    artifacts.save_stream(&session(), "a", "text/plain", failing).await.unwrap_err();
    assert_eq!(files_below(folder.path()), [] as [PathBuf; 0]);
    // Its reader is gone, too.
    let endless = stream::iter([sent()]).chain(stream::pending()).boxed();
    let key = session();
    let mut saving = artifacts.save_stream(&key, "a", "text/plain", endless);
    while files_below(folder.path()).is_empty() {
        assert!(futures::poll!(&mut saving).is_pending());
        tokio::task::yield_now().await;
    }
    drop(saving);
    assert_eq!(files_below(folder.path()), [] as [PathBuf; 0]);
    assert!(artifacts.list(&session()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deletion_does_not_fail_because_of_a_save() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Arc::new(DirectoryArtifacts::open(folder.path()).await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..12 {
        let artifacts = artifacts.clone();
        tasks.spawn(async move {
            for _ in 0..100 {
                if task % 3 == 0 {
                    artifacts.delete(&session(), "a").await.unwrap();
                } else {
                    artifacts.save(&session(), "a", &Part::text("x")).await.unwrap();
                }
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    artifacts.delete(&session(), "a").await.unwrap();
    assert!(files_below(folder.path()).is_empty(), "{:?}", files_below(folder.path()));
}

#[tokio::test]
async fn the_folders_of_a_session_and_of_its_user_are_removed_with_their_last_artifact() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    let (own, user) = (folder.path().join("app/ann/sessions/s1"), folder.path().join("app/ann"));
    for name in ["a", "b", "user:c"] {
        artifacts.save(&session(), name, &Part::text("x")).await.unwrap();
    }
    artifacts.delete(&session(), "a").await.unwrap();
    assert!(own.exists(), "it has `b`");
    artifacts.delete(&session(), "b").await.unwrap();
    assert!(!own.exists() && user.exists(), "the user has `c`");
    artifacts.delete(&session(), "user:c").await.unwrap();
    assert!(!user.exists());
    assert_eq!(artifacts.save(&session(), "a", &Part::text("x")).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_save_does_not_fail_because_the_folders_above_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = Arc::new(DirectoryArtifacts::open(folder.path()).await.unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..4 {
        let artifacts = artifacts.clone();
        tasks.spawn(async move {
            let session = SessionKey::new("app", "ann", format!("s{task}"));
            for _ in 0..100 {
                artifacts.save(&session, "a", &Part::text("x")).await.unwrap();
                assert_eq!(artifacts.list(&session).await.unwrap(), ["a"]);
                artifacts.delete(&session, "a").await.unwrap();
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert!(!folder.path().join("app/ann").exists());
}

#[tokio::test]
async fn a_file_instead_of_an_artifact_folder_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    artifacts.save(&session(), "a", &Part::text("x")).await.unwrap();
    let stray = folder.path().join("app/ann/sessions/s1/b");
    fs::write(&stray, "stray").unwrap();
    let error = artifacts.save(&session(), "b", &Part::text("x")).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot save artifacts in {}: ", stray.display())), "{error}");
}

#[tokio::test]
async fn foreign_files_in_the_folders_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    artifacts.save(&session(), "a", &Part::text("x")).await.unwrap();
    let own = folder.path().join("app/ann/sessions/s1");
    for stray in [".DS_Store", "a/007", "a/+7", "a/thumbnail.png", "file"] {
        fs::write(own.join(stray), "stray").unwrap();
    }
    fs::create_dir(own.join("empty")).unwrap();
    fs::create_dir(own.join("not%a%name")).unwrap();
    assert_eq!(artifacts.list(&session()).await.unwrap(), ["a"]);
    assert_eq!(artifacts.versions(&session(), "a").await.unwrap(), [0]);
    assert_eq!(artifacts.save(&session(), "a", &Part::text("y")).await.unwrap(), 1);
}

#[tokio::test]
async fn files_left_by_a_crash_are_invisible_and_removed_when_old() {
    let folder = tempfile::tempdir().unwrap();
    let unfinished = folder.path().join(".unfinished");
    fs::create_dir_all(unfinished.join("old-deletion")).unwrap();
    fs::create_dir_all(unfinished.join("new-deletion")).unwrap();
    fs::write(unfinished.join("old-deletion/0"), "half").unwrap();
    fs::write(unfinished.join("old-write"), "half").unwrap();
    fs::write(unfinished.join("new-write"), "half").unwrap();
    let old = SystemTime::now() - Duration::from_secs(60 * 60 + 60);
    for name in ["old-deletion", "old-write"] {
        File::open(unfinished.join(name)).unwrap().set_modified(old).unwrap();
    }
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    assert!(artifacts.list(&session()).await.unwrap().is_empty());
    let mut left: Vec<_> = fs::read_dir(unfinished).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["new-deletion", "new-write"]);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_that_names_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    artifacts.save(&session(), "a", &Part::text("x")).await.unwrap();
    let artifact = folder.path().join("app/ann/sessions/s1/a");
    fs::write(artifact.join("0"), "{}").unwrap();
    let error = artifacts.load(&session(), "a", None).await.unwrap_err().to_string();
    assert_eq!(
        error,
        format!(
            "cannot load artifacts in {}: the file is not an artifact: its first line does not end",
            artifact.display()
        )
    );
    fs::write(artifact.join("0"), "not JSON\n").unwrap();
    let error = artifacts.load(&session(), "a", None).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot load artifacts in {}: ", artifact.display())), "{error}");
}

#[tokio::test]
async fn a_directory_that_cannot_be_created_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let error = DirectoryArtifacts::open(&file).await.err().unwrap().to_string();
    assert!(error.starts_with(&format!("cannot open artifacts in {}: ", file.display())), "{error}");
}

#[tokio::test]
async fn folders_of_users_whose_ids_differ_only_by_case_differ_by_more() {
    let folder = tempfile::tempdir().unwrap();
    let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
    let keys = ["ann", "Ann", "ANN"].map(|user| SessionKey::new("App", user, "S1"));
    for key in &keys {
        artifacts.save(key, "Note", &Part::text(&*key.user)).await.unwrap();
        artifacts.save(key, "user:Note", &Part::text(&*key.user)).await.unwrap();
    }
    let folded: std::collections::BTreeSet<_> =
        files_below(folder.path()).iter().map(|path| path.to_string_lossy().to_lowercase()).collect();
    assert_eq!(folded.len(), 6, "{folded:?}");
    for key in &keys {
        assert_eq!(artifacts.load(key, "Note", None).await.unwrap(), Some(Part::text(&*key.user)));
        assert_eq!(artifacts.list(key).await.unwrap(), ["Note", "user:Note"]);
    }
}

#[tokio::test]
async fn artifacts_of_the_previous_layout_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let text = "{\"text\":\"old\"}\n";
    let long = "S".repeat(100);
    let in_long = format!("My%20App/ann/sessions/{long}/y");
    let short = ["My%20App/Ann/sessions/S1/Report.TXT", "My%20App/Ann/user/Notes", "My%20App/ann/sessions/s1/x"];
    for path in short.into_iter().chain([in_long.as_str()]) {
        fs::create_dir_all(folder.path().join(path)).unwrap();
        fs::write(folder.path().join(path).join("0"), text).unwrap();
    }
    fs::create_dir_all(folder.path().join("Not%a%name/User")).unwrap();
    for _ in 0..2 {
        let artifacts = DirectoryArtifacts::open(folder.path()).await.unwrap();
        let key = SessionKey::new("My App", "Ann", "S1");
        assert_eq!(artifacts.list(&key).await.unwrap(), ["Report.TXT", "user:Notes"]);
        assert_eq!(artifacts.load(&key, "Report.TXT", None).await.unwrap(), Some(Part::text("old")));
        let other = SessionKey::new("My App", "ann", "s1");
        assert_eq!(artifacts.load(&other, "x", None).await.unwrap(), Some(Part::text("old")));
        let long = SessionKey::new("My App", "ann", long.as_str());
        assert_eq!(artifacts.load(&long, "y", None).await.unwrap(), Some(Part::text("old")));
        assert_eq!(artifacts.usage(&other).await.unwrap().user_versions, 2);
    }
    assert!(folder.path().join("%4Dy%20%41pp/%41nn/sessions/%531/%52eport.%54%58%54/0").is_file());
    assert!(folder.path().join("Not%a%name/User").is_dir());
}

#[cfg(unix)]
#[tokio::test]
async fn created_files_and_folders_are_accessible_to_the_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let root = folder.path().join("artifacts");
    let artifacts = DirectoryArtifacts::open(&root).await.unwrap();
    artifacts.save(&session(), "a", &Part::text("x")).await.unwrap();
    assert_eq!((mode(folder.path()), mode(&root), mode(&root.join(".unfinished"))), (0o755, 0o700, 0o700));
    for path in ["app", "app/ann", "app/ann/sessions/s1/a"] {
        assert_eq!(mode(&root.join(path)), 0o700, "{path}");
    }
    for path in [".layout", "app/ann/sessions/s1/a/0"] {
        assert_eq!(mode(&root.join(path)), 0o600, "{path}");
    }
}
