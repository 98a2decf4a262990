use hatchery_core::{Event, EventData, EventWindow};
use hatchery_models::Service;

use super::*;

#[tokio::test]
async fn sessions_are_stored_in_the_data_folder_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(folder.path().join("data"));
    let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    let session = services.sessions.create("app", "user", None, Default::default()).await.unwrap();
    drop(services);
    let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    assert!(services.sessions.get(&session.key, EventWindow::All).await.unwrap().is_some());
    assert!(folder.path().join("data/sessions.db").is_file());
}

#[cfg(feature = "firestore")]
#[tokio::test]
async fn firestore_services_are_opened_by_uri_and_connect_when_they_are_used() {
    let config = |sessions: &str, memory: &str| Config {
        session_service: Some(sessions.into()),
        memory_service: Some(memory.into()),
        ..Config::default()
    };
    let opened = async |config| open(&config, &Storage::InMemory, &Scripts::default()).await.map(drop);
    opened(config("firestore://p/d", "firestore://p?root=chats")).await.unwrap();
    let error = opened(config("firestore:p", "memory:")).await.unwrap_err().to_string();
    let expected =
        "session_service `firestore:p`: invalid name `firestore:p`: a Firestore service is `firestore://PROJECT`";
    assert!(error.starts_with(expected), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let uri = format!("firestore://p?properties={}/none", folder.path().display());
    let error = opened(config("memory:", &uri)).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("memory_service `{uri}`: cannot read the properties file ")), "{error}");
}

