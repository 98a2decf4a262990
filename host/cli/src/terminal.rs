//! Writing for people: colours, and text that came from models and tools.

use std::borrow::Cow;
use std::io::{self, IsTerminal};

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

/// True when the reader of stdout has gone, which is no failure of ours.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
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
    fn a_reader_that_has_gone_is_recognised() {
        let error = anyhow::Error::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("writing");
        assert!(is_closed(&error));
        assert!(!is_closed(&anyhow::anyhow!("something else")));
    }
}
