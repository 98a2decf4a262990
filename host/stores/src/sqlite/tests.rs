//! Tests of the writer and its queue.

use std::sync::mpsc;

use futures::future::join_all;
use rusqlite::params;

use super::*;

static SCHEMA: Schema = Schema {
    noun: "test database",
    application_id: 7,
    migrations: &["CREATE TABLE rows (name TEXT UNIQUE) STRICT; PRAGMA application_id = 7; PRAGMA user_version = 1"],
};

const ANN: Owner<'_> = Owner { app: "app", user: "ann" };
const BOB: Owner<'_> = Owner { app: "app", user: "bob" };

async fn open(folder: &tempfile::TempDir) -> Arc<Database> {
    Arc::new(Database::open(&folder.path().join("test.db"), &SCHEMA, Durability::Process).await.unwrap())
}

fn insert(connection: &Connection, name: &str) -> rusqlite::Result<usize> {
    connection.prepare_cached("INSERT INTO rows VALUES (?1)")?.execute(params![name])
}

async fn names(database: &Database) -> Vec<String> {
    let names = database.read(|connection| {
        let mut select = connection.prepare_cached("SELECT name FROM rows ORDER BY rowid")?;
        select.query_map([], |row| row.get(0))?.collect()
    });
    names.await.unwrap()
}

/// Occupies the writing thread until the sender is dropped or used.
async fn occupy(database: &Arc<Database>) -> mpsc::Sender<()> {
    let (release, released) = mpsc::channel();
    let (begin_sender, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let released = std::sync::Mutex::new(released);
    let database = database.clone();
    tokio::spawn(async move {
        let wait = move |_: &Connection| {
            begin_sender.send(()).unwrap();
            let _ = released.lock().unwrap().recv();
            Ok(())
        };
        database.write(Owner { app: "app", user: "nobody" }, wait).await.unwrap();
    });
    has_begun.recv().await.unwrap();
    release
}

#[tokio::test]
async fn connections_have_the_documented_settings() {
    // 1 is NORMAL: the log is synchronised at checkpoints. 2 is FULL: it is synchronised by every commit.
    for (durability, synchronous) in [(Durability::Process, 1), (Durability::Power, 2)] {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&folder.path().join("test.db"), &SCHEMA, durability).await.unwrap();
        let settings = |connection: &Connection| {
            let settings = "SELECT journal_mode, synchronous, timeout, foreign_keys, page_size FROM \
                pragma_journal_mode, pragma_synchronous, pragma_busy_timeout, pragma_foreign_keys, pragma_page_size";
            connection.query_row(settings, [], |row| {
                Ok((row.get::<_, String>(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
            })
        };
        let (mode, written, timeout, keys, page): (_, i64, i64, bool, u32) =
            database.write(ANN, settings).await.unwrap();
        assert_eq!((mode.as_str(), written, timeout, keys, page), ("wal", synchronous, 5000, true, schema::PAGE_BYTES));
        let (mode, _, timeout, keys, _): (_, i64, i64, bool, u32) = database.read(settings).await.unwrap();
        assert_eq!((mode.as_str(), timeout, keys), ("wal", 5000, true));
        let refused = database.read(|connection| insert(connection, "a")).await.unwrap_err();
        assert!(matches!(&refused, Failure::Sqlite(error) if error.to_string().contains("readonly")), "{refused:?}");
    }
}

#[tokio::test]
async fn writes_that_wait_share_a_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let release = occupy(&database).await;
    let other = database.clone();
    let write = async |name: &'static str| {
        let visible = other.write(ANN, move |connection| {
            insert(connection, name)?;
            connection.query_row("SELECT count(*) FROM rows", [], |row| row.get::<_, i64>(0))
        });
        let visible = visible.await.unwrap();
        (visible, names(&other).await.len())
    };
    let released = async {
        tokio::task::yield_now().await;
        drop(release);
    };
    let (first, second, ()) = futures::join!(write("a"), write("b"), released);
    // The first was answered only once the second was stored too.
    assert_eq!((first, second), ((1, 2), (2, 2)));
}

#[tokio::test]
async fn a_write_that_fails_leaves_the_others_of_its_group_alone() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let release = occupy(&database).await;
    let insert = async |names: &'static [&'static str]| {
        let insert =
            move |connection: &Connection| names.iter().try_for_each(|name| insert(connection, name).map(drop));
        database.write(ANN, insert).await
    };
    let released = async {
        tokio::task::yield_now().await;
        drop(release);
    };
    let (first, twice, last, ()) = futures::join!(insert(&["a"]), insert(&["b", "b"]), insert(&["c"]), released);
    first.unwrap();
    last.unwrap();
    assert!(matches!(&twice, Err(Failure::Sqlite(error)) if error.to_string().contains("UNIQUE")), "{twice:?}");
    assert_eq!(names(&database).await, ["a", "c"]);
}

#[tokio::test]
async fn a_write_that_panics_fails_alone() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let panicked = database.write::<()>(ANN, |connection| {
        insert(connection, "a")?;
        panic!("a test")
    });
    assert!(matches!(panicked.await, Err(Failure::Panic)));
    database.write(ANN, |connection| insert(connection, "b")).await.unwrap();
    assert_eq!(names(&database).await, ["b"]);
}

