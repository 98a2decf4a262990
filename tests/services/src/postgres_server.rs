//! PostgreSQL servers in temporary folders, which run until the tests end. The Debian package `postgresql` is installed
//! when it is missing and can be. It has no extension `vector`; the Python package `pgserver` contains a server that
//! does.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, ensure};

use crate::packages::{apt_get, is_root, run};
use crate::skip;

/// The variable with the URI of an existing server.
const VARIABLE: &str = "HATCHERY_TEST_POSTGRES";
/// A line that the server prints when it is ready.
const READY: &str = "database system is ready to accept connections";
/// Runs a server until the standard input ends, which is when the tests end, however they do. Then removes a folder, if
/// it is given one.
const SUPERVISE: &str =
    "\"$@\" 2>&1 & child=$!; read -r _; kill -INT $child; wait $child; [ -z \"$REMOVED\" ] || rm -rf \"$REMOVED\"";
/// The account of the server if the tests run as root, with which it does not start.
const ACCOUNT: &str = "postgres";
/// The Python package with a server that has the extension `vector`, and a version of Python that it is built for.
/// Other versions install it too, because its programs are not in Python.
const PACKAGE: [&str; 2] = ["pgserver==0.1.4", "3.11"];
/// The folder of that server for the tests of root. All can read it, and only root can write to it.
const SHARED: &str = "/var/cache/hatchery-pgserver";
/// How often a server is started again while the processes of one that was killed still end.
const ATTEMPTS: u32 = 100;

/// A running server.
pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    arguments: Vec<String>,
    /// True if it is never dropped, so that its folder must be removed by another process.
    is_static: bool,
    /// Its standard input keeps the server running. `None` while the server is stopped.
    supervisor: Option<Child>,
}

/// Returns the URI of a server that the tests of a process share; `None`, after a message, if there is none.
pub fn postgres() -> Option<&'static str> {
    static SERVER: OnceLock<Option<(String, Option<PostgresServer>)>> = OnceLock::new();
    let server = SERVER.get_or_init(|| match std::env::var(VARIABLE) {
        Ok(uri) if !uri.is_empty() => Some((uri, None)),
        _ => PostgresServer::start_as(true, &[], |_| {}).map(|server| (server.uri(), Some(server))),
    });
    server.as_ref().map(|(uri, _)| uri.as_str())
}

/// Returns the URI of a server with the extension `vector` that the tests of a process share; `None`, after a message,
/// if there is none. Installs it in `folder` if necessary.
pub fn postgres_with_vectors(folder: &Path) -> Option<&'static str> {
    static SERVER: OnceLock<Option<(String, PostgresServer)>> = OnceLock::new();
    let server = SERVER.get_or_init(|| match programs_with_vectors(folder) {
        Ok(programs) => {
            let server = PostgresServer::start_from(programs, true, &[], |_| {});
            Some((server.uri(), server))
        }
        Err(reason) => {
            skip(&format!("the tests of vectors in PostgreSQL: {reason:#}"));
            None
        }
    });
    server.as_ref().map(|(uri, _)| uri.as_str())
}

impl PostgresServer {
    /// Starts a server that is not shared, with settings such as `ssl=on`. Returns `None`, after a message, if there is
    /// none.
    pub fn start(settings: &[&str]) -> Option<Self> {
        Self::start_with(settings, |_| {})
    }

    /// As [`PostgresServer::start`], after its data folder was prepared.
    pub fn start_with(settings: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        Self::start_as(false, settings, prepare)
    }

    fn start_as(is_static: bool, settings: &[&str], prepare: impl FnOnce(&Path)) -> Option<Self> {
        match programs() {
            Ok(programs) => Some(Self::start_from(programs, is_static, settings, prepare)),
            Err(reason) => {
                skip(&format!("the tests of PostgreSQL: {reason:#}; or set {VARIABLE}"));
                None
            }
        }
    }

    fn start_from(programs: PathBuf, is_static: bool, settings: &[&str], prepare: impl FnOnce(&Path)) -> Self {
        let folder = new_folder();
        let mut init = as_account(&programs.join("initdb"));
        init.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-U", ACCOUNT, "-D"]);
        run(init.arg(folder.join("data"))).unwrap();
        prepare(&folder.join("data"));
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let arguments = settings.iter().flat_map(|setting| ["-c".to_owned(), (*setting).to_owned()]).collect();
        let mut server = Self { programs, folder, port, arguments, is_static, supervisor: None };
        server.restart();
        server
    }

