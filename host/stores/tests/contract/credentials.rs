//! The contract of credential services, and what a directory with credentials shows.

use hatchery_core::{CredentialId, CredentialService, SessionKey};
use hatchery_stores::{DirectoryCredentials, MemoryCredentials};
use serde_json::json;

fn id(user: &str, key: &str) -> CredentialId {
    CredentialId::for_user(&SessionKey::new("app", user, "session"), key)
}

#[tokio::test]
async fn a_credential_belongs_to_one_user_and_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let directory = DirectoryCredentials::new(folder.path().join("credentials"), [1; 32]);
    let services: [&dyn CredentialService; 2] = [&MemoryCredentials::default(), &directory];
    for service in services {
        assert_eq!(service.load(&id("ada", "shop")).await.unwrap(), None);
        service.delete(&id("ada", "shop")).await.unwrap();
        service.save(&id("ada", "shop"), &json!({"token": "first"})).await.unwrap();
        service.save(&id("ada", "shop"), &json!({"token": "second"})).await.unwrap();
        assert_eq!(service.load(&id("ada", "shop")).await.unwrap(), Some(json!({"token": "second"})));
        for other in [id("bob", "shop"), id("ada", "bank"), id("adas", "hop"), CredentialId::for_host("shop")] {
            assert_eq!(service.load(&other).await.unwrap(), None, "{other}");
        }
        service.delete(&id("ada", "shop")).await.unwrap();
        assert_eq!(service.load(&id("ada", "shop")).await.unwrap(), None);
    }
}

#[tokio::test]
async fn files_with_credentials_are_private_and_show_neither_values_nor_names() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("credentials");
    let service = DirectoryCredentials::new(&root, [1; 32]);
    service.save(&id("ada", "shop"), &json!({"token": "s3cret-value"})).await.unwrap();
    let files: Vec<_> = std::fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    let bytes = std::fs::read(file).unwrap();
    for text in ["s3cret-value", "token", "ada", "shop"] {
        assert!(!bytes.windows(text.len()).any(|window| window == text.as_bytes()), "{text}");
        assert!(!file.file_name().unwrap().to_string_lossy().contains(text), "{text}");
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(root.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[tokio::test]
async fn a_credential_of_another_key_or_another_user_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let service = |key: u8| DirectoryCredentials::new(folder.path(), [key; 32]);
    service(1).save(&id("ada", "shop"), &json!("ada's")).await.unwrap();
    let ada = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    assert_eq!(service(2).load(&id("ada", "shop")).await.unwrap(), None);
    service(1).save(&id("bob", "shop"), &json!("bob's")).await.unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let bob = files.into_iter().find(|file| *file != ada).unwrap();
    std::fs::copy(&ada, &bob).unwrap();
    assert_eq!(service(1).load(&id("bob", "shop")).await.unwrap(), None);
    assert_eq!(service(1).load(&id("ada", "shop")).await.unwrap(), Some(json!("ada's")));
}
