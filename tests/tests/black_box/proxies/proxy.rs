//! A running nginx or Caddy, with the configuration of the guide.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::{Socket, code_blocks, debian, paths};
use reqwest::{Certificate, Client, Method, RequestBuilder, redirect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// The name of the host in the guide.
pub const NAME: &str = "agents.example";

/// The line of the guide's configuration that the path of a host replaces.
const ROOT_LOCATION: &str = "  location / { proxy_pass http://hatchery; }\n";

/// A line of the guide that removes the prefix of a path.
const STRIPPING_LOCATION: &str = "location /agents/ { proxy_pass http://hatchery/; }";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Caddy,
}

/// The paths that the proxy forwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Everything.
    Root,
    /// The paths below `/agents`.
    Prefix,
    /// The paths below `/agents`, without this prefix. nginx only.
    StrippedPrefix,
}

/// A running proxy. Dropping it kills it.
pub struct Proxy {
    address: SocketAddr,
    /// The authority of its certificate.
    root: CertificateDer<'static>,
    client: Client,
    log: PathBuf,
    _child: Child,
    _folder: TempDir,
}

impl Proxy {
    /// Starts a proxy in front of a host on a socket, and returns when it answers. `None`, with a message on stderr, if
    /// it cannot be installed here.
    pub async fn start(kind: Kind, route: Route, socket: &Path) -> Result<Option<Self>> {
        let (package, program) = match kind {
            Kind::Nginx => ("nginx", "usr/sbin/nginx"),
            Kind::Caddy => ("caddy", "usr/bin/caddy"),
        };
        let program = match debian::program(package, program).await {
            Ok(program) => program,
            Err(reason) => {
                hatchery_tests::skip(package, &format!("{reason:#}"));
                return Ok(None);
            }
        };
        // An earlier test in this process may have installed it.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let folder = tempfile::tempdir()?;
        let address: SocketAddr = ([127, 0, 0, 1], free_port()?).into();
        let recipe = replace(&recipe(kind, route)?, "/run/hatchery/http.sock", &socket.to_string_lossy())?;
        let (config, root) = match kind {
            Kind::Nginx => configure_nginx(folder.path(), &recipe, address)?,
            Kind::Caddy => configure_caddy(folder.path(), &recipe, address)?,
        };
        let mut command = Command::new(program);
        match kind {
            Kind::Nginx => command.args(["-e", "stderr", "-p"]).arg(folder.path()).arg("-c").arg(&config),
            Kind::Caddy => command.args(["run", "--adapter", "caddyfile", "--config"]).arg(&config),
        };
        let log = folder.path().join("log");
        command.env("HOME", folder.path()).env("XDG_DATA_HOME", folder.path());
        command.env("XDG_CONFIG_HOME", folder.path()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(std::fs::File::create(&log)?);
        let child = command.spawn()?;
        let started = Self::wait(child, folder, address, &root, &log);
        Ok(Some(tokio::time::timeout(TIMEOUT, started).await.with_context(|| read_log(&log))??))
    }

    /// Waits until a proxy has its certificate and answers.
    async fn wait(mut child: Child, folder: TempDir, address: SocketAddr, root: &Path, log: &Path) -> Result<Self> {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
        loop {
            ticks.tick().await;
            ensure!(child.try_wait()?.is_none(), "the proxy has ended: {}", read_log(log));
            // Caddy makes the certificate of its authority when it starts.
            let Ok(pem) = std::fs::read(root) else { continue };
            let Ok(certificate) = CertificateDer::from_pem_slice(&pem) else { continue };
            let client = Client::builder().no_proxy().timeout(TIMEOUT).redirect(redirect::Policy::none());
            let client =
                client.tls_certs_only([Certificate::from_der(&certificate)?]).resolve(NAME, address).build()?;
            if client.get(format!("https://{NAME}/")).send().await.is_ok() {
                let (log, root) = (log.to_owned(), certificate);
                return Ok(Self { address, root, client, log, _child: child, _folder: folder });
            }
        }
    }

    /// Creates a request to the host's name.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("https://{NAME}{path}"))
    }

