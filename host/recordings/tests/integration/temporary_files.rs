//! Temporary files, which processes leave that are killed while they write a recording.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hatchery_models::scripted::Scripted;
use hatchery_recordings::{FILE_NAME, Recorder};

use crate::support::*;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Returns the name of a file that a process writes.
fn temporary(process: u32) -> String {
    format!(".{FILE_NAME}.{process}-0.tmp")
}

/// Creates a file, and the folders above it, that was last written this long ago.
fn write_before(age: Duration, file: &Path) -> File {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, "half").unwrap();
    let file = File::options().write(true).open(file).unwrap();
    file.set_modified(SystemTime::now() - age).unwrap();
    file
}

#[tokio::test]
async fn a_file_of_a_killed_process_is_removed_a_day_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    write_before(25 * HOUR, &path(&temporary(1)));
    write_before(23 * HOUR, &path(&temporary(2)));
    // Its writer still exists.
    let written = write_before(25 * HOUR, &path(&temporary(3)));
    written.lock().unwrap();
    write_before(25 * HOUR, &path("notes.tmp"));
    write_before(25 * HOUR, &path("below").join(temporary(1)));
    let app = recording(&folder, llm("root", Scripted::new().default_reply("hello"))).await;
    assert!(path(&temporary(1)).exists(), "a recorder that records nothing removes nothing");
    app.run("hi").await;
    assert!(!path(&temporary(1)).exists());
    assert!(path(&temporary(2)).exists(), "it is not a day old");
    assert!(path(&temporary(3)).exists(), "a process writes it");
    assert!(path("notes.tmp").exists(), "it is no recording");
    assert!(path("below").join(temporary(1)).exists(), "this recorder writes only into the folder itself");
    assert_eq!(read_recording(folder.path()).user_messages.len(), 1);
}

#[tokio::test]
async fn a_recorder_of_all_sessions_removes_what_was_left_in_their_folders() {
    let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let left = folder.path().join("app/bob/s9").join(temporary(1));
    let foreign = elsewhere.path().join(temporary(1));
    for file in [&left, &foreign] {
        write_before(25 * HOUR, file);
    }
    #[cfg(unix)]
    std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("app/link")).unwrap();
    let recorder = Arc::new(Recorder::all_sessions(folder.path()));
    let app = with_plugins(Harness::new(llm("root", Scripted::new().default_reply("hello"))).await, vec![recorder]);
    app.run("hi").await;
    assert!(!left.exists());
    assert!(foreign.exists(), "a link leads out of the folder");
    assert_eq!(read_recording(&folder.path().join("app").join(USER).join(SESSION)).user_messages.len(), 1);
}
