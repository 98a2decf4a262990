//! Google's Firestore emulator: the one at `FIRESTORE_EMULATOR_HOST`, or one that runs until the tests end.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use crate::packages::apt_get;
use crate::skip;

const VARIABLE: &str = "FIRESTORE_EMULATOR_HOST";
const JAR: &str = "platform/cloud-firestore-emulator/cloud-firestore-emulator.jar";
const PACKAGE: &str = "google-cloud-cli-firestore-emulator";
const MAIN_CLASS: &str = "com.google.cloud.datastore.emulator.firestore.CloudFirestore";
/// A line that the emulator prints when it is ready.
const READY: &str = "Dev App Server is now running";
/// Runs a program until the standard input ends, which is when the tests end, however they do.
const SUPERVISE: &str = "\"$@\" & child=$!; read -r _; kill $child";

struct Emulator {
    address: String,
    /// Its standard input keeps the emulator running.
    _supervisor: Option<Child>,
}

/// Returns the address of the emulator; `None`, after a message, if it is not installed.
pub fn firestore_emulator() -> Option<&'static str> {
    static EMULATOR: OnceLock<Option<Emulator>> = OnceLock::new();
    EMULATOR.get_or_init(find).as_ref().map(|emulator| emulator.address.as_str())
}

fn find() -> Option<Emulator> {
    if let Some(address) = std::env::var(VARIABLE).ok().filter(|address| !address.is_empty()) {
        return Some(Emulator { address, _supervisor: None });
    }
    let Some(jar) = jar().or_else(install) else {
        skip_firestore("the Firestore emulator is not installed (apt-get install google-cloud-cli-firestore-emulator)");
        return None;
    };
    if Command::new("java").arg("-version").stderr(Stdio::null()).status().is_err() {
        skip_firestore("there is no `java`, which runs the Firestore emulator");
        return None;
    }
    Some(start(&jar))
}

fn skip_firestore(reason: &str) {
    skip(&format!("the tests of Firestore: {reason}; or set {VARIABLE}"));
}

/// Returns the emulator of the Google Cloud SDK, which is a folder beside `bin/gcloud`.
fn jar() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).filter_map(|folder| {
        let gcloud = folder.join("gcloud").canonicalize().ok()?;
        Some(gcloud.parent()?.parent()?.to_owned())
    });
    let usual = ["/usr/lib/google-cloud-sdk", "/usr/share/google-cloud-sdk", "/opt/google-cloud-sdk"];
    on_path.chain(usual.map(PathBuf::from)).map(|sdk| sdk.join(JAR)).find(|jar| jar.is_file())
}

/// Installs the package, which exists where Google's repository is configured. Only root can.
fn install() -> Option<PathBuf> {
    apt_get(&["install", "--yes", "--no-install-recommends", PACKAGE], Path::new("/")).ok()?;
    jar()
}

fn start(jar: &Path) -> Emulator {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut supervisor = Command::new("sh")
        .args(["-c", SUPERVISE, "sh", "java", "-Duser.language=en", "-cp"])
        .arg(jar)
        .args([MAIN_CLASS, "start", "--host=127.0.0.1", &format!("--port={port}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(supervisor.stdout.take().unwrap()).lines();
    let is_ready = output.any(|line| line.unwrap().contains(READY));
    assert!(is_ready, "the Firestore emulator has ended: {}", jar.display());
    // It stops when it cannot write.
    std::thread::spawn(move || output.for_each(drop));
    Emulator { address: format!("127.0.0.1:{port}"), _supervisor: Some(supervisor) }
}