    /// Opens a WebSocket as a page of the host does.
    pub async fn open_socket(&self, path: &str, key: &str) -> Result<Socket<TlsStream<TcpStream>>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.root.clone())?;
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let stream = TcpStream::connect(self.address).await?;
        let stream = TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME)?, stream).await?;
        let mut request = format!("wss://{NAME}{path}").into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse()?);
        request.headers_mut().insert("origin", format!("https://{NAME}").parse()?);
        Socket::over(stream, request).await.with_context(|| self.log())
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        read_log(&self.log)
    }
}

fn read_log(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns a port that nothing listens on currently.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Returns the configuration of the guide.
fn recipe(kind: Kind, route: Route) -> Result<String> {
    let guide = std::fs::read_to_string(paths::repository().join("docs/operations.md"))?;
    let language = match kind {
        Kind::Nginx => "nginx",
        Kind::Caddy => "caddy",
    };
    let mut blocks = code_blocks::parse(&guide).filter(|block| block.info == language).map(|block| block.text);
    let root = blocks.next().context("a configuration")?;
    let prefix = blocks.next().context("a configuration below a path")?;
    match (kind, route) {
        (_, Route::Root) => Ok(root.to_owned()),
        (Kind::Nginx, Route::Prefix) => replace(root, ROOT_LOCATION, prefix),
        (Kind::Nginx, Route::StrippedPrefix) => {
            ensure!(guide.contains(&format!("`{STRIPPING_LOCATION}`")), "the guide does not remove the prefix so");
            replace(root, ROOT_LOCATION, STRIPPING_LOCATION)
        }
        (Kind::Caddy, Route::Prefix | Route::StrippedPrefix) => Ok(prefix.to_owned()),
    }
}

/// Replaces a string that occurs in a configuration.
fn replace(text: &str, from: &str, to: &str) -> Result<String> {
    ensure!(text.contains(from), "{from:?} is not in:\n{text}");
    Ok(text.replace(from, to))
}

/// Writes the configuration of nginx around the guide's. Returns its path, and the path of its certificate.
fn configure_nginx(folder: &Path, recipe: &str, address: SocketAddr) -> Result<(PathBuf, PathBuf)> {
    let pair = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, pair.cert.pem())?;
    std::fs::write(&key, pair.signing_key.serialize_pem())?;
    let recipe = replace(recipe, "listen 443 ssl;", &format!("listen {address} ssl;"))?;
    let recipe = replace(&recipe, "/etc/nginx/agents.example.pem", &certificate.to_string_lossy())?;
    let recipe = replace(&recipe, "/etc/nginx/agents.example.key", &key.to_string_lossy())?;
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("  {name}_temp_path {};\n", folder.join(name).display()))
        .collect();
    // One process, which ends when it is killed.
    let text = format!(
        "daemon off;\nmaster_process off;\npid {};\nevents {{}}\nhttp {{\n  access_log off;\n{paths}{recipe}}}\n",
        folder.join("nginx.pid").display()
    );
    let config = folder.join("nginx.conf");
    std::fs::write(&config, text)?;
    Ok((config, certificate))
}

/// Writes the configuration of Caddy, with options for a private certificate before the guide's. Returns its
/// path, and the path of its authority's certificate.
fn configure_caddy(folder: &Path, recipe: &str, address: SocketAddr) -> Result<(PathBuf, PathBuf)> {
    let text = format!(
        "{{\n\tadmin off\n\tlocal_certs\n\tskip_install_trust\n\tauto_https disable_redirects\n\tdefault_bind {}\n\t\
         http_port {}\n\thttps_port {}\n}}\n{recipe}",
        address.ip(),
        free_port()?,
        address.port()
    );
    let config = folder.join("Caddyfile");
    std::fs::write(&config, text)?;
    Ok((config, folder.join("caddy/pki/authorities/local/root.crt")))
}
