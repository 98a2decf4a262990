//! Object stores that start themselves: moto for S3, Azurite for Azure. They are installed into the target folder by
//! the first test that needs them, and end with the test program.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hatchery_stores::ObjectArtifacts;
use hmac::{Hmac, Mac};
use reqwest::StatusCode;
use sha2::Sha256;
use tokio::sync::OnceCell;
use uuid::Uuid;

/// The account of Azurite and its key, which are public.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// The bucket, or container, that exists.
pub const BUCKET: &str = "artifacts";

/// A running server.
pub struct Server {
    /// Scheme, host and port.
    pub url: String,
    _child: Child,
}

/// Returns the S3 server. `None`, with a message on stderr, if it cannot be installed here.
pub async fn s3() -> Option<&'static Server> {
    static SERVER: OnceCell<Option<Server>> = OnceCell::const_new();
    let server = SERVER.get_or_init(|| async {
        let server = started("S3", start_moto).await?;
        let created = client().put(format!("{}/{BUCKET}", server.url)).send().await.unwrap();
        assert_eq!(created.status(), StatusCode::OK);
        Some(server)
    });
    server.await.as_ref()
}

/// Returns the Azure server. `None`, with a message on stderr, if it cannot be installed here.
pub async fn azure() -> Option<&'static Server> {
    static SERVER: OnceCell<Option<Server>> = OnceCell::const_new();
    let server = SERVER.get_or_init(|| async {
        let server = started("Azure", start_azurite).await?;
        create_container(&server.url).await;
        Some(server)
    });
    server.await.as_ref()
}

/// Returns the variables with which an S3 server is used.
pub fn s3_variables(server: &Server) -> Vec<(String, String)> {
    variables(&[
        ("AWS_ENDPOINT_URL", &server.url),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_REGION", "us-east-1"),
    ])
}

/// Returns the variables with which an Azure server is used.
pub fn azure_variables(server: &Server) -> Vec<(String, String)> {
    variables(&[
        ("AZURE_STORAGE_ENDPOINT", &format!("{}/{ACCOUNT}", server.url)),
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY),
    ])
}

pub fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Opens artifacts with a new prefix in S3.
pub async fn s3_artifacts() -> Option<ObjectArtifacts> {
    let server = s3().await?;
    let uri = format!("s3://{BUCKET}/tests/{}", Uuid::new_v4());
    Some(ObjectArtifacts::open(&uri, s3_variables(server)).await.unwrap())
}

/// Opens artifacts with a new prefix in Azure.
pub async fn azure_artifacts() -> Option<ObjectArtifacts> {
    let server = azure().await?;
    let uri = format!("az://{BUCKET}/tests/{}", Uuid::new_v4());
    Some(ObjectArtifacts::open(&uri, azure_variables(server)).await.unwrap())
}

/// Reports on stderr that something is not tested. Bypasses the test harness, which captures the output of passing
/// tests.
pub fn skip(what: &str, reason: &str) {
    // If stderr is closed, nobody reads it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}: {reason}");
}

pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn started(what: &'static str, start: fn() -> Result<Server, String>) -> Option<Server> {
    let server = tokio::task::spawn_blocking(start).await.unwrap();
    server.inspect_err(|reason| skip(&format!("artifacts in {what}"), reason)).ok()
}

fn start_moto() -> Result<Server, String> {
    let folder = installed("moto-5.2.5", |folder| {
        let environment = folder.join("venv");
        run(Command::new("python3").arg("-m").arg("venv").arg(&environment))?;
        run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "moto[server,s3]==5.2.5"]))
    })?;
    let program = folder.join("venv/bin/moto_server");
    Ok(start(program.as_os_str().to_str().unwrap(), &["-H", "127.0.0.1", "-p", "0"], "Running on "))
}

fn start_azurite() -> Result<Server, String> {
    let folder = installed("azurite-3.37.0", |folder| {
        let mut install = Command::new("npm");
        install.args(["install", "--no-audit", "--no-fund", "--loglevel", "error", "azurite@3.37.0", "--prefix"]);
        run(install.arg(folder))
    })?;
    let program = folder.join("node_modules/.bin/azurite-blob");
    let args = ["--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence", "--disableTelemetry"];
    Ok(start(program.as_os_str().to_str().unwrap(), &args, "successfully listens on "))
}

/// Returns the folder of a program in the target folder, in which `install` has succeeded once.
pub fn installed(name: &str, install: fn(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (lock, mark) = (folder.with_extension("lock"), folder.join("installed"));
    let lock = File::create(&lock).map_err(|error| format!("{}: {error}", lock.display()))?;
    lock.lock().map_err(|error| error.to_string())?;
    if !mark.exists() {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        install(&folder)?;
        fs::write(&mark, "").map_err(|error| error.to_string())?;
    }
    Ok(folder)
}

pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {}", log.trim())) }
}

/// Starts a server that writes its URL to its log after `before_url`. It ends when this process does, because the shell
/// waits for the end of its input.
fn start(program: &str, args: &[&str], before_url: &'static str) -> Server {
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$@\" 2>&1 </dev/null & read _; kill $!", "sh", program]).args(args);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut before = String::new();
    let url = loop {
        let Some(line) = log.next() else { panic!("{program} ended before it listened: {before}") };
        if let Some((_, url)) = line.split_once(before_url) {
            break url.trim().to_owned();
        }
        before.push_str(&line);
    };
    // A full pipe would block it.
    std::thread::spawn(move || log.for_each(drop));
    Server { url, _child: child }
}

/// Creates the container, with a request signed by the account's key.
async fn create_container(url: &str) {
    let date = httpdate::fmt_http_date(SystemTime::now());
    let headers = format!("x-ms-date:{date}\nx-ms-version:2021-08-06\n");
    let text = format!("PUT\n\n\n\n\n\n\n\n\n\n\n\n{headers}/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container");
    let mut mac = Hmac::<Sha256>::new_from_slice(&BASE64_STANDARD.decode(ACCOUNT_KEY).unwrap()).unwrap();
    mac.update(text.as_bytes());
    let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
    let request = client()
        .put(format!("{url}/{ACCOUNT}/{BUCKET}?restype=container"))
        .timeout(Duration::from_secs(60))
        .header("x-ms-date", date)
        .header("x-ms-version", "2021-08-06")
        .header("Authorization", format!("SharedKey {ACCOUNT}:{signature}"));
    let created = request.send().await.unwrap();
    let status = created.status();
    assert_eq!(status, StatusCode::CREATED, "{}", created.text().await.unwrap());
}