#[cfg(feature = "agent-engine")]
#[tokio::test]
async fn services_in_agent_engine_are_opened_by_uri_and_connect_when_they_are_used() {
    let config = |sessions: &str, memory: &str| Config {
        session_service: Some(sessions.into()),
        memory_service: Some(memory.into()),
        ..Config::default()
    };
    let opened = async |config| open(&config, &Storage::InMemory, &Scripts::default()).await.map(drop);
    opened(config("agentengine://p/l/7", "agentengine://p/l/7")).await.unwrap();
    for (sessions, memory, start) in [
        (
            "agentengine:7",
            "memory:",
            "session_service `agentengine:7`: invalid name `agentengine:…`: a session service is",
        ),
        (
            "memory:",
            "agentengine:7",
            "memory_service `agentengine:7`: invalid name `agentengine:…`: a memory service is",
        ),
    ] {
        let error = opened(config(sessions, memory)).await.unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
}

#[tokio::test]
async fn services_encrypt_with_the_keys_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("data.key");
    std::fs::write(&file, "01".repeat(32)).unwrap();
    let storage = Storage::Directory(folder.path().join("data"));
    let yaml = "encryption: {keys: [{id: k, file: data.key}]}";
    let config = Config::parse(yaml, &folder.path().join("hatchery.yaml")).unwrap();
    let services = open(&config, &storage, &Scripts::default()).await.unwrap();
    let content = Some(Arc::new(hatchery_core::Content::user("a secret")));
    let event = Event::new(EventData { content, ..EventData::default() });
    let key = services.sessions.create("app", "user", None, Default::default()).await.unwrap().key;
    services.sessions.append(&key, &event).await.unwrap();
    let read = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(read.events[0].json(), event.json());
    drop(services);
    let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    let stored = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert!(stored.events[0].content.is_none() && stored.events[0].id == event.id, "{:?}", stored.events[0]);

    std::fs::write(&file, "01").unwrap();
    let error = open(&config, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
    let expected = "encryption: the key `k` is not 64 hexadecimal digits; generate one with `openssl rand -hex 32`";
    assert_eq!(error, expected);
    let refused = Config { memory_service: Some("agentengine://p/l/7".into()), ..config };
    std::fs::write(&file, "01".repeat(32)).unwrap();
    let error = open(&refused, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
    let expected =
        "encryption: Agent Engine has to read the messages that it remembers; choose another `memory_service`";
    assert_eq!(error, expected);
}

#[tokio::test]
async fn an_embedder_finds_messages_with_other_forms_of_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(folder.path().to_owned());
    let config = |yaml: &str| Config::parse(yaml, &folder.path().join("hatchery.yaml")).unwrap();
    let embedder = "memory: {embedder: 'local:hashed-ngrams'}";
    let services = open(&config(embedder), &storage, &Scripts::default()).await.unwrap();
    let key = hatchery_core::SessionKey::new("app", "user", "session");
    let content = Some(Arc::new(hatchery_core::Content::user("She repaired the lamps")));
    let event = Event::new(EventData { content, ..EventData::default() });
    services.memory.add_events(&key, &[event]).await.unwrap();
    let found = async |services: &Services| services.memory.search("app", "user", "repair a lamp").await.unwrap().len();
    assert_eq!(found(&services).await, 1);
    drop(services);
    let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    assert_eq!(found(&services).await, 0);

    std::fs::write(folder.path().join("data.key"), "01".repeat(32)).unwrap();
    for (yaml, expected) in [
        (
            "memory_service: 'firestore://p/d'",
            "memory.embedder: only memory in SQLite and PostgreSQL compares embeddings; remove the key, or choose a `memory_service` \
             such as `sqlite:memory.db`",
        ),
        (
            "encryption: {keys: [{id: k, file: data.key}]}",
            "memory.embedder: an embedding reveals the content of an encrypted message; remove the key, or `encryption`",
        ),
    ] {
        let config = config(&format!("{embedder}\n{yaml}"));
        let error = open(&config, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
    let unknown = config("memory: {embedder: 'local:none'}");
    let error = open(&unknown, &storage, &Scripts::default()).await.map(drop).unwrap_err().to_string();
    assert!(error.starts_with("memory.embedder: ") && error.contains("local:none"), "{error}");
}

#[tokio::test]
async fn the_memory_is_stored_in_the_data_folder_by_default() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(folder.path().join("data"));
    let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    let key = hatchery_core::SessionKey::new("app", "user", "session");
    let content = Some(Arc::new(hatchery_core::Content::user("red apples")));
    let event = Event::new(EventData { content, ..EventData::default() });
    services.memory.add_events(&key, &[event]).await.unwrap();
    drop(services);
    let services = open(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    assert_eq!(services.memory.search("app", "user", "apples").await.unwrap().len(), 1);
    assert!(folder.path().join("data/memory.db").is_file());
}

#[tokio::test]
async fn services_that_are_opened_for_what_they_have_stored_create_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Directory(folder.path().join("agents/.hatchery"));
    let opened = open_stored(&Config::default(), &storage, &Scripts::default()).await.unwrap();
    assert!(opened.is_none());

    let uri = format!("sqlite://{}", folder.path().join("sessions.db").display());
    let only_sessions = Config { session_service: Some(uri), ..Config::default() };
    let first = open(&only_sessions, &Storage::InMemory, &Scripts::default()).await.unwrap();
    let session = first.sessions.create("app", "user", None, Default::default()).await.unwrap();
    drop(first);
    let stored = open_stored(&only_sessions, &storage, &Scripts::default()).await.unwrap().expect("sessions");
    assert!(stored.sessions.get(&session.key, EventWindow::All).await.unwrap().is_some());
    assert_eq!(stored.memory.search("app", "user", "apples").await.unwrap(), []);
    assert!(!folder.path().join("agents").exists());
}

#[tokio::test]
async fn a_new_data_folder_is_ignored_by_git() {
    let folder = tempfile::tempdir().unwrap();
    let created = folder.path().join("agents/.hatchery");
    open(&Config::default(), &Storage::Directory(created.clone()), &Scripts::default()).await.unwrap();
    assert_eq!(std::fs::read_to_string(created.join(".gitignore")).unwrap(), "*\n");
    let existing = Storage::Directory(folder.path().to_owned());
    open(&Config::default(), &existing, &Scripts::default()).await.unwrap();
    assert!(folder.path().join("sessions.db").is_file() && !folder.path().join(".gitignore").exists());
}

#[cfg(unix)]
#[tokio::test]
async fn a_data_folder_is_private_also_if_an_older_version_created_it() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let open_to_all = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let created = folder.path().join(".hatchery");
    for _ in 0..2 {
        open(
            &Config::default(),
            &Storage::Directory(created.clone()),
            &Scripts { directory: folder.path().to_owned(), ..Scripts::default() },
        )
        .await
        .unwrap();
        assert_eq!(mode(&created), 0o700);
        assert_eq!((mode(&created.join("sessions.db")), mode(&created.join("artifacts"))), (0o600, 0o700));
        open_to_all(&created);
    }
    // A folder that no host has created is unchanged.
    open_to_all(folder.path());
    open(
        &Config::default(),
        &Storage::Directory(folder.path().to_owned()),
        &Scripts { directory: folder.path().to_owned(), ..Scripts::default() },
    )
    .await
    .unwrap();
    assert_eq!(mode(folder.path()), 0o755);
}

#[tokio::test]
async fn quotas_of_the_file_apply_to_services() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "quotas: {user_sessions: 1, session_artifacts: 1}";
    let config = Config::parse(yaml, &folder.path().join("hatchery.yaml")).unwrap();
    for storage in [Storage::InMemory, Storage::Directory(folder.path().join("data"))] {
        let services = open(&config, &storage, &Scripts { directory: folder.path().to_owned(), ..Scripts::default() })
            .await
            .unwrap();
        let session = services.sessions.create("app", "user", None, Default::default()).await.unwrap();
        let refused = services.sessions.create("app", "user", None, Default::default()).await.unwrap_err();
        assert_eq!(refused.code(), "QUOTA_EXCEEDED");
        services.artifacts.save(&session.key, "a", &hatchery_core::Part::text("x")).await.unwrap();
        let refused = services.artifacts.save(&session.key, "a", &hatchery_core::Part::text("x")).await;
        assert_eq!(refused.unwrap_err().code(), "QUOTA_EXCEEDED");
    }
}

