//! HTTPS with a certificate in files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hatchery::{ServerConfig, TlsConfig};
use hatchery_engine::Runner;
use hatchery_server::{AppState, Server};
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use reqwest::{Certificate, Client, Method, RequestBuilder};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::auth::{OPERATOR, keys};
use crate::support::{FakeSource, Host, TIMEOUT, run_body};

/// Writes a new certificate for `localhost` that is valid until a year, and returns a client that trusts no other.
fn write_certificate(folder: &Path, year: i32) -> Certificate {
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(year, 1, 1));
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    Certificate::from_der(certificate.der()).unwrap()
}

/// Returns a client that accepts this certificate only, and has no session that it could resume.
fn client_of(root: &Certificate) -> Client {
    let client = Client::builder().no_proxy().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
    client.tls_certs_only([root.clone()]).build().unwrap()
}

fn config(folder: &Path) -> ServerConfig {
    let tls = TlsConfig { certificate: folder.join("cert.pem"), key: folder.join("key.pem") };
    ServerConfig { tls: Some(tls), ..ServerConfig::default() }
}

fn request(host: &Host, client: &Client, method: Method, path: &str) -> RequestBuilder {
    client.request(method, format!("https://localhost:{}{path}", host.address.port()))
}

async fn is_served(host: &Host, root: &Certificate) -> bool {
    let answer = request(host, &client_of(root), Method::GET, "/version").send().await;
    answer.is_ok_and(|answer| answer.status() == 200)
}

/// Installs the provider of cryptography of clients.
async fn install_provider() -> Host {
    Host::start().await
}

#[tokio::test]
async fn runs_and_logins_work_over_tls_and_plain_http_does_not() {
    install_provider().await;
    let folder = tempfile::tempdir().unwrap();
    let root = write_certificate(folder.path(), 2100);
    let client = client_of(&root);
    let host = Host::with(ServerConfig { auth: Some(keys()), ..config(folder.path()) }).await;
    let post = |path: &str| request(&host, &client, Method::POST, path).bearer_auth(OPERATOR);
    assert_eq!(post("/apps/says/users/u/sessions/s").send().await.unwrap().status(), 200);
    let run = post("/run_sse").json(&run_body("says", "hi")).send().await.unwrap();
    assert_eq!(run.version(), reqwest::Version::HTTP_2, "chosen by ALPN");
    let old =
        Client::builder().no_proxy().timeout(TIMEOUT).http1_only().tls_certs_only([root.clone()]).build().unwrap();
    let health = request(&host, &old, Method::GET, "/health").send().await.unwrap();
    assert_eq!((health.status().as_u16(), health.version()), (200, reqwest::Version::HTTP_11));
    assert!(run.text().await.unwrap().contains("You said: hi"));
    let login = request(&host, &client, Method::POST, "/login").body(format!("key={OPERATOR}")).send().await.unwrap();
    assert_eq!(login.status(), 303);
    assert!(login.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
    assert!(host.request(Method::GET, "/version").send().await.is_err(), "plain HTTP is not answered");
}

#[tokio::test]
async fn a_certificate_is_replaced_while_the_server_runs() {
    install_provider().await;
    let folder = tempfile::tempdir().unwrap();
    let first = write_certificate(folder.path(), 2100);
    let host = Host::with(config(folder.path())).await;
    assert!(is_served(&host, &first).await);
    let second = write_certificate(folder.path(), 2100);
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let replaced = async {
        while !is_served(&host, &second).await {
            ticks.tick().await;
        }
    };
    tokio::time::timeout(TIMEOUT, replaced).await.expect("the certificate was not replaced");
    assert!(!is_served(&host, &first).await, "the certificate before is not served any more");
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_certificate_before_in_place() {
    install_provider().await;
    let folder = tempfile::tempdir().unwrap();
    let client = write_certificate(folder.path(), 2100);
    let host = Host::with(config(folder.path())).await;
    let expired = write_certificate(folder.path(), 2020);
    let read_again = || host.state.prepare(config(folder.path()), true).map(|apply| apply());
    let error = read_again().unwrap_err();
    assert!(error.starts_with("server.tls: ") && error.contains("expired"), "{error}");
    assert!(is_served(&host, &client).await && !is_served(&host, &expired).await);
    fs::write(folder.path().join("cert.pem"), "half a cert").unwrap();
    read_again().unwrap_err();
    fs::remove_file(folder.path().join("key.pem")).unwrap();
    read_again().unwrap_err();
    assert!(is_served(&host, &client).await);
    let renewed = write_certificate(folder.path(), 2100);
    read_again().unwrap();
    assert!(is_served(&host, &renewed).await && !is_served(&host, &client).await);
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_dropped() {
    install_provider().await;
    let folder = tempfile::tempdir().unwrap();
    write_certificate(folder.path(), 2100);
    let config = ServerConfig { head_timeout: Duration::from_millis(50), ..config(folder.path()) };
    let host = Host::with(config).await;
    let mut silent = TcpStream::connect(host.address).await.unwrap();
    let read = tokio::time::timeout(TIMEOUT, silent.read(&mut [0])).await.expect("the connection stays open");
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test]
async fn a_server_without_a_usable_certificate_does_not_start() {
    let other = Host::start().await;
    let folder = tempfile::tempdir().unwrap();
    let error = async || {
        let state =
            AppState::new(Runner::new(other.services.clone()), Arc::new(FakeSource(Vec::new())), config(folder.path()));
        let bound = Server::bind("127.0.0.1:0".parse().unwrap(), state).await;
        bound.map(|_| ()).unwrap_err().to_string().replace(&folder.path().display().to_string(), "DIR")
    };
    let missing = error().await;
    assert!(missing.starts_with("server.tls: DIR/cert.pem: No such file"), "{missing}");
    write_certificate(folder.path(), 2020);
    assert_eq!(error().await, "server.tls: DIR/cert.pem: it has expired on 2020-01-01 UTC; renew it");
    write_certificate(folder.path(), 2100);
    let key = fs::read(folder.path().join("key.pem")).unwrap();
    write_certificate(folder.path(), 2100);
    fs::write(folder.path().join("key.pem"), key).unwrap();
    let mismatch = error().await;
    assert!(mismatch.starts_with("server.tls: DIR/cert.pem and DIR/key.pem do not fit together: "), "{mismatch}");
    fs::write(folder.path().join("key.pem"), "no key").unwrap();
    assert_eq!(error().await, "server.tls: DIR/key.pem: it has no private key in PEM");
    fs::write(folder.path().join("cert.pem"), "no certificate").unwrap();
    assert_eq!(error().await, "server.tls: DIR/cert.pem: it has no certificate in PEM");
}
