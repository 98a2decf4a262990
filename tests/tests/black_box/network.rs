//! The sample that reads web pages, with an HTTPS server.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use hatchery_tests::event::{self, text_at, tool_response};
use hatchery_tests::{Folder, Host};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivatePkcs8KeyDer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const PAGE: &str = "<html><head><title>A page</title></head><body><p>Sent by HTTPS.</p></body></html>";

/// An HTTPS server with its own certificate authority.
struct HttpsServer {
    port: u16,
    /// The certificate of the authority as PEM.
    authority: String,
    /// The request lines and headers so far.
    heads: Arc<Mutex<Vec<String>>>,
}

impl HttpsServer {
    async fn start() -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate()?;
        let pem = authority.self_signed(&authority_key)?.pem();
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec!["localhost".into()])?
            .signed_by(&key, &Issuer::from_params(&authority, &authority_key))?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), heads.clone()));
        Ok(Self { port, authority: pem, heads })
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, heads: Arc<Mutex<Vec<String>>>) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that does not trust the certificate disconnects.
        let Ok(mut stream) = tls.accept(stream).await else { continue };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        heads.lock().unwrap_or_else(PoisonError::into_inner).push(String::from_utf8(head)?);
        let length = PAGE.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{PAGE}"
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
    }
}

/// Creates a folder of the samples with grants for the server.
fn folder(port: u16) -> Result<Folder> {
    let folder = Folder::with_samples()?;
    let host = format!("localhost:{port}");
    folder.write(
        "hatchery.yaml",
        format!(
            "components:\n  web-fetch:\n    grants:\n      network: [\"{host}\"]\n      private_network: [\"{host}\"]\n      \
             secrets:\n        - {{name: page, from: PAGE_KEY, host: \"{host}\", header: Authorization, format: \"Bearer {{secret}}\"}}\n"
        ),
    )?;
    Ok(folder)
}

#[tokio::test]
async fn a_secret_is_sent_over_https_and_appears_nowhere() -> Result<()> {
    let server = HttpsServer::start().await?;
    let folder = folder(server.port)?;
    let roots = folder.data().join("roots.pem");
    std::fs::write(&roots, &server.authority)?;
    let roots = roots.to_str().context("a path of text")?;
    let environment = [("SSL_CERT_FILE", roots), ("PAGE_KEY", "s3cret-of-the-page"), ("HATCHERY_LOG", "trace")];
    let host = Host::serve_with_environment(&folder, &environment).await?;
    let events = host.ask("web-fetch", "s", &format!("Read https://localhost:{}/", server.port)).await?;
    let page = tool_response(&events, "read_page")?;
    assert_eq!((text_at(page, "/title"), text_at(page, "/text")), ("A page", "Sent by HTTPS."), "{page}");
    let heads = server.heads.lock().unwrap().join("").to_ascii_lowercase();
    assert!(heads.contains("\r\nauthorization: bearer s3cret-of-the-page\r\n"), "{heads}");
    let stored = host.session("web-fetch", "s").await?.to_string();
    for (place, text) in
        [("log", host.log()), ("session", stored), ("components", host.components().await?.to_string())]
    {
        assert!(!text.contains("s3cret"), "the {place} shows the secret");
    }
    Ok(())
}

#[tokio::test]
async fn requests_name_their_span_only_if_the_trace_is_exported() -> Result<()> {
    for is_exported in [false, true] {
        let server = HttpsServer::start().await?;
        let folder = folder(server.port)?;
        let roots = folder.data().join("roots.pem");
        std::fs::write(&roots, &server.authority)?;
        let roots = roots.to_str().context("a path of text")?;
        let mut environment = vec![("SSL_CERT_FILE", roots), ("PAGE_KEY", "s3cret")];
        environment.extend(is_exported.then_some(("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")));
        let host = Host::serve_with_environment(&folder, &environment).await?;
        host.ask("web-fetch", "s", &format!("Read https://localhost:{}/", server.port)).await?;
        let spans = host.get("/debug/trace/session/s").await?.json(200)?;
        let spans = spans.as_array().context("spans")?;
        let span = spans.iter().find(|span| span["name"] == "GET localhost").with_context(|| format!("{spans:?}"))?;
        assert_eq!(span["attributes"]["http.response.status_code"], 200);
        let guest = spans.iter().find(|guest| guest["span_id"] == span["parent_span_id"]).context("a guest")?;
        assert_eq!(guest["name"], "call_guest web-fetch");
        let heads = server.heads.lock().unwrap().join("").to_ascii_lowercase();
        let header = format!("\r\ntraceparent: 00-{}-{}-01\r\n", text_at(span, "/trace_id"), text_at(span, "/span_id"));
        assert_eq!(heads.contains(&header), is_exported, "{heads}");
        assert_eq!(heads.contains("traceparent"), is_exported, "{heads}");
    }
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_this_machine_does_not_trust_is_refused() -> Result<()> {
    let server = HttpsServer::start().await?;
    let host = Host::serve_with_environment(&folder(server.port)?, &[("PAGE_KEY", "s3cret")]).await?;
    let events = host.ask("web-fetch", "s", &format!("Read https://localhost:{}/", server.port)).await?;
    let error = text_at(tool_response(&events, "read_page")?, "/error").to_owned();
    assert_eq!(error, "the host's certificate is not trusted");
    assert!(server.heads.lock().unwrap().is_empty());
    Ok(())
}

#[tokio::test]
async fn a_denial_is_logged_for_the_operator() -> Result<()> {
    let host = Host::serve(&Folder::with_samples()?).await?;
    let events = host.ask("web-fetch", "s", "Read https://www.rust-lang.org/").await?;
    let denied = "component `web-fetch` may not send requests to `https://www.rust-lang.org`";
    assert!(event::texts(&events).concat().ends_with(denied), "{events:?}");
    let lines = "components:\n  web-fetch:\n    grants:\n      network: [\"www.rust-lang.org\"]";
    host.wait_for_log(&format!("{denied}; to allow it, add to hatchery.yaml:\n{lines}")).await?;
    host.wait_for_log("hatchery::audit: denied").await?;
    let log = host.log();
    let line = log.lines().find(|line| line.contains("hatchery::audit: denied")).context("the line")?;
    for part in ["denied", "web-fetch", "send requests to `https://www.rust-lang.org`"] {
        assert!(line.contains(part), "{line}");
    }
    Ok(())
}