#[tokio::test]
async fn in_memory_storage_creates_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let services = open(&Config::default(), &Storage::InMemory, &Scripts::default()).await.unwrap();
    services.sessions.create("app", "user", None, Default::default()).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn an_unknown_service_names_its_setting_and_hides_the_password() {
    let config = Config { session_service: Some("oracle://scott:tiger@db/x".into()), ..Config::default() };
    let error = open(&config, &Storage::InMemory, &Scripts::default()).await.map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("session_service `oracle://…@db/x`: "), "{error}");
    assert!(!error.contains("tiger"), "{error}");
    let uri = "postgres://scott:tiger@db/x?schema=s&password=tiger";
    let config = Config { memory_service: Some(uri.into()), ..Config::default() };
    let error = open(&config, &Storage::InMemory, &Scripts::default()).await.map(|_| ()).unwrap_err().to_string();
    let shown =
        "memory_service `postgres://…@db/x?schema=s&password=…`: invalid name `postgres:…`: a PostgreSQL service is";
    assert!(error.starts_with(shown) && !error.contains("tiger"), "{error}");
}

#[test]
fn the_environment_takes_precedence_over_the_file() {
    let env = Settings::default().with_base_url(Service::Gemini, "http://env").with_key(Service::OpenAi, "key");
    let config = configured(Authority::Operator);
    let settings = model_settings(env, &config, &Scripts::in_folder("/srv", &config));
    let expected = Settings::default()
        .with_base_url(Service::Gemini, "http://env")
        .with_base_url(Service::OpenAi, "http://file")
        .with_key(Service::OpenAi, "key");
    assert_eq!(settings.connections, expected.connections);
    assert_eq!(settings.fallbacks["gpt-5"], ["gemini-2.5-flash"]);
    assert_eq!(settings.scripts_dir, Path::new("/srv"));
}

#[test]
fn a_base_url_of_an_untrusted_file_gets_no_key() {
    let settings = model_settings(Settings::default(), &configured(Authority::Folder), &Scripts::default());
    assert_eq!(settings.connections.len(), 2);
    for connection in settings.connections.into_values() {
        assert!(!connection.base_url.unwrap().allows_keys());
    }
}

fn configured(authority: Authority) -> Config {
    let models =
        "{openai_base_url: 'http://file', gemini_base_url: 'http://file', fallback: {gpt-5: [gemini-2.5-flash]}}";
    let config = Config::parse(&format!("models: {models}"), Path::new("hatchery.yaml")).unwrap();
    Config { authority, ..config }
}
