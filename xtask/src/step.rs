//! Progress in plain lines, with the time that each step took, and commands that must succeed.

use std::fmt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Numbered steps, shown on stderr.
pub struct Steps {
    total: usize,
    begun: usize,
    start: Instant,
}

impl Steps {
    /// So many steps, the first of which starts now.
    pub fn new(total: usize) -> Self {
        Self { total, begun: 0, start: Instant::now() }
    }

    /// Shows what starts now.
    pub fn announce(&mut self, what: &str) {
        self.begun += 1;
        eprintln!("[{}/{}] {what}", self.begun, self.total);
    }

    /// Does a step and shows how long it took.
    pub fn run(&mut self, what: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.announce(what);
        let start = Instant::now();
        let result = work();
        let outcome = if result.is_ok() { "done" } else { "failed" };
        eprintln!("[{}/{}] {outcome} after {}", self.begun, self.total, shown(start.elapsed()));
        result
    }

    /// Shows how long everything took.
    pub fn finish(self) {
        eprintln!("finished after {}", shown(self.start.elapsed()));
    }
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 60.. => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// A command that ran and failed. What went wrong it has said itself.
#[derive(Debug)]
pub struct Failed {
    command: String,
    status: ExitStatus,
}

impl Failed {
    /// The command's own exit code; 1 when a signal ended it.
    pub fn exit_code(&self) -> ExitCode {
        self.status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` failed ({})", self.command, self.status)
    }
}

impl std::error::Error for Failed {}

/// Runs a command to its end, with its output where ours goes.
pub fn succeed(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if status.success() {
        return Ok(());
    }
    Err(Failed { command: words(command), status }.into())
}

/// The command as one would type it, with the program's name alone.
fn words(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_seconds_and_then_minutes() {
        assert_eq!(shown(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(shown(Duration::from_secs(59)), "59.0 s");
        assert_eq!(shown(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn a_command_that_fails_is_named_and_lends_its_exit_code() {
        let error = succeed(Command::new("/bin/sh").args(["-c", "exit 7"])).unwrap_err();
        let failed = error.downcast_ref::<Failed>().unwrap();
        assert!(failed.to_string().starts_with("`sh -c exit 7` failed"), "{failed}");
        assert_eq!(failed.exit_code(), ExitCode::from(7));
        assert!(succeed(&mut Command::new("true")).is_ok());
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = succeed(&mut Command::new("/no/such/program")).unwrap_err().to_string();
        assert_eq!(error, "cannot start program");
    }
}
