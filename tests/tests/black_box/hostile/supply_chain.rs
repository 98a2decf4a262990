//! Supply chain attacks: signatures, registries and builds.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use hatchery_tests::paths::{Swap, component, swap};
use hatchery_tests::{Folder, Host, event};
use minisign::{KeyPair, PublicKey, SecretKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::cli::{hatchery, hatchery_with};

/// The key pair of an author whom the operator trusts.
struct Author(KeyPair);

impl Author {
    fn new() -> Result<Self> {
        Ok(Self(KeyPair::generate_unencrypted_keypair()?))
    }

    /// Adds a component with a signature for the name `signed_as`.
    fn sign(&self, folder: &Folder, file: &str, signed_as: &str, bytes: &[u8]) -> Result<()> {
        let (public, secret): (&PublicKey, &SecretKey) = (&self.0.pk, &self.0.sk);
        let comment = format!("file:{signed_as}.wasm");
        let signature = minisign::sign(Some(public), secret, bytes, Some(&comment), None)?;
        folder.put(&format!("{file}.wasm.minisig"), signature.into_string())?;
        folder.put(&format!("{file}.wasm"), bytes)
    }

    /// Creates a folder whose operator requires this author's signature.
    fn folder(&self) -> Result<Folder> {
        let folder = Folder::empty()?;
        let key = self.0.pk.to_base64();
        folder.write_operator_config(&format!("registry:\n  signatures: require\n  trusted_keys: [{key}]\n"))?;
        Ok(folder)
    }
}

#[tokio::test]
async fn a_signed_component_does_not_serve_under_another_name() -> Result<()> {
    let author = Author::new()?;
    let folder = author.folder()?;
    author.sign(&folder, "swap", "swap", &swap(Swap::Older)?)?;
    author.sign(&folder, "vault", "dice", &component("dice")?)?;
    let host = Host::serve(&folder).await?;
    host.wait_for_app("swap").await?;
    let reason = host.wait_for_refusal("vault.wasm").await?;
    assert!(reason.contains("dice") && reason.contains("sign"), "{reason}");
    assert!(!host.apps().await?.iter().any(|app| app == "dice"), "it is served");
    host.wait_for_log("hatchery::audit").await
}

#[tokio::test]
async fn a_rollback_works_if_signatures_are_required() -> Result<()> {
    let author = Author::new()?;
    let folder = author.folder()?;
    author.sign(&folder, "swap", "swap", &swap(Swap::Older)?)?;
    let host = Host::serve(&folder).await?;
    host.wait_for_app("swap").await?;
    let first = host.components().await?["generation"].clone();
    author.sign(&folder, "swap", "swap", &swap(Swap::Newer)?)?;
    host.wait_until("the newer one serves", |components| components["generation"] != first).await?;
    let config = folder.operator_config().display().to_string();
    let output = hatchery(&folder.served(), &["rollback", "swap", "--config", &config]).await?;
    assert!(output.success, "{}", output.stderr);
    let look = async {
        for session in 0.. {
            let reply = event::texts(&host.ask("swap", &session.to_string(), "Who?").await?);
            if reply == Swap::Older.texts() {
                break;
            }
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(hatchery_tests::host::TIMEOUT, look).await.context("the older one does not come back")??;
    Ok(())
}

/// Returns the bytes of the answer to a request head.
type Handler = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A server that sends malicious answers and records the requests.
struct MaliciousServer {
    port: u16,
    heads: Arc<Mutex<String>>,
}

impl MaliciousServer {
    async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind("0.0.0.0:0").await?;
        let port = listener.local_addr()?.port();
        let (heads, answer): (Arc<Mutex<String>>, Handler) = (Arc::default(), Arc::new(answer));
        let sink = heads.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(Self::serve(connection, answer.clone(), sink.clone()));
            }
        });
        Ok(Self { port, heads })
    }

    async fn serve(mut connection: TcpStream, answer: Handler, heads: Arc<Mutex<String>>) -> Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(connection.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        heads.lock().unwrap_or_else(PoisonError::into_inner).push_str(&head);
        connection.write_all(&answer(&head)).await?;
        Ok(connection.shutdown().await?)
    }

    fn heads(&self) -> String {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).to_ascii_lowercase()
    }
}