    /// Returns the URI of the server's database.
    pub fn uri(&self) -> String {
        format!("postgres://{ACCOUNT}@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the folder with the socket, and the folder `data`.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Kills the server, as a crash of its machine does, except that the disk keeps its content.
    pub fn kill(&mut self) {
        let pid = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap();
        let pid = pid.lines().next().unwrap().to_owned();
        run(Command::new("kill").args(["-9", &pid])).unwrap();
        self.end();
    }

    /// Starts the server that was killed.
    pub fn restart(&mut self) {
        for _ in 0..ATTEMPTS {
            match self.try_start() {
                Ok(supervisor) => {
                    self.supervisor = Some(supervisor);
                    return;
                }
                Err(log) => {
                    let is_ending = log.contains("pre-existing shared memory block") || log.contains("already exists");
                    assert!(is_ending, "{log}");
                }
            }
        }
        panic!("the processes of the server that was killed do not end: {}", self.folder.display());
    }

    fn try_start(&self) -> Result<Child, String> {
        let server = as_account(&self.programs.join("postgres"));
        let mut supervisor = Command::new("sh");
        supervisor.env("REMOVED", if self.is_static { self.folder.as_os_str() } else { "".as_ref() });
        supervisor.args(["-c", SUPERVISE, "sh"]).arg(server.get_program()).args(server.get_args());
        supervisor.arg("-D").arg(self.folder.join("data")).args(["-k", self.folder.to_str().unwrap()]);
        supervisor.args(["-p", &self.port.to_string(), "-c", "listen_addresses=127.0.0.1"]);
        supervisor.args(["-c", "fsync=off", "-c", "max_connections=200"]).args(&self.arguments);
        let mut supervisor = supervisor.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(supervisor.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut log = String::new();
        loop {
            match output.next() {
                Some(line) if line.contains(READY) => break,
                // Clients that come too early are refused by such lines too.
                Some(line) if line.contains("FATAL") && !line.contains("the database system is") => {
                    drop(supervisor.stdin.take());
                    supervisor.wait().unwrap();
                    return Err(line);
                }
                Some(line) => log.push_str(&line),
                None => return Err(log),
            }
        }
        // It stops when it cannot write.
        std::thread::spawn(move || output.for_each(drop));
        Ok(supervisor)
    }

    fn end(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            drop(supervisor.stdin.take());
            supervisor.wait().unwrap();
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Returns the folder of `initdb` and `postgres`, after their installation if they are missing.
fn programs() -> anyhow::Result<PathBuf> {
    if let Some(folder) = find_programs() {
        return Ok(folder);
    }
    ensure!(is_root(), "PostgreSQL is not installed (apt-get install postgresql)");
    let lock = fs::File::create(std::env::temp_dir().join("hatchery-postgres.lock"))?;
    lock.lock()?;
    if find_programs().is_none() {
        apt_get(&["install", "--yes", "--no-install-recommends", "postgresql"], Path::new("/"))?;
    }
    find_programs().context("the package `postgresql` has no `initdb`")
}

/// As [`programs`], of the server with the extension `vector`. It is installed in `folder`, but in [`SHARED`] by the
/// tests of root: the account of the server can read nothing below the home folder of root.
fn programs_with_vectors(folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = if is_root() { Path::new(SHARED) } else { folder };
    if is_root() {
        // The Debian package creates the account.
        programs()?;
    }
    let [package, python] = PACKAGE;
    fs::create_dir_all(folder)?;
    let lock = fs::File::create(folder.join("pgserver.lock"))?;
    lock.lock()?;
    let installed = folder.join(package);
    if !installed.exists() {
        let new = folder.join("pgserver.new");
        let _ = fs::remove_dir_all(&new);
        let mut install = Command::new("python3");
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
        install.args(["--only-binary=:all:", "--python-version", python, package, "--target"]);
        run(install.arg(&new))?;
        fs::rename(&new, &installed)?;
    }
    let programs = installed.join("pgserver/pginstall/bin");
    run(as_account(&programs.join("initdb")).arg("--version"))?;
    Ok(programs)
}

/// Returns the folder of the newest version, which Debian has outside of the search path.
fn find_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<_> = versions.map(|entry| entry.path().join("bin")).collect();
    versions.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = versions.into_iter().rev().chain(std::env::split_paths(&path));
    folders.into_iter().find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

/// Returns a command that runs a program under the account of the server if these are the tests of root.
fn as_account(program: &Path) -> Command {
    let mut command = Command::new(if is_root() { Path::new("setpriv") } else { program });
    if is_root() {
        command.args(["--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups"]).arg(program);
    }
    // The account may not enter the folder of the tests.
    command.current_dir("/");
    command
}

/// Creates a folder of the account of the server.
fn new_folder() -> PathBuf {
    let nanos = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let folder = std::env::temp_dir().join(format!("hatchery-pg-{}-{nanos}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    if is_root() {
        run(Command::new("chown").arg(ACCOUNT).arg(&folder)).unwrap();
    }
    folder
}
