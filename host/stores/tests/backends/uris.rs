//! Services by URI.

use hatchery_core::{EventWindow, JsonMap, Part, SessionKey, StoreError};
use hatchery_stores::{open_artifacts, open_memory, open_sessions};

const SESSIONS: &str = "a session service is one of `memory:`, `sqlite:///absolute/path.db`, `sqlite:relative/path.db`, \
     `postgres://user@host/database`, `firestore://project/database` and `agentengine://project/location/engine`";
const ARTIFACTS: &str = "an artifact service is one of `memory:`, `file:///absolute/folder`, `file:relative/folder`, \
     `s3://bucket/prefix`, `gs://bucket/prefix` and `az://container/prefix`";
const MEMORY: &str = "a memory service is one of `memory:`, `sqlite:///absolute/path.db`, `sqlite:relative/path.db`, \
     `postgres://user@host/database`, `firestore://project/database` and `agentengine://project/location/engine`";

fn message<T>(result: Result<T, StoreError>) -> String {
    let Err(error @ StoreError::InvalidName { .. }) = result else { panic!("this should be an invalid name") };
    error.to_string()
}

#[tokio::test]
async fn services_are_opened_by_uri() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display();
    let key = SessionKey::new("app", "ann", "s1");
    for uri in [
        "memory:".to_owned(),
        "memory".to_owned(),
        format!("sqlite://{path}/a b%20c.db"),
        format!("sqlite:{path}/d.db"),
    ] {
        let sessions = open_sessions(&uri).await.unwrap();
        sessions.create("app", "ann", Some("s1"), JsonMap::new()).await.unwrap();
        assert!(sessions.get(&key, EventWindow::All).await.unwrap().is_some(), "{uri}");
    }
    assert!(folder.path().join("a b%20c.db").exists() && folder.path().join("d.db").exists());

    for uri in ["memory:".to_owned(), format!("file://{path}/artifacts"), format!("file:{path}/artifacts2")] {
        let artifacts = open_artifacts(&uri).await.unwrap();
        assert_eq!(artifacts.save(&key, "a", &Part::text("x")).await.unwrap(), 0, "{uri}");
    }
    assert!(folder.path().join("artifacts/app").exists() && folder.path().join("artifacts2/app").exists());

    for uri in ["memory:".to_owned(), format!("sqlite://{path}/memory.db"), format!("sqlite:{path}/memory2.db")] {
        assert!(open_memory(&uri).await.unwrap().search("app", "ann", "x").await.unwrap().is_empty(), "{uri}");
    }
    assert!(folder.path().join("memory.db").exists() && folder.path().join("memory2.db").exists());
}

#[tokio::test]
async fn a_relative_path_starts_at_the_current_directory() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let relative = folder.path().strip_prefix(std::env::current_dir().unwrap()).unwrap();
    open_sessions(&format!("sqlite:{}/sessions.db", relative.display())).await.unwrap();
    open_artifacts(&format!("file:{}/artifacts", relative.display())).await.unwrap();
    assert!(folder.path().join("sessions.db").exists() && folder.path().join("artifacts").exists());
}

#[tokio::test]
async fn an_unknown_uri_is_an_error_that_lists_the_valid_ones() {
    for uri in [
        "",
        "redis",
        "/sessions.db",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite://sessions.db",
        "sqlite::memory:",
        "memory:x",
        "file:///sessions",
    ] {
        assert_eq!(message(open_sessions(uri).await), format!("invalid name `{uri}`: {SESSIONS}"));
    }
    for uri in ["s3", "file:", "file://", "file://host", "memory://", "sqlite:///a.db"] {
        assert_eq!(message(open_artifacts(uri).await), format!("invalid name `{uri}`: {ARTIFACTS}"));
    }
    for (uri, shown) in [("s3:bucket", "s3:…"), ("gs:", "gs:"), ("az:/container", "az:…")] {
        assert_eq!(message(open_artifacts(uri).await), format!("invalid name `{shown}`: {ARTIFACTS}"));
    }
    for uri in ["", "sqlite:", "file:a"] {
        assert_eq!(message(open_memory(uri).await), format!("invalid name `{uri}`: {MEMORY}"));
    }
}

#[tokio::test]
async fn a_firestore_service_needs_a_client() {
    let message = |service: &str| {
        format!(
            "a Firestore service needs a client with access tokens: create it with `{service}::new`, or open the URI with \
             the crate `hatchery`"
        )
    };
    let error = open_sessions("firestore://project").await.err().unwrap().to_string();
    assert_eq!(error, message("FirestoreSessionService"));
    let error = open_memory("firestore://project/database").await.err().unwrap().to_string();
    assert_eq!(error, message("FirestoreMemoryService"));
}

#[tokio::test]
async fn agent_engine_needs_access_tokens() {
    let message = |service: &str| {
        format!(
            "Agent Engine needs access tokens: create the service with `{service}::open`, or open the URI with the crate \
             `hatchery`"
        )
    };
    let error = open_sessions("agentengine://p/l/7").await.err().unwrap().to_string();
    assert_eq!(error, message("AgentEngineSessions"));
    let error = open_memory("agentengine://p/l/7").await.err().unwrap().to_string();
    assert_eq!(error, message("AgentEngineMemory"));
}

#[cfg(feature = "object-store")]
#[tokio::test]
async fn a_bucket_has_a_name_and_a_prefix_of_segments() {
    for uri in ["s3://", "s3:///prefix", "gs://bucket//prefix", "az://container/../other", "s3://key:secret@bucket"] {
        let scheme = uri.split(':').next().unwrap();
        assert_eq!(message(open_artifacts(uri).await), format!("invalid name `{scheme}:…`: {ARTIFACTS}"));
    }
}

#[cfg(not(feature = "object-store"))]
#[tokio::test]
async fn an_object_store_without_its_feature_is_an_error_that_names_it() {
    for scheme in ["s3", "gs", "az"] {
        let error = open_artifacts(&format!("{scheme}://bucket/prefix")).await.err().unwrap();
        let expected = format!(
            "artifacts in `{scheme}:` need the cargo feature `object-store`, which this program was built without; build it \
             with `--features object-store`, or use `file:`"
        );
        assert_eq!(error.to_string(), expected);
    }
}

#[tokio::test]
async fn a_password_in_a_uri_is_not_repeated() {
    let error = message(open_sessions("mysql://ann:secret@host/db").await);
    assert_eq!(error, format!("invalid name `mysql:…`: {SESSIONS}"));
}
