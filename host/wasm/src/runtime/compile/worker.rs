//! Main function of the child process that compiles one component: restricts itself, reads the component from stdin
//! and writes native code to stdout.
//!
//! Request: the number of bytes (8 bytes, little endian) and the component. Reply: a tag, the number of bytes, and
//! code or the text of an error. The parent keeps stdin open until it has the reply, so the end of stdin means that
//! the parent is gone.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::process::ExitCode;

use crate::runtime::engine;

/// Command line arguments of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WorkerLimits {
    /// Bytes of address space.
    pub(super) memory: u64,
    /// Seconds of CPU time.
    pub(super) cpu_seconds: u64,
    pub(super) threads: NonZeroU32,
}

/// The first byte of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    Code = 1,
    Error = 2,
}

/// Bytes before the body of a reply.
pub(super) const HEADER: usize = 9;

impl WorkerLimits {
    pub(super) fn to_args(self) -> [String; 3] {
        [self.memory.to_string(), self.cpu_seconds.to_string(), self.threads.to_string()]
    }

    fn from_args(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter().map(|arg| arg.into_string().ok());
        let mut next = || args.next().flatten();
        let (memory, cpu_seconds) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let limits = Self { memory, cpu_seconds, threads: next()?.parse().ok()? };
        next().is_none().then_some(limits)
    }
}

/// Compiles one component for the parent process. `args` are those that the parent appends to
/// [`super::Worker::ChildProcess`]. Call it first in `main`: code before it runs without limits.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Some(limits) = WorkerLimits::from_args(args) else {
        eprintln!("this command is for the host's own use");
        return ExitCode::from(2);
    };
    let result = restrict(limits).and_then(|()| serve(limits));
    if let Err(error) = result {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn serve(limits: WorkerLimits) -> io::Result<()> {
    let mut stdin = io::stdin().lock();
    let mut size = [0; 8];
    stdin.read_exact(&mut size)?;
    let size = u64::from_le_bytes(size);
    let mut bytes = Vec::new();
    (&mut stdin).take(size).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    drop(stdin);
    std::thread::Builder::new().name("parent".into()).spawn(exit_with_parent)?;
    let compiled = engine::compiler(limits.threads).and_then(|engine| engine.precompile_component(&bytes));
    let (tag, body) = match compiled {
        Ok(code) => (Tag::Code, code),
        Err(error) => (Tag::Error, format!("{error:#}").into_bytes()),
    };
    let mut stdout = io::stdout().lock();
    stdout.write_all(&[tag as u8])?;
    stdout.write_all(&(body.len() as u64).to_le_bytes())?;
    stdout.write_all(&body)?;
    stdout.flush()
}

/// Exits when the parent closes stdin, or is killed.
fn exit_with_parent() {
    // Both the end and an error mean that the parent is gone.
    let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
    std::process::exit(1);
}

/// Drops rights that compiling does not need. Descriptors 0 to 2 are open; no further file or socket can be opened.
#[cfg(unix)]
fn restrict(limits: WorkerLimits) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};

    /// Lower priority than the serving host.
    const NICE: i32 = 10;

    let limit = |soft: u64, hard: u64| Rlimit { current: Some(soft), maximum: Some(hard) };
    // SIGXCPU at the soft limit shows the parent the reason; at the hard limit the system kills the process.
    setrlimit(Resource::Cpu, limit(limits.cpu_seconds, limits.cpu_seconds.saturating_add(1)))?;
    setrlimit(Resource::As, limit(limits.memory, limits.memory))?;
    setrlimit(Resource::Core, limit(0, 0))?;
    setrlimit(Resource::Fsize, limit(0, 0))?;
    setrlimit(Resource::Nofile, limit(3, 3))?;
    // This fails if the priority of the parent is lower already.
    let _ = nice(NICE);
    Ok(())
}

#[cfg(not(unix))]
fn restrict(_: WorkerLimits) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read_as_they_were_written() {
        let limits = WorkerLimits { memory: 2 << 30, cpu_seconds: 60, threads: NonZeroU32::MIN };
        let args = |args: &[String]| WorkerLimits::from_args(args.iter().map(OsString::from));
        assert_eq!(args(&limits.to_args()), Some(limits));
        assert_eq!(args(&limits.to_args()[..2]), None);
        assert_eq!(args(&["1".into(), "1".into(), "0".into()]), None);
        assert_eq!(args(&["1".into(), "1".into(), "1".into(), "1".into()]), None);
    }
}