#[tokio::test]
async fn users_that_wait_get_the_writer_in_turn() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let release = occupy(&database).await;
    let write = async |owner: Owner<'static>, name: String| {
        database.write(owner, move |connection| insert(connection, &name)).await.unwrap();
    };
    let flood = join_all((0..4 * writer::MAX_GROUP).map(|number| write(ANN, number.to_string())));
    let released = async {
        tokio::task::yield_now().await;
        drop(release);
    };
    // All writes of the flood are requested before the write of the other user.
    futures::join!(flood, write(BOB, "bob".into()), released);
    let names = names(&database).await;
    let position = names.iter().position(|name| name == "bob").unwrap();
    assert!(position <= 1, "{position} writes of the flood came first");
    assert_eq!(names.len(), 4 * writer::MAX_GROUP + 1);
}

#[tokio::test]
async fn a_write_that_nobody_waits_for_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let release = occupy(&database).await;
    {
        let abandoned = database.write(ANN, |connection| insert(connection, "a"));
        assert!(futures::poll!(std::pin::pin!(abandoned)).is_pending());
    }
    drop(release);
    database.write(ANN, |connection| insert(connection, "b")).await.unwrap();
    assert_eq!(names(&database).await, ["b"]);
}

#[tokio::test]
async fn a_write_that_waits_too_long_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let release = occupy(&database).await;
    tokio::time::pause();
    let waited = database.write(ANN, |connection| insert(connection, "a")).await;
    assert!(matches!(waited, Err(Failure::Timeout)), "{waited:?}");
    tokio::time::resume();
    drop(release);
    database.write(ANN, |connection| insert(connection, "b")).await.unwrap();
    assert_eq!(names(&database).await, ["b"]);
}

fn insert_later(database: &Database, owner: Owner<'_>, name: String) {
    database.write_later(owner, "insert".into(), move |connection| insert(connection, &name).map(drop));
}

#[tokio::test]
async fn a_deferred_write_is_committed_with_the_next_write_and_made_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let (database, file) = (open(&folder).await, folder.path().join("test.db"));
    insert_later(&database, ANN, "a".into());
    let committed = database.write(ANN, move |connection| {
        insert(connection, "b")?;
        Connection::open(&file)?.query_row("SELECT count(*) FROM rows", [], |row| row.get::<_, i64>(0))
    });
    assert_eq!(committed.await.unwrap(), 0, "it has no transaction of its own");
    assert_eq!(names(&database).await, ["a", "b"]);
}

#[tokio::test]
async fn deferred_writes_are_made_soon_without_another_write() {
    const COUNT: usize = 3 * writer::MAX_GROUP;
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    for round in 1..=2 {
        for number in 0..COUNT {
            insert_later(&database, if number % 2 == 0 { ANN } else { BOB }, format!("{round}-{number}"));
        }
        while names(&database).await.len() < round * COUNT {
            tokio::time::sleep(MAX_DEFERRAL).await;
        }
    }
}

#[tokio::test]
async fn deferred_writes_can_be_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    database.wait_for_deferred(ANN).await.unwrap();
    insert_later(&database, ANN, "a".into());
    database.wait_for_deferred(ANN).await.unwrap();
    assert_eq!(names(&database).await, ["a"]);
}

#[tokio::test]
async fn a_deferred_write_that_fails_leaves_the_others_alone() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    for name in ["a", "a", "b"] {
        insert_later(&database, ANN, name.into());
    }
    database.write(ANN, |connection| insert(connection, "c")).await.unwrap();
    assert_eq!(names(&database).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn deferred_writes_are_made_before_the_database_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    insert_later(&database, ANN, "a".into());
    database.close().await;
    insert_later(&database, ANN, "late".into());
    assert_eq!(names(&*open(&folder).await).await, ["a"]);
}

#[tokio::test]
async fn closing_waits_for_writes_and_moves_the_log_into_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    let release = occupy(&database).await;
    let write = database.write(ANN, |connection| insert(connection, "a"));
    let close = async {
        tokio::task::yield_now().await;
        drop(release);
        database.close().await;
    };
    let (written, ()) = futures::join!(write, close);
    written.unwrap();
    assert!(!folder.path().join("test.db-wal").exists());
    let closed = database.error("test")(database.write(ANN, |_| Ok(())).await.unwrap_err()).to_string();
    assert!(closed.ends_with("test.db: cannot test: it is closed"), "{closed}");
    assert!(matches!(database.read(|_| Ok(())).await, Err(Failure::Closed)));
    assert_eq!(names(&*open(&folder).await).await, ["a"]);
}

#[tokio::test]
async fn a_reader_within_a_transaction_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let database = open(&folder).await;
    for _ in 0..10 {
        database.read(|connection| connection.execute_batch("BEGIN; SELECT count(*) FROM rows")).await.unwrap();
    }
    database.write(ANN, |connection| insert(connection, "a")).await.unwrap();
    assert_eq!(names(&database).await, ["a"]);
}
