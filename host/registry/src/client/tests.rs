//! Tests against malicious registries: listeners on this machine that respond by a function and record the requests.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::folder::{Change, ComponentFolder, PullMode};
use crate::lock::Lockfile;
use crate::signature::SignatureVerifier;

/// The base64 of `ada:hunter2`.
const LOGIN: &str = "YWRhOmh1bnRlcjI=";

/// A component without content.
const COMPONENT: &str = "\0asm\r\0\x01\0";

/// The response of a fake registry to the head of a request.
enum Reply {
    Text(String),
    /// A body of this many zeros, sent until the client stops reading.
    Zeros(u64),
}

struct FakeRegistry {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    /// The number of zeros that have been sent.
    sent: Arc<Mutex<u64>>,
}

impl FakeRegistry {
    async fn start(reply: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, sent): (Arc<Mutex<Vec<String>>>, Arc<Mutex<u64>>) = Default::default();
        let fake = Self { address, heads: heads.clone(), sent: sent.clone() };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = read_request(&mut stream).await;
                let number = {
                    let mut heads = heads.lock().unwrap();
                    heads.push(head.clone());
                    heads.len()
                };
                match reply(&head, number) {
                    Reply::Text(text) => stream.write_all(text.as_bytes()).await.unwrap_or_default(),
                    Reply::Zeros(length) => {
                        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                        stream.write_all(head.as_bytes()).await.unwrap_or_default();
                        while *sent.lock().unwrap() < length && stream.write_all(&[0; 1 << 16]).await.is_ok() {
                            *sent.lock().unwrap() += 1 << 16;
                        }
                    }
                }
            }
        });
        fake
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    fn reference(&self) -> Reference {
        format!("{}/team/x:1.0", self.address).parse().unwrap()
    }

    /// Returns a client with a login for this registry.
    fn client(&self) -> RegistryClient {
        let login = Credentials::with_login(&self.address.to_string(), "ada", "hunter2");
        RegistryClient::new(login, false, Arc::new(|_| ()))
    }
}

/// Reads a request and returns its head in lower case.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let _ = stream.read_exact(&mut vec![0; length]).await;
    head
}

fn response(status: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Text(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"))
}

fn token_challenge(realm: &str) -> Reply {
    let header = format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"tests\"\r\n");
    response("401 Unauthorized", &header, "")
}

fn has_login(head: &str) -> bool {
    head.contains("authorization: basic")
}

async fn error_of(fake: &FakeRegistry) -> String {
    fake.client().resolve(&fake.reference()).await.map(|_| ()).unwrap_err().to_string()
}

