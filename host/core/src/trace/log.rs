//! Log lines of guests during a span.

use std::time::SystemTime;

/// Maximum number of lines of a span.
const MAX_LINES: usize = 100;

/// Maximum size in bytes of the lines of a span.
const MAX_BYTES: usize = 64 << 10;

/// A line that a guest has logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanLog {
    /// When it was logged.
    pub time: SystemTime,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: &'static str,
    /// The text of the line.
    pub text: String,
}

impl SpanLog {
    /// Returns about how many bytes of memory the line takes.
    pub fn size(&self) -> usize {
        size_of::<Self>() + self.text.len()
    }
}

/// The lines of a span: the first ones, at most 100 with 64 KiB together.
#[derive(Debug, Default)]
pub(super) struct SpanLogs {
    lines: Vec<SpanLog>,
    bytes: usize,
    dropped: u64,
}

impl SpanLogs {
    pub(super) fn add(&mut self, level: &'static str, text: &str) {
        // After the first dropped line, all later lines are dropped too, so that the kept lines have no gaps.
        if self.dropped > 0 || self.lines.len() >= MAX_LINES || self.bytes + text.len() > MAX_BYTES {
            self.dropped += 1;
            return;
        }
        self.bytes += text.len();
        self.lines.push(SpanLog { time: SystemTime::now(), level, text: text.to_owned() });
    }

    /// Returns the lines, and how many were dropped.
    pub(super) fn take(&mut self) -> (Vec<SpanLog>, u64) {
        let Self { lines, dropped, .. } = std::mem::take(self);
        (lines, dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_lines_are_kept() {
        let mut logs = SpanLogs::default();
        (0..150).for_each(|number| logs.add("info", &number.to_string()));
        let (lines, dropped) = logs.take();
        assert_eq!((lines.len(), dropped, lines[99].text.as_str()), (100, 50, "99"));
        logs.add("info", &"x".repeat(MAX_BYTES));
        logs.add("info", "y");
        let (lines, dropped) = logs.take();
        assert_eq!((lines.len(), dropped), (1, 1));
    }
}
