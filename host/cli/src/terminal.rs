//! Terminal output: styles, stdout, and text from models, tools and other untrusted sources.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use anstyle::{AnsiColor, Style};
use hatchery_core::{Timestamp, truncate_chars};

use crate::flags::flags_for;

/// Style of less important text.
pub const DIM: Style = Style::new().dimmed();
/// Style of errors.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Style of warnings.
pub const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Style of successful checks.
pub const SUCCESS: Style = AnsiColor::Green.on_default();
/// Style of headings.
pub const BOLD: Style = Style::new().bold();

/// Returns true if log lines may have colours. As for stdout, an empty `NO_COLOR` does not switch them off.
pub fn stderr_has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns stdout, with colours if it supports them. All output to stdout goes through this or [`plain_stdout`], so
/// that [`is_stdout_closed`] can tell a closed stdout from other broken pipes.
pub fn stdout() -> impl Write {
    Stdout(anstream::stdout())
}

/// Returns stdout for JSON, without changes to the bytes.
pub fn plain_stdout() -> impl Write {
    Stdout(io::stdout())
}

struct Stdout<W>(W);

/// The cause of write errors if the reader of stdout has closed the pipe.
#[derive(Debug)]
struct StdoutClosed;

impl std::fmt::Display for StdoutClosed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("stdout is closed")
    }
}

impl std::error::Error for StdoutClosed {}

fn mark_closed(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, StdoutClosed),
        _ => error,
    }
}

impl<W: Write> Write for Stdout<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark_closed)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark_closed)
    }
}

/// Returns true if the error is that the reader of stdout has closed the pipe, as `head` does. That is not a failure.
pub fn is_stdout_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.is_some_and(|cause| cause.is::<StdoutClosed>())
    })
}

/// Formats an error with its causes and the flags that help. A cause that the message already contains is not repeated.
pub fn format_error(error: &anyhow::Error) -> String {
    let causes = error.chain().map(ToString::to_string);
    let message = causes
        .reduce(|message, cause| if message.contains(&cause) { message } else { format!("{message}: {cause}") })
        .unwrap_or_default();
    match flags_for(error) {
        Some(flags) => format!("{message} ({flags})"),
        None => message,
    }
}

/// Settings of the terminal of stdin. The drop restores the previous ones.
pub struct TerminalMode {
    /// The settings before, in the format of `stty`; `None` if nothing was changed.
    previous: Option<String>,
}

impl TerminalMode {
    /// Changes settings, which are arguments of `stty`. Does nothing without a terminal or that command.
    pub fn change(settings: &[&str]) -> Self {
        let previous = io::stdin().is_terminal().then(|| stty(&["-g"])).flatten();
        if previous.is_some() {
            stty(settings);
        }
        Self { previous }
    }

    /// Returns true if the settings were changed.
    pub fn is_changed(&self) -> bool {
        self.previous.is_some()
    }
}

impl Drop for TerminalMode {
    fn drop(&mut self) {
        if let Some(previous) = &self.previous {
            stty(&[previous.trim()]);
        }
    }
}

/// Returns the number of lines of the terminal of stdin. `None` if there is no terminal, or it does not say.
pub fn terminal_height() -> Option<usize> {
    let size = io::stdin().is_terminal().then(|| stty(&["size"])).flatten()?;
    size.split_whitespace().next()?.parse::<usize>().ok().filter(|lines| *lines > 0)
}

/// Returns the output of `stty` for the terminal of stdin.
fn stty(args: &[&str]) -> Option<String> {
    let output = Command::new("stty").args(args).stdin(Stdio::inherit()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the string with visible control characters instead of ones that control the terminal. Line breaks and tabs
/// are kept.
pub fn escape_control(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_escaped) {
        return text.into();
    }
    text.chars().map(|c| if is_escaped(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// Returns a path with visible control characters. The author of a folder chooses the names in it.
pub fn printable_path(path: &Path) -> String {
    escape_control(&path.display().to_string()).into_owned()
}

/// Returns the string as one line of at most `max_chars` characters.
pub fn truncate(text: &str, max_chars: usize) -> String {
    truncate_chars(&escape_control(text).replace('\n', "\\n"), max_chars)
}

/// Joins names for an error message. Returns `none` if there are none.
pub fn list_names(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

/// Returns a time as HTTP writes it, in UTC.
pub fn http_date(timestamp: Timestamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs_f64(timestamp.as_seconds().max(0.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        assert_eq!(escape_control("two\nlines\tand ü"), "two\nlines\tand ü");
        assert_eq!(escape_control("\x1b]0;title\x07\r"), "\\u{1b}]0;title\\u{7}\\u{d}");
    }

    #[test]
    fn long_texts_are_truncated_at_a_character() {
        assert_eq!(truncate("ääää", 3), "äää…");
        assert_eq!(truncate("a\nb", 9), "a\\nb");
    }

    #[test]
    fn a_cause_is_not_repeated() {
        let cause = || anyhow::anyhow!("no such file");
        assert_eq!(format_error(&cause().context("x.yaml")), "x.yaml: no such file");
        assert_eq!(format_error(&cause().context("x.yaml: no such file; make it")), "x.yaml: no such file; make it");
    }

    #[test]
    fn names_are_joined_by_commas() {
        assert_eq!((list_names(&[]), list_names(&["a".into(), "b".into()])), ("none".into(), "a, b".into()));
    }

    #[test]
    fn only_a_closed_stdout_is_no_failure() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let context = |error: io::Error| anyhow::Error::from(error).context("writing");
        assert!(is_stdout_closed(&context(writeln!(Stdout(Broken), "x").unwrap_err())));
        assert!(is_stdout_closed(&context(Stdout(Broken).flush().unwrap_err())));
        assert!(!is_stdout_closed(&context(writeln!(Broken, "x").unwrap_err())));
        assert!(!is_stdout_closed(&anyhow::anyhow!("something else")));
    }
}
