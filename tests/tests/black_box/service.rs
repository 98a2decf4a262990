//! The host as a service: on a Unix socket, under systemd.

use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use hatchery_tests::host::TIMEOUT;
use hatchery_tests::{Folder, Host, paths};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, UnixStream};
use tokio::process::{Child, ChildStdout, Command};

/// A host on a Unix socket, beside a service manager.
struct Service {
    child: Child,
    announcement: Value,
    manager: UnixDatagram,
    /// The host could not print if nobody read.
    _stdout: Lines<BufReader<ChildStdout>>,
}

/// Returns a folder for sockets, whose paths are short.
fn socket_folder() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("h").tempdir_in("/tmp")?)
}

fn folder() -> Result<Folder> {
    let folder = Folder::empty()?;
    folder.write("echo/root_agent.yaml", "name: echo\nmodel: scripted:echo/answers.yaml\ninstruction: Echo.\n")?;
    folder.write("echo/answers.yaml", "turns:\n  - reply: 'You said {user}.'\n")?;
    Ok(folder)
}

impl Service {
    async fn start(sockets: &Path, args: &[String]) -> Result<Self> {
        let notify = sockets.join("notify");
        let manager = UnixDatagram::bind(&notify)?;
        manager.set_read_timeout(Some(TIMEOUT))?;
        let mut command = paths::command()?;
        command.args(args).arg("--json").env("NOTIFY_SOCKET", &notify);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
        loop {
            let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await??.context("an announcement")?;
            let announcement: Value = serde_json::from_str(&line)?;
            if announcement.get("loading").and_then(Value::as_array).is_some_and(Vec::is_empty) {
                return Ok(Self { child, announcement, manager, _stdout: lines });
            }
        }
    }

    /// Returns the next notification to the service manager.
    fn notification(&self) -> Result<String> {
        let mut text = [0; 64];
        let length = self.manager.recv(&mut text)?;
        Ok(String::from_utf8(text.get(..length).unwrap_or_default().to_vec())?)
    }

    /// Stops it with SIGTERM. Returns true if its exit code was 0.
    async fn stop(&mut self) -> Result<bool> {
        let id = self.child.id().context("it has already ended")?.to_string();
        ensure!(Command::new("kill").args(["-TERM", &id]).status().await?.success());
        Ok(tokio::time::timeout(TIMEOUT, self.child.wait()).await??.success())
    }
}

/// Sends a request over a socket, and returns the response.
async fn get(socket: &Path, path: &str) -> Result<String> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = String::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_string(&mut response)).await??;
    Ok(response)
}

fn serve_args(folder: &Folder, socket: &Path) -> Vec<String> {
    let (folder, socket) = (folder.served().display().to_string(), format!("unix:{}", socket.display()));
    ["serve", &folder, "--memory", "--listen", &socket].map(str::to_owned).to_vec()
}

