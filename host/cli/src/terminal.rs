//! Writing for people: colours, and text that came from models and tools.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};

/// Of what matters less.
pub const DIM: Style = Style::new().dimmed();
/// Of what went wrong.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();
/// Of what is as it should be.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Of headings.
pub const BOLD: Style = Style::new().bold();

/// True when log lines may be coloured.
pub fn stderr_has_colours() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Stdout, with colours where it has them. Every write to stdout goes through this or [`plain_stdout`]: they tell a reader that has gone
/// from any other broken pipe.
pub fn stdout() -> impl Write {
    Stdout(anstream::stdout())
}

/// Stdout for programs.
pub fn plain_stdout() -> impl Write {
    Stdout(io::stdout())
}

struct Stdout<W>(W);

/// The cause of an error that says that the reader of our stdout has gone.
#[derive(Debug)]
struct ReaderGone;

impl std::fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody reads stdout any more")
    }
}

impl std::error::Error for ReaderGone {}

fn tagged(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe => io::Error::new(io::ErrorKind::BrokenPipe, ReaderGone),
        _ => error,
    }
}

impl<W: Write> Write for Stdout<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(tagged)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(tagged)
    }
}

/// True when the reader of stdout has gone, which is no failure of ours.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause.is_some_and(|cause| cause.is::<ReaderGone>())
    })
}

/// An error with its causes, each said once: many messages hold their cause's already.
pub fn explain(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .reduce(|said, cause| if said.contains(&cause) { said } else { format!("{said}: {cause}") })
        .unwrap_or_default()
}

/// Text from elsewhere without what would steer the terminal: control characters become visible.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(steers) {
        return text.into();
    }
    text.chars().map(|c| if steers(c) { c.escape_unicode().to_string() } else { c.to_string() }).collect()
}

/// A text in one line of at most `most` characters.
pub fn shortened(text: &str, most: usize) -> String {
    let text = harmless(text).replace('\n', "\\n");
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_elsewhere_cannot_steer_the_terminal() {
        assert_eq!(harmless("two\nlines\tand ü"), "two\nlines\tand ü");
        assert_eq!(harmless("\x1b]0;title\x07\r"), "\\u{1b}]0;title\\u{7}\\u{d}");
    }

    #[test]
    fn long_texts_are_shortened_at_a_character() {
        assert_eq!(shortened("ääää", 3), "äää…");
        assert_eq!(shortened("a\nb", 9), "a\\nb");
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = || anyhow::anyhow!("no such file");
        assert_eq!(explain(&cause().context("x.yaml")), "x.yaml: no such file");
        assert_eq!(explain(&cause().context("x.yaml: no such file; make it")), "x.yaml: no such file; make it");
    }

    #[test]
    fn only_a_reader_of_stdout_that_has_gone_is_no_failure() {
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
        assert!(is_closed(&context(writeln!(Stdout(Broken), "x").unwrap_err())));
        assert!(is_closed(&context(Stdout(Broken).flush().unwrap_err())));
        assert!(!is_closed(&context(writeln!(Broken, "x").unwrap_err())));
        assert!(!is_closed(&anyhow::anyhow!("something else")));
    }
}