#[tokio::test]
async fn a_login_stays_with_its_registry() -> Result<()> {
    let thief = MaliciousServer::start(|_| {
        b"HTTP/1.1 200 OK\r\ncontent-length: 15\r\nconnection: close\r\n\r\n{\"token\": \"abc\"}".to_vec()
    })
    .await?;
    let realm = format!("http://0.0.0.0:{}/token", thief.port);
    let registry = MaliciousServer::start(move |_| {
        format!(
            "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"{realm}\",service=\"x\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        )
        .into_bytes()
    })
    .await?;
    let folder = Folder::empty()?;
    let own = format!("127.0.0.1:{}", registry.port);
    let variables = [
        ("HATCHERY_REGISTRY", own.as_str()),
        ("HATCHERY_REGISTRY_USER", "ada"),
        ("HATCHERY_REGISTRY_PASSWORD", "hunter2"),
    ];
    let output = hatchery_with(&folder.served(), &["pull", ".", &format!("{own}/x:1")], &variables).await?;
    assert!(!output.success, "{}", output.stdout);
    // `ada:hunter2` as Basic authentication writes it.
    assert!(!thief.heads().contains("ywrhomh1bnrlcji"), "the login went elsewhere: {}", thief.heads());
    assert!(!output.stderr.contains("hunter2"), "{}", output.stderr);

    // Without the name of the registry, a password is for none.
    let output = hatchery_with(&folder.served(), &["pull", ".", &format!("{own}/x:1")], &variables[1..]).await?;
    assert!(!output.success && output.stderr.contains("HATCHERY_REGISTRY"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn the_login_of_a_registry_on_this_machine_does_not_pass_a_proxy() -> Result<()> {
    let proxy = MaliciousServer::start(|_| {
        b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec()
    })
    .await?;
    let registry = MaliciousServer::start(|_| {
        b"HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Basic realm=\"x\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            .to_vec()
    })
    .await?;
    let folder = Folder::empty()?;
    folder.put("swap.wasm", swap(Swap::Older)?)?;
    let own = format!("127.0.0.1:{}", registry.port);
    let (reference, through) = (format!("{own}/x:1"), format!("http://127.0.0.1:{}", proxy.port));
    let variables = [
        ("HATCHERY_REGISTRY", own.as_str()),
        ("HATCHERY_REGISTRY_USER", "ada"),
        ("HATCHERY_REGISTRY_PASSWORD", "hunter2"),
        ("http_proxy", through.as_str()),
        ("HTTP_PROXY", through.as_str()),
        ("no_proxy", ""),
        ("NO_PROXY", ""),
    ];
    for args in [["pull", ".", &reference], ["push", "swap.wasm", &reference]] {
        let before = registry.heads().len();
        let output = hatchery_with(&folder.served(), &args, &variables).await?;
        assert!(!output.success && output.stderr.contains("denies `ada` access to"), "{args:?}: {}", output.stderr);
        assert!(registry.heads().get(before..).is_some_and(|heads| heads.contains("ywrhomh1bnrlcji")), "{args:?}");
        assert_eq!(proxy.heads(), "", "{args:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_size_of_a_manifest_is_limited() -> Result<()> {
    const LARGE: usize = 300 << 20;
    let registry = MaliciousServer::start(|head| {
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/vnd.oci.image.manifest.v1+json\r\ncontent-length: {LARGE}\r\nconnection: close\r\n\r\n"
        )
        .into_bytes();
        if head.contains("/manifests/") {
            answer.resize(answer.len() + (32 << 20), b' ');
        }
        answer
    })
    .await?;
    let folder = Folder::empty()?;
    let output = hatchery(&folder.served(), &["pull", ".", &format!("127.0.0.1:{}/x:1", registry.port)]).await?;
    assert!(!output.success && output.stderr.contains("manifest"), "{}", output.stderr);
    assert!(output.stderr.contains("more than"), "{}", output.stderr);
    Ok(())
}

#[tokio::test]
async fn a_build_runs_no_module_of_the_project() -> Result<()> {
    let folder = Folder::empty()?;
    folder.write("app.py", "")?;
    folder.write(
        "pyproject.toml",
        "[project]\nname = \"app\"\nversion = \"0.1.0\"\n\n[tool.hatchery]\nmodule = \"app\"\n",
    )?;
    let marker = folder.data().join("ran.txt");
    let code = format!("open({:?}, 'w').write('ran')\n", marker.display().to_string());
    for module in ["json.py", "venv.py", "pip.py", "sitecustomize.py", "sys.py", "encodings.py"] {
        folder.write(module, &code)?;
    }
    // The build fails, because its dependencies cannot be fetched. Only the files read meanwhile matter.
    let cache = folder.data().join("cache").display().to_string();
    let variables = [("PIP_NO_INDEX", "1"), ("PIP_DISABLE_PIP_VERSION_CHECK", "1"), ("XDG_CACHE_HOME", cache.as_str())];
    let output = hatchery_with(&folder.served(), &["build", "."], &variables).await?;
    assert!(!marker.exists(), "code of the project ran: {}{}", output.stdout, output.stderr);
    Ok(())
}