#[tokio::test]
async fn a_login_is_not_sent_over_plain_http_to_another_host() {
    // This address leads to this machine, but is not a loopback address.
    let attacker = FakeRegistry::start(|_, _| response("200 OK", "", r#"{"token": "t"}"#)).await;
    let realm = format!("http://0.0.0.0:{}/token", attacker.address.port());
    let challenge_realm = realm.clone();
    let fake = FakeRegistry::start(move |_, _| token_challenge(&challenge_realm)).await;
    assert_eq!(
        error_of(&fake).await,
        format!(
            "the registry {} requests its login at {realm}, over plain HTTP: the login is not sent; ask its operator for a token \
             service over HTTPS",
            fake.address
        )
    );
    assert!(attacker.heads().is_empty() && !fake.heads().iter().any(|head| has_login(head)));
}

#[tokio::test]
async fn a_token_service_on_this_machine_receives_the_login_and_the_registry_the_token() {
    let service = FakeRegistry::start(|_, _| response("200 OK", "", r#"{"token": "a-token"}"#)).await;
    let realm = format!("http://{}/token?x=1", service.address);
    let fake = FakeRegistry::start(move |head, _| {
        if head.contains("/manifests/") { response("404 Not Found", "", "") } else { token_challenge(&realm) }
    })
    .await;
    assert!(error_of(&fake).await.starts_with("the registry has no "), "the manifest is not there");
    let requests = service.heads();
    assert!(
        requests[0].starts_with("get /token?x=1&scope=repository%3ateam%2fx%3apull&service=tests "),
        "{requests:?}"
    );
    assert!(requests[0].contains(&format!("authorization: basic {}", LOGIN.to_lowercase())), "{requests:?}");
    let heads = fake.heads();
    assert!(heads.iter().all(|head| !has_login(head)), "{heads:?}");
    assert!(heads[1].contains("authorization: bearer a-token"), "{heads:?}");
}

#[tokio::test]
async fn a_registry_that_changes_its_challenge_does_not_get_the_login_elsewhere() {
    let attacker = FakeRegistry::start(|_, _| response("200 OK", "", r#"{"token": "t"}"#)).await;
    let realm = format!("http://{}/token", attacker.address);
    let fake = FakeRegistry::start(move |_, number| match number {
        1 => response("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", ""),
        _ => token_challenge(&realm),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.wasm");
    std::fs::write(&file, wat::parse_str("(component)").unwrap()).unwrap();
    let error = fake.client().push(&file, &fake.reference(), None).await.unwrap_err().to_string();
    assert!(error.contains("denies `ada` access to"), "{error}");
    assert!(!attacker.heads().iter().any(|head| has_login(head)), "{:?}", attacker.heads());
}

/// Starts a registry that requires a login for everything except its version.
async fn start_with_late_challenge(challenge: impl Fn() -> Reply + Send + Sync + 'static) -> FakeRegistry {
    FakeRegistry::start(move |head, _| {
        if head.starts_with("get /v2/ ") {
            response("200 OK", "", "{}")
        } else if !head.contains("authorization: ") {
            challenge()
        } else if head.starts_with("post ") || head.starts_with("patch ") {
            response("202 Accepted", "Location: /v2/team/x/blobs/uploads/1\r\n", "")
        } else if head.starts_with("put ") {
            response("201 Created", "Location: /v2/team/x/blobs/1\r\n", "")
        } else {
            response("404 Not Found", "", "")
        }
    })
    .await
}

#[tokio::test]
async fn a_registry_that_requires_the_login_only_for_its_content_receives_it() {
    let service = FakeRegistry::start(|_, _| response("200 OK", "", r#"{"token": "a-token"}"#)).await;
    let realm = format!("http://{}/token", service.address);
    let with_token = start_with_late_challenge(move || token_challenge(&realm)).await;
    let basic = || response("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", "");
    let with_login = start_with_late_challenge(basic).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.wasm");
    std::fs::write(&file, COMPONENT).unwrap();
    for fake in [&with_token, &with_login] {
        let error = error_of(fake).await;
        assert!(error.starts_with("the registry has no "), "the manifest is not there: {error}");
        fake.client().push(&file, &fake.reference(), None).await.unwrap();
    }
    assert!(with_token.heads().iter().all(|head| !has_login(head)), "{:?}", with_token.heads());
    assert!(service.heads().iter().all(|head| has_login(head)), "{:?}", service.heads());
}

#[tokio::test]
async fn a_server_to_which_the_registry_redirects_does_not_get_the_login() {
    let attacker = FakeRegistry::start(|_, _| response("200 OK", "", r#"{"token": "t"}"#)).await;
    let realm = format!("http://{}/token", attacker.address);
    let content = FakeRegistry::start(move |_, _| token_challenge(&realm)).await;
    let elsewhere = content.address;
    let fake = FakeRegistry::start(move |head, _| {
        if head.contains("/manifests/") {
            response("307 Temporary Redirect", &format!("Location: http://{elsewhere}/x\r\n"), "")
        } else {
            response("200 OK", "", "{}")
        }
    })
    .await;
    assert!(error_of(&fake).await.contains("denies `ada` access to"));
    assert!(attacker.heads().is_empty() && !content.heads().is_empty());
}

#[tokio::test]
async fn an_upload_that_only_asks_for_the_login_is_cancelled() {
    let fake = FakeRegistry::start(|head, _| {
        if head.starts_with("post ") {
            response("202 Accepted", "Location: /v2/team/x/blobs/uploads/1\r\n", "")
        } else {
            response("404 Not Found", "", "")
        }
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.wasm");
    std::fs::write(&file, COMPONENT).unwrap();
    fake.client().push(&file, &fake.reference(), None).await.unwrap_err();
    let heads = fake.heads();
    assert!(heads.iter().any(|head| head.starts_with("delete /v2/team/x/blobs/uploads/1 ")), "{heads:?}");
}

#[tokio::test]
async fn a_manifest_is_read_up_to_a_limit() {
    const DECLARED: u64 = 300 << 20;
    let fake = FakeRegistry::start(|head, _| {
        if head.contains("/manifests/") { Reply::Zeros(DECLARED) } else { response("200 OK", "", "{}") }
    })
    .await;
    let reference = fake.reference();
    assert_eq!(
        error_of(&fake).await,
        format!(
            "the manifest of {reference} has more than 4194304 bytes; it is not the manifest of a component; check the name"
        )
    );
    assert!(*fake.sent.lock().unwrap() < DECLARED, "all of it was read");
}

#[tokio::test]
async fn an_error_response_is_read_up_to_a_limit() {
    let fake = FakeRegistry::start(|head, _| {
        if head.contains("/manifests/") {
            response("500 Oh", "", r#"{"errors": [{"code": "UNKNOWN", "message": "out of paper"}]}"#)
        } else {
            response("200 OK", "", "{}")
        }
    })
    .await;
    let message = error_of(&fake).await;
    assert_eq!(message, format!("the registry does not serve {}: status 500: out of paper", fake.reference()));
    let fake = FakeRegistry::start(|head, _| {
        if head.contains("/manifests/") {
            response("500 Oh", "", &"x".repeat(1 << 20))
        } else {
            response("200 OK", "", "{}")
        }
    })
    .await;
    assert_eq!(error_of(&fake).await, format!("the registry does not serve {}: status 500", fake.reference()));
}

/// Starts a registry that has [`COMPONENT`] under every name, and calls `on_download` before it sends it.
async fn start_with_component(on_download: impl Fn() + Send + Sync + 'static) -> FakeRegistry {
    let artifact = Artifact::new(&Interfaces::default(), Bytes::from_static(COMPONENT.as_bytes()), None).unwrap();
    let manifest = serde_json::to_string(&artifact.manifest).unwrap();
    FakeRegistry::start(move |head, _| {
        if head.contains("/blobs/") {
            on_download();
            response("200 OK", "", COMPONENT)
        } else {
            let is_manifest = head.contains("/manifests/");
            response("200 OK", "", if is_manifest { manifest.as_str() } else { "{}" })
        }
    })
    .await
}

fn folder_of(folder: &tempfile::TempDir, fake: &FakeRegistry) -> ComponentFolder {
    ComponentFolder::new(folder.path().to_owned(), fake.client(), SignatureVerifier::default())
}

/// Returns a lockfile with a component of this name from another registry.
fn lockfile_with(name: &str) -> String {
    let digest = Digest::compute(b"");
    format!(
        "version: 1\ncomponents:\n  {name}:\n    reference: localhost/other:1\n    manifest: {digest}\n    file: {digest}\n"
    )
}

#[tokio::test]
async fn a_component_that_another_pull_adds_meanwhile_stays_in_the_lockfile() {
    let folder = tempfile::tempdir().unwrap();
    let lockfile = folder.path().join("hatchery.lock");
    let written = lockfile.clone();
    let fake = start_with_component(move || std::fs::write(&written, lockfile_with("other")).unwrap()).await;
    folder_of(&folder, &fake).add(&fake.reference(), None, PullMode::Add).await.unwrap();
    let lock = std::fs::read_to_string(lockfile).unwrap();
    assert!(lock.contains("\n  other:\n") && lock.contains("\n  x:\n"), "{lock}");
}

#[tokio::test]
async fn concurrent_pulls_of_other_names_are_all_in_the_lockfile() {
    let folder = tempfile::tempdir().unwrap();
    let fake = start_with_component(|| ()).await;
    let (components, reference) = (folder_of(&folder, &fake), fake.reference());
    let names: Vec<_> = (0..16).map(|number| format!("x{number}")).collect();
    let pulls = names.iter().map(|name| components.add(&reference, Some(name), PullMode::Add));
    for pulled in futures::future::join_all(pulls).await {
        pulled.unwrap();
    }
    assert_eq!(Lockfile::read(folder.path()).await.unwrap().components.len(), names.len());
}

#[tokio::test]
async fn a_component_that_another_pull_adds_meanwhile_under_the_same_name_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (file, lockfile) = (folder.path().join("x.wasm"), folder.path().join("hatchery.lock"));
    let written = (file.clone(), lockfile.clone());
    let fake = start_with_component(move || {
        std::fs::write(&written.0, "other").unwrap();
        std::fs::write(&written.1, lockfile_with("x")).unwrap();
    })
    .await;
    for mode in [PullMode::Add, PullMode::Update] {
        for file in [&file, &lockfile] {
            let _ = std::fs::remove_file(file);
        }
        let error = folder_of(&folder, &fake).add(&fake.reference(), None, mode).await.unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "{}: another pull has changed component `x` at the same time, and its files are kept; pull again",
                lockfile.display()
            )
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "other");
        assert_eq!(std::fs::read_to_string(&lockfile).unwrap(), lockfile_with("x"));
    }
}

#[tokio::test]
async fn the_same_component_can_be_pulled_twice_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let fake = start_with_component(|| ()).await;
    let (components, reference) = (folder_of(&folder, &fake), fake.reference());
    let pull = || components.add(&reference, None, PullMode::Update);
    let (first, second) = futures::join!(pull(), pull());
    assert_eq!(first.unwrap().digest, second.unwrap().digest);
}

#[tokio::test]
async fn a_file_that_appears_during_a_pull_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.wasm");
    let written = file.clone();
    let fake = start_with_component(move || std::fs::write(&written, "mine").unwrap()).await;
    let pulled = folder_of(&folder, &fake).add(&fake.reference(), None, PullMode::Add).await;
    assert!(matches!(pulled, Err(RegistryError::FileExists { path }) if path == file));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[tokio::test]
async fn a_pull_that_was_killed_before_it_wrote_the_lockfile_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.wasm"), COMPONENT).unwrap();
    let fake = start_with_component(|| panic!("nothing is downloaded again")).await;
    let pulled = folder_of(&folder, &fake).add(&fake.reference(), None, PullMode::Add).await.unwrap();
    assert_eq!(pulled.change, Change::Added);
    assert!(Lockfile::read(folder.path()).await.unwrap().components.contains_key("x"));
}

#[tokio::test]
async fn a_download_that_ends_early_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let artifact = Artifact::new(&Interfaces::default(), Bytes::from_static(COMPONENT.as_bytes()), None).unwrap();
    let manifest = serde_json::to_string(&artifact.manifest).unwrap();
    let half = COMPONENT.get(..4).unwrap();
    let fake = FakeRegistry::start(move |head, _| {
        if head.contains("/blobs/") {
            let length = COMPONENT.len();
            Reply::Text(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{half}"))
        } else if head.contains("/manifests/") {
            response("200 OK", "", &manifest)
        } else {
            response("200 OK", "", "{}")
        }
    })
    .await;
    let error = folder_of(&folder, &fake).add(&fake.reference(), None, PullMode::Add).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("the registry {} cannot be reached: ", fake.address)), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
