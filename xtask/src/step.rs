//! Numbered steps with their durations, printed as plain lines, and commands that must succeed.

use std::fmt;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context;

/// A sequence of steps, shown on stderr.
pub struct Steps {
    total: usize,
    started: usize,
    start: Instant,
}

impl Steps {
    /// Starts a sequence of `total` steps.
    pub fn new(total: usize) -> Self {
        Self { total, started: 0, start: Instant::now() }
    }

    /// Prints the title of the next step.
    pub fn announce(&mut self, title: &str) {
        self.started += 1;
        eprintln!("[{}/{}] {title}", self.started, self.total);
    }

    /// Runs a step and prints its duration.
    pub fn run(&mut self, title: &str, work: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.announce(title);
        let start = Instant::now();
        let result = work();
        let outcome = if result.is_ok() { "done" } else { "failed" };
        eprintln!("[{}/{}] {outcome} after {}", self.started, self.total, format_duration(start.elapsed()));
        result
    }

    /// Prints the duration of the whole sequence.
    pub fn finish(self) {
        eprintln!("finished after {}", format_duration(self.start.elapsed()));
    }
}

fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 60.. => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

/// A command that exited with an error, which it has printed itself.
#[derive(Debug)]
pub struct CommandFailed {
    command: String,
    status: ExitStatus,
}

impl CommandFailed {
    /// Returns the command's exit code, or 1 if a signal ended it.
    pub fn exit_code(&self) -> ExitCode {
        self.status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
    }
}

impl fmt::Display for CommandFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` failed ({})", self.command, self.status)
    }
}

impl std::error::Error for CommandFailed {}

/// Runs a command to the end, with our output as its output.
pub fn run_command(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", command_line(command)))?;
    if status.success() {
        return Ok(());
    }
    Err(CommandFailed { command: command_line(command), status }.into())
}

/// Returns the command as one would type it, with the program's file name only.
fn command_line(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = std::iter::once(name).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_shown_in_seconds_and_then_in_minutes() {
        assert_eq!(format_duration(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(format_duration(Duration::from_secs(59)), "59.0 s");
        assert_eq!(format_duration(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn a_failed_command_is_named_and_its_exit_code_is_kept() {
        let error = run_command(Command::new("/bin/sh").args(["-c", "exit 7"])).unwrap_err();
        let failed = error.downcast_ref::<CommandFailed>().unwrap();
        assert!(failed.to_string().starts_with("`sh -c exit 7` failed"), "{failed}");
        assert_eq!(failed.exit_code(), ExitCode::from(7));
        assert!(run_command(&mut Command::new("true")).is_ok());
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run_command(&mut Command::new("/no/such/program")).unwrap_err().to_string();
        assert_eq!(error, "cannot start program");
    }
}
