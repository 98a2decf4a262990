//! The parent's side of the child process that compiles one component.

use std::ffi::OsString;
use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, Command};

use super::worker::{HEADER, Tag, WorkerLimits};
use super::{CompileError, CompileLimits};

/// Maximum number of stored bytes of stderr.
const STDERR_TAIL: usize = 4096;

/// The reply of a child.
enum Reply {
    Code(Vec<u8>),
    Error(String),
    /// More bytes than allowed.
    TooLarge,
    /// Missing or incomplete.
    Broken,
}

/// Compiles `bytes` in a child process, which has ended when this returns or is dropped.
pub(super) async fn compile(
    program: &Path,
    args: &[OsString],
    limits: &CompileLimits,
    bytes: Bytes,
) -> Result<Vec<u8>, CompileError> {
    let cpu_seconds = limits.time.as_secs() + u64::from(limits.time.subsec_nanos() > 0);
    let worker = WorkerLimits { memory: limits.memory, cpu_seconds: cpu_seconds.max(1), threads: limits.threads };
    let mut command = Command::new(program);
    // Environment variables such as API keys are not passed on.
    command.args(args).args(worker.to_args()).env_clear().env("RAYON_NUM_THREADS", limits.threads.to_string());
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(CompileError::Start)?;
    let result = tokio::time::timeout(limits.wall, communicate(&mut child, limits, bytes)).await;
    // The child has nothing left to do after its reply. Killing it fails if it has ended.
    let _ = child.kill().await;
    result.unwrap_or(Err(CompileError::Stalled { wall: limits.wall }))
}

async fn communicate(child: &mut Child, limits: &CompileLimits, bytes: Bytes) -> Result<Vec<u8>, CompileError> {
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(CompileError::Start(std::io::Error::other("it has no pipes")));
    };
    let mut errors = pin!(read_tail(stderr));
    let mut output = None;
    let reply = {
        // stdin stays open until the reply is complete.
        let mut exchange = pin!(async { tokio::join!(send(stdin, &bytes), receive(stdout, limits.output())) });
        loop {
            tokio::select! {
                (_stdin, reply) = &mut exchange => break reply,
                read = &mut errors, if output.is_none() => output = Some(read),
            }
        }
    };
    match reply {
        Reply::Code(code) => return Ok(code),
        Reply::Error(reason) if is_out_of_memory(&reason) => {
            return Err(CompileError::Memory { memory: limits.memory });
        }
        Reply::Error(reason) => return Err(CompileError::Invalid(reason)),
        Reply::TooLarge => return Err(CompileError::Output { max: limits.output() }),
        Reply::Broken => {}
    }
    let output = match output {
        Some(output) => output,
        None => errors.await,
    };
    let status = child.wait().await.map_err(|error| CompileError::Crashed(error.to_string()))?;
    Err(classify_exit(status, &String::from_utf8_lossy(&output), limits))
}

/// Writes the request. Returns the pipe, still open. Errors are ignored: a child that does not read has ended, and
/// its status has the reason.
async fn send(mut stdin: ChildStdin, bytes: &[u8]) -> ChildStdin {
    let size = (bytes.len() as u64).to_le_bytes();
    if stdin.write_all(&size).await.is_ok() && stdin.write_all(bytes).await.is_ok() {
        let _ = stdin.flush().await;
    }
    stdin
}

/// Reads a reply with a body of at most `most` bytes.
async fn receive(mut stdout: impl AsyncRead + Unpin, max: u64) -> Reply {
    let mut header = [0; HEADER];
    if stdout.read_exact(&mut header).await.is_err() {
        return Reply::Broken;
    }
    let [tag, size @ ..] = header;
    let size = u64::from_le_bytes(size);
    if size > max {
        return Reply::TooLarge;
    }
    let mut body = Vec::new();
    match stdout.take(size).read_to_end(&mut body).await {
        Ok(read) if read as u64 == size => {}
        Ok(_) | Err(_) => return Reply::Broken,
    }
    match tag {
        tag if tag == Tag::Code as u8 => Reply::Code(body),
        tag if tag == Tag::Error as u8 => Reply::Error(printable(&body)),
        _ => Reply::Broken,
    }
}

/// Reads to the end. Returns the last [`STDERR_TAIL`] bytes.
async fn read_tail(mut pipe: impl AsyncRead + Unpin) -> Vec<u8> {
    let (mut chunk, mut tail) = ([0; STDERR_TAIL], Vec::new());
    while let Ok(read @ 1..) = pipe.read(&mut chunk).await {
        tail.extend(chunk.iter().take(read));
        tail.drain(..tail.len().saturating_sub(STDERR_TAIL));
    }
    tail
}

/// Maps the exit status of a child without a reply to an error.
fn classify_exit(status: ExitStatus, output: &str, limits: &CompileLimits) -> CompileError {
    #[cfg(unix)]
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    #[cfg(not(unix))]
    let signal: Option<i32> = None;
    if signal == Some(SIGXCPU) {
        return CompileError::Time { time: limits.time };
    }
    if is_out_of_memory(output) {
        return CompileError::Memory { memory: limits.memory };
    }
    let output = printable(output.as_bytes());
    let last = output.lines().rev().find(|line| !line.trim().is_empty()).map(|line| format!(": {}", line.trim()));
    CompileError::Crashed(format!("{status}{}", last.unwrap_or_default()))
}

/// The signal at the limit of CPU time.
const SIGXCPU: i32 = 24;

/// Recognizes the messages of Rust and of the system for failed allocations.
fn is_out_of_memory(text: &str) -> bool {
    ["memory allocation of", "Cannot allocate memory", "out of memory"].iter().any(|words| text.contains(words))
}

/// Returns the text without control characters other than line breaks, since it is written to logs and terminals.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.get(..STDERR_TAIL).unwrap_or(bytes));
    text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect()
}

#[cfg(all(test, unix))]
mod tests;
