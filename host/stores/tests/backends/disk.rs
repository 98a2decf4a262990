//! A disk that is full, and one that is read-only: a small file system in memory, which only its own process sees.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use hatchery_core::{
    ArtifactService, Content, Event, EventData, EventWindow, JsonMap, MemoryService, Part, SessionService, StoreError,
};
use hatchery_stores::{DirectoryArtifacts, SqliteMemory, SqliteSessions};

/// The folder of the file system, in the process that has it.
const FOLDER: &str = "HATCHERY_STORES_SMALL_DISK";

/// Creates the file system in a folder, and runs a program.
const MOUNT: &str = "mount -t tmpfs -o size=2m,mode=700 tmpfs \"$0\" && exec \"$@\"";

/// Returns the folder of a file system of 2 MB. In the process that runs all tests, runs a test of this file in another
/// one that has the file system, and returns `None`.
fn small_disk(test: &str) -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return Some(folder.into());
    }
    let folder = tempfile::tempdir().unwrap();
    let in_namespace = |program: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", MOUNT]).arg(folder.path()).args(program);
        command.env(FOLDER, folder.path()).stdin(Stdio::null());
        command
    };
    if !in_namespace(&["true"]).output().is_ok_and(|output| output.status.success()) {
        let _ =
            writeln!(std::io::stderr(), "SKIPPED: full and read-only disks: `unshare` cannot mount a file system here");
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let output =
        in_namespace(&[program.to_str().unwrap(), &format!("disk::{test}"), "--exact", "--nocapture"]).output();
    let output = output.unwrap();
    let log = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && log.contains("1 passed"), "{log}");
    None
}

/// Writes a file until the disk is full.
fn fill(file: &Path) {
    let mut file = File::create(file).unwrap();
    for size in [64 * 1024, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

/// Makes the file system read-only, or writable again.
fn remount(folder: &Path, mode: &str) {
    let status = Command::new("mount").args(["-o", &format!("remount,{mode}")]).arg(folder).status().unwrap();
    assert!(status.success(), "{mode}");
}

fn event(words: usize) -> Arc<Event> {
    let content = Some(Arc::new(Content::user((0..words).map(|word| format!("word{word} ")).collect::<String>())));
    Event::new(EventData { author: "user".into(), content, ..EventData::default() })
}

fn error<T>(result: Result<T, StoreError>) -> StoreError {
    result.err().unwrap()
}

fn assert_full<T>(result: Result<T, StoreError>, expected: &str) {
    let error = error(result);
    assert_eq!(error.code(), "STORE_FULL", "{error}");
    let text = error.to_string();
    assert!(text.contains(expected) && text.contains("no space is left"), "{text}");
}

#[tokio::test]
async fn on_a_full_disk_each_write_says_so_and_works_when_there_is_space() {
    let Some(folder) = small_disk("on_a_full_disk_each_write_says_so_and_works_when_there_is_space") else { return };
    let sessions = SqliteSessions::open(folder.join("sessions.db")).await.unwrap();
    let memory = SqliteMemory::open(folder.join("memory.db")).await.unwrap();
    let artifacts = DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap();
    let key = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    sessions.append(&key, &event(1)).await.unwrap();
    memory.add_events(&key, &[event(1)]).await.unwrap();
    artifacts.save(&key, "a.txt", &Part::text("first")).await.unwrap();

    fill(&folder.join("ballast"));
    let large = event(10_000);
    assert_full(sessions.append(&key, &large).await, "sessions.db: cannot append to the session");
    assert_full(memory.add_events(&key, std::slice::from_ref(&large)).await, "memory.db: cannot add to the memory");
    assert_full(artifacts.save(&key, "a.txt", &Part::text("second")).await, "cannot save artifacts in");
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!((session.revision, session.events.len()), (1, 1));
    assert_eq!(memory.search("app", "ann", "word0").await.unwrap().len(), 1);
    assert_eq!(artifacts.versions(&key, "a.txt").await.unwrap(), [0]);
    assert_eq!(artifacts.load(&key, "a.txt", None).await.unwrap().unwrap().as_text(), Some("first"));

    fs::remove_file(folder.join("ballast")).unwrap();
    assert_eq!(sessions.append(&key, &large).await.unwrap(), 2);
    memory.add_events(&key, std::slice::from_ref(&large)).await.unwrap();
    assert_eq!(memory.search("app", "ann", "word9999").await.unwrap().len(), 1);
    assert_eq!(artifacts.save(&key, "a.txt", &Part::text("second")).await.unwrap(), 1);
    sessions.close().await;
    let sessions = SqliteSessions::open(folder.join("sessions.db")).await.unwrap();
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(session.events.iter().map(|event| event.json().len()).max(), Some(large.json().len()));
}

#[tokio::test]
async fn in_a_read_only_folder_files_are_named_and_used_when_they_can_be_written() {
    let test = "in_a_read_only_folder_files_are_named_and_used_when_they_can_be_written";
    let Some(folder) = small_disk(test) else { return };
    let (sessions_file, memory_file) = (folder.join("sessions.db"), folder.join("memory.db"));
    let sessions = SqliteSessions::open(&sessions_file).await.unwrap();
    let key = sessions.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap().key;
    sessions.append(&key, &event(1)).await.unwrap();
    sessions.close().await;
    // It has the file of its lock open, which a read-only file system does not allow.
    drop(sessions);
    let artifacts = DirectoryArtifacts::open(folder.join("artifacts")).await.unwrap();
    artifacts.save(&key, "a.txt", &Part::text("first")).await.unwrap();

    remount(&folder, "ro");
    let text = error(SqliteSessions::open(&sessions_file).await).to_string();
    assert!(text.contains(&format!("session database {}", sessions_file.display())), "{text}");
    let text = error(SqliteMemory::open(&memory_file).await).to_string();
    assert!(text.contains(&format!("memory database {}", memory_file.display())), "{text}");
    let text = error(artifacts.save(&key, "a.txt", &Part::text("second")).await).to_string();
    assert!(text.starts_with("cannot save artifacts in ") && text.contains("Read-only file system"), "{text}");
    assert_eq!(artifacts.load(&key, "a.txt", None).await.unwrap().unwrap().as_text(), Some("first"));

    remount(&folder, "rw");
    let sessions = SqliteSessions::open(&sessions_file).await.unwrap();
    assert_eq!(sessions.append(&key, &event(2)).await.unwrap(), 2);
    SqliteMemory::open(&memory_file).await.unwrap().add_events(&key, &[event(1)]).await.unwrap();
    assert_eq!(artifacts.save(&key, "a.txt", &Part::text("second")).await.unwrap(), 1);
}