#[tokio::test]
async fn a_host_serves_on_a_socket_and_tells_the_service_manager() -> Result<()> {
    let (folder, sockets) = (folder()?, socket_folder()?);
    let socket = sockets.path().join("http.sock");
    // A process that died has left its socket.
    drop(UnixListener::bind(&socket)?);
    let mut service = Service::start(sockets.path(), &serve_args(&folder, &socket)).await?;
    ensure!(service.announcement["address"] == format!("unix:{}", socket.display()), "{}", service.announcement);
    ensure!(service.announcement["url"] == "http://localhost", "{}", service.announcement);
    ensure!(service.notification()? == "READY=1");
    let file = std::fs::metadata(&socket)?;
    ensure!(
        file.file_type().is_socket() && file.permissions().mode() & 0o777 == 0o660,
        "{:o}",
        file.permissions().mode()
    );
    let response = get(&socket, "/list-apps").await?;
    ensure!(response.starts_with("HTTP/1.1 200") && response.ends_with("[\"echo\"]"), "{response}");

    let second = paths::command()?.args(serve_args(&folder, &socket)).output().await?;
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    let expected = "another process listens there; stop it, or choose another path";
    ensure!(!second.status.success() && error.contains(expected), "{error}");
    ensure!(get(&socket, "/health").await?.starts_with("HTTP/1.1 200"), "the first one serves on");

    ensure!(service.stop().await?, "its exit code is not 0");
    ensure!(service.notification()? == "STOPPING=1");
    ensure!(!socket.exists(), "its socket is left");
    Ok(())
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_not_replaced() -> Result<()> {
    let (folder, sockets) = (folder()?, socket_folder()?);
    let file = sockets.path().join("notes.txt");
    std::fs::write(&file, "keep me")?;
    for (path, expected) in [
        (file.clone(), "there is a file that is no socket; choose another path"),
        (sockets.path().join("missing/http.sock"), "create the folder first"),
        (sockets.path().join("x".repeat(120)), "choose a shorter path"),
    ] {
        let output = paths::command()?.args(serve_args(&folder, &path)).output().await?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && error.contains(expected), "{}: {error}", path.display());
    }
    ensure!(std::fs::read_to_string(file)? == "keep me");
    let output = paths::command()?.args(["serve", "--listen", "127.0.0.1:80"]).output().await?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(error.contains("write unix:PATH; a TCP address is set with --host and --port"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_host_that_stops_waits_for_runs_and_a_second_signal_ends_it_at_once() -> Result<()> {
    let folder = folder()?;
    folder.write("echo/answers.yaml", "turns:\n  - delay_ms: 600000\n    reply: late\n")?;
    folder.write("hatchery.yaml", "server: { drain_timeout: 1h }\n")?;
    let host = Host::serve(&folder).await?;
    host.create_session("echo", "s").await?;
    let run = host.stream("echo", "s", "hello", false).await?;
    host.signal("-TERM").await?;
    host.wait_for_log("stopping: waiting for active runs").await?;
    ensure!(!host.stop().await?, "a run was ended, so the exit code is not 0");
    drop(run);
    Ok(())
}

#[tokio::test]
async fn a_host_that_is_stopped_while_it_starts_has_the_exit_code_of_any_stop() -> Result<()> {
    let folder = folder()?;
    // A database that accepts connections and never answers.
    let database = TcpListener::bind("127.0.0.1:0").await?;
    let uri = format!("postgres://ada@{}/sessions", database.local_addr()?);
    let mut command = paths::command()?;
    command.args(["serve", "--port", "0", "--session-service", &uri]).arg(folder.served());
    let mut host = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let _connection = tokio::time::timeout(TIMEOUT, database.accept()).await??;
    let id = host.id().context("it has already ended")?.to_string();
    ensure!(Command::new("kill").args(["-TERM", &id]).status().await?.success());
    ensure!(tokio::time::timeout(TIMEOUT, host.wait()).await??.success(), "systemd would take it for a failure");
    Ok(())
}

#[tokio::test]
async fn the_command_of_the_systemd_service_serves() -> Result<()> {
    let unit = std::fs::read_to_string(paths::repository().join("hatchery.service"))?;
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).context("ExecStart")?;
    let (folder, sockets) = (folder()?, socket_folder()?);
    let socket = sockets.path().join("http.sock");
    let places: [(&str, PathBuf); 3] = [
        ("/srv/hatchery", folder.served()),
        ("/run/hatchery/http.sock", socket.clone()),
        ("/var/lib/hatchery", sockets.path().join("data")),
    ];
    let arg =
        |word: &str| places.iter().fold(word.to_owned(), |word, (from, to)| word.replace(from, &to.to_string_lossy()));
    let mut words = command.split_whitespace();
    ensure!(words.next() == Some("/usr/local/bin/hatchery"), "{command}");
    let args: Vec<_> = words.map(arg).collect();
    let mut service = Service::start(sockets.path(), &args).await?;
    ensure!(service.notification()? == "READY=1", "Type=notify waits for it");
    ensure!(get(&socket, "/ready").await?.starts_with("HTTP/1.1 200"));
    ensure!(service.stop().await?);
    Ok(())
}
