//! Registries that are up to something, each a listener on this machine that answers as a function says and notes what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// The base64 of `ada:hunter2`.
const LOGIN: &str = "YWRhOmh1bnRlcjI=";

/// What a fake registry says to the head of a request.
enum Reply {
    Text(String),
    /// An announced body of zeros, as far as somebody reads it.
    Zeros(u64),
}

struct Fake {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
    /// Bytes of zeros that went out.
    sent: Arc<Mutex<u64>>,
}

impl Fake {
    async fn start(reply: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (heads, sent): (Arc<Mutex<Vec<String>>>, Arc<Mutex<u64>>) = Default::default();
        let fake = Self { address, heads: heads.clone(), sent: sent.clone() };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let head = head(&mut stream).await;
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

    /// Registries of somebody who has a login for this one.
    fn registries(&self) -> Registries {
        let login = Credentials::for_registry(&self.address.to_string(), "ada", "hunter2");
        Registries::new(login, false, Arc::new(|_| ()))
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8_lossy(&head).to_lowercase()
}

fn answer(status: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Text(format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"))
}

fn wants_token(realm: &str) -> Reply {
    let header = format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"tests\"\r\n");
    answer("401 Unauthorized", &header, "")
}

fn has_login(head: &str) -> bool {
    head.contains("authorization: basic")
}

async fn refusal(fake: &Fake) -> String {
    fake.registries().look_up(&fake.reference()).await.map(|_| ()).unwrap_err().to_string()
}

#[tokio::test]
async fn a_login_is_not_sent_over_plain_http_to_where_a_registry_says() {
    // This address leads here, too, and is none that is known to do so.
    let thief = Fake::start(|_, _| answer("200 OK", "", r#"{"token": "t"}"#)).await;
    let realm = format!("http://0.0.0.0:{}/token", thief.address.port());
    let wanted = realm.clone();
    let fake = Fake::start(move |_, _| wants_token(&wanted)).await;
    assert_eq!(
        refusal(&fake).await,
        format!(
            "the registry {} wants its login sent to {realm}, over plain HTTP: nothing is sent there; ask its operator for a token \
             service over HTTPS",
            fake.address
        )
    );
    assert!(thief.heads().is_empty() && !fake.heads().iter().any(|head| has_login(head)));
}

#[tokio::test]
async fn a_token_service_on_this_machine_gets_the_login_and_the_registry_the_token() {
    let service = Fake::start(|_, _| answer("200 OK", "", r#"{"token": "a-token"}"#)).await;
    let realm = format!("http://{}/token?x=1", service.address);
    let fake = Fake::start(move |head, _| match head.contains("/manifests/") {
        true => answer("404 Not Found", "", ""),
        false => wants_token(&realm),
    })
    .await;
    assert!(refusal(&fake).await.starts_with("the registry has no "), "the manifest is not there");
    let asked = service.heads();
    assert!(asked[0].starts_with("get /token?x=1&scope=repository%3ateam%2fx%3apull&service=tests "), "{asked:?}");
    assert!(asked[0].contains(&format!("authorization: basic {}", LOGIN.to_lowercase())), "{asked:?}");
    let heads = fake.heads();
    assert!(heads.iter().all(|head| !has_login(head)), "{heads:?}");
    assert!(heads[1].contains("authorization: bearer a-token"), "{heads:?}");
}

#[tokio::test]
async fn a_registry_that_changes_what_it_wants_gets_no_login_elsewhere() {
    let thief = Fake::start(|_, _| answer("200 OK", "", r#"{"token": "t"}"#)).await;
    let realm = format!("http://{}/token", thief.address);
    let fake = Fake::start(move |_, number| match number {
        1 => answer("401 Unauthorized", "WWW-Authenticate: Basic realm=\"x\"\r\n", ""),
        _ => wants_token(&realm),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.wasm");
    std::fs::write(&file, wat::parse_str("(component)").unwrap()).unwrap();
    let error = fake.registries().push(&file, &fake.reference(), None).await.unwrap_err().to_string();
    assert!(error.contains("does not let `ada` use"), "{error}");
    assert!(!thief.heads().iter().any(|head| has_login(head)), "{:?}", thief.heads());
}

#[tokio::test]
async fn a_manifest_is_read_up_to_a_limit() {
    const ANNOUNCED: u64 = 300 << 20;
    let fake = Fake::start(|head, _| match head.contains("/manifests/") {
        true => Reply::Zeros(ANNOUNCED),
        false => answer("200 OK", "", "{}"),
    })
    .await;
    let reference = fake.reference();
    assert_eq!(
        refusal(&fake).await,
        format!("the manifest of {reference} has more than 4194304 bytes; it is none of a component, check the name")
    );
    assert!(*fake.sent.lock().unwrap() < ANNOUNCED, "all of it was read");
}

#[tokio::test]
async fn what_a_registry_says_is_wrong_is_read_up_to_a_limit() {
    let fake = Fake::start(|head, _| match head.contains("/manifests/") {
        true => answer("500 Oh", "", r#"{"errors": [{"code": "UNKNOWN", "message": "out of paper"}]}"#),
        false => answer("200 OK", "", "{}"),
    })
    .await;
    let said = refusal(&fake).await;
    assert_eq!(said, format!("the registry does not serve {}: status 500: out of paper", fake.reference()));
    let fake = Fake::start(|head, _| match head.contains("/manifests/") {
        true => answer("500 Oh", "", &"x".repeat(1 << 20)),
        false => answer("200 OK", "", "{}"),
    })
    .await;
    assert_eq!(refusal(&fake).await, format!("the registry does not serve {}: status 500", fake.reference()));
}
