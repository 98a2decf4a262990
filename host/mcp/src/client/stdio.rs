//! Servers as processes: start in a cleared environment, bounded output, and the end of the whole process group.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt;
use hatchery_core::sync::MutexExt;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

use super::McpError;
use super::connection::ConnectionState;
use crate::config::StdioServer;

/// Time for a process to end after its input is closed, and again after SIGTERM.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum length of a logged line of standard error, in bytes.
const MAX_LOG_LINE: usize = 4 << 10;

/// A process that has been started.
pub(super) struct StartedProcess {
    pub(super) process: Process,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: BoundedLines<ChildStdout>,
}

/// The process of a server. Dropping it kills the process and its children.
pub(super) struct Process {
    child: Child,
    /// The id of the process group, which equals the id of the process.
    group: Option<i32>,
    stderr: Option<JoinHandle<()>>,
    last_line: Arc<Mutex<String>>,
}

/// Starts the process of a server.
///
/// # Errors
/// If a variable of its environment is not set, or the program cannot be started.
pub(super) fn start(
    server: &Arc<str>,
    config: &StdioServer,
    max_message: usize,
    state: &Arc<ConnectionState>,
) -> Result<StartedProcess, McpError> {
    let mut command = Command::new(&config.command);
    command.args(&config.args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    for (name, value) in &config.env {
        let value = value.read().map_err(|missing| McpError::variable(&format!("env.{name}"), missing))?;
        command.env(name, value);
    }
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    // A signal at the terminal must reach the host only, and the children of the process must end with it.
    #[cfg(unix)]
    command.process_group(0);
    let failed = |reason: String| McpError::Start { command: config.command.display().to_string(), reason };
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| failed(error.to_string()))?;
    let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(failed("it has no standard input and output".into()));
    };
    let group = child.id().and_then(|id| i32::try_from(id).ok());
    let last_line = Arc::new(Mutex::new(String::new()));
    let stderr = Some(tokio::spawn(log_lines(server.clone(), stderr, last_line.clone())));
    let stdout = BoundedLines { inner: stdout, max: max_message, length: 0, state: state.clone() };
    Ok(StartedProcess { process: Process { child, group, stderr, last_line }, stdin, stdout })
}

/// Logs standard error until its end: a process whose pipe is closed earlier may be killed by SIGPIPE.
async fn log_lines(server: Arc<str>, stderr: ChildStderr, last_line: Arc<Mutex<String>>) {
    let mut lines = FramedRead::new(stderr, LinesCodec::new_with_max_length(MAX_LOG_LINE));
    loop {
        match lines.next().await {
            Some(Ok(line)) => {
                tracing::debug!(server = &*server, "{line}");
                if !line.trim().is_empty() {
                    *last_line.lock_unpoisoned() = line;
                }
            }
            Some(Err(LinesCodecError::Io(error))) if error.kind() != io::ErrorKind::InvalidData => return,
            // A line that is too long or not UTF-8 is skipped. The reader returns `None` once after it.
            Some(Err(_)) => drop(lines.next().await),
            None => return,
        }
    }
}

impl Process {
    /// Returns the last line that the process has printed on standard error, as the end of a sentence.
    fn recent_output(&self) -> String {
        match self.last_line.lock_unpoisoned().trim() {
            "" => String::new(),
            line => format!("; it printed last: {line}"),
        }
    }

    /// As [`Process::recent_output`], after the process has ended by itself. Does not wait for one that runs on.
    pub(super) async fn last_output(&mut self) -> String {
        if let Some(stderr) = &mut self.stderr
            && tokio::time::timeout(Duration::from_millis(200), stderr).await.is_ok()
        {
            self.stderr = None;
        }
        self.recent_output()
    }

    /// Ends the process after its input was closed: waits, then sends SIGTERM, then kills its group.
    pub(super) async fn stop(mut self) {
        if tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await.is_err() {
            self.signal(Signal::Terminate);
            let _ = tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await;
        }
    }

    #[cfg(unix)]
    fn signal(&self, signal: Signal) {
        use rustix::process::{Pid, Signal as UnixSignal, kill_process_group};
        let signal = match signal {
            Signal::Terminate => UnixSignal::TERM,
            Signal::Kill => UnixSignal::KILL,
        };
        let id = self.group.and_then(Pid::from_raw);
        if let Some(id) = id {
            // Fails if the whole group has ended.
            let _ = kill_process_group(id, signal);
        }
    }

    #[cfg(not(unix))]
    fn signal(&mut self, _: Signal) {
        let _ = self.child.start_kill();
    }
}

#[derive(Clone, Copy)]
enum Signal {
    Terminate,
    Kill,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
        if let Some(stderr) = &self.stderr {
            stderr.abort();
        }
    }
}

/// A reader that fails at a line that is too long.
pub(super) struct BoundedLines<R> {
    inner: R,
    max: usize,
    /// Bytes of the current line.
    length: usize,
    state: Arc<ConnectionState>,
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let new = buf.filled().get(before..).unwrap_or_default();
        let mut lines = new.split(|byte| *byte == b'\n').map(<[u8]>::len);
        let mut longest = self.length + lines.next().unwrap_or_default();
        self.length = longest;
        for line in lines {
            self.length = line;
            longest = longest.max(line);
        }
        if longest > self.max {
            self.state.fail(McpError::MessageTooLarge(self.max));
            return Poll::Ready(Err(io::Error::other("a message is too large")));
        }
        Poll::Ready(Ok(()))
    }
}
