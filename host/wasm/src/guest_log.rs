//! Log output of guests: log lines, stdout and stderr go to the log of the host, within one budget for all three.
//!
//! Guests choose these texts freely, so control characters are escaped: a guest cannot write lines that look like
//! lines of the host, or escape sequences for terminals.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;
use hatchery_core::{CallContext, Invocation, SpanContext, escape_control};

use crate::runtime::limits::{Limit, LimitExceeded, Limits};

/// A longer line is logged in pieces of this many bytes.
const MAX_LINE: usize = 4096;

/// Bytes that each line counts in addition to its text, for the labels that the host adds.
const LINE_COST: usize = 128;

/// Bytes that a field of a line counts in addition to its name and value: a space and an equals sign.
const FIELD_COST: usize = 2;

/// Maximum number of lines of one call in the audit log.
const MAX_AUDIT_LINES: u32 = 16;

/// Number of bytes at the end of stderr that are stored for the error message of a crash.
const STDERR_TAIL: usize = 1024;

/// The log of one call. Clones share the budget.
#[derive(Clone)]
pub(crate) struct GuestLog(Arc<GuestLogInner>);

struct GuestLogInner {
    component: Arc<str>,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    labels: LogLabels,
    used: u64,
    is_cut: bool,
    /// Lines written to the audit log.
    audited: u32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    stderr_tail: String,
}

/// The run and the span that a line belongs to. Empty outside of sessions.
#[derive(Clone, Default)]
struct LogLabels {
    invocation: Option<Arc<Invocation>>,
    span: SpanContext,
}

impl LogLabels {
    fn new(cx: Option<&CallContext>) -> Self {
        let span = cx.map(|cx| cx.span().clone()).unwrap_or_default();
        Self { invocation: cx.map(|cx| cx.invocation.clone()), span }
    }

    fn session(&self) -> &str {
        self.invocation.as_ref().map(|invocation| &*invocation.session_key.id).unwrap_or_default()
    }

    fn invocation(&self) -> &str {
        self.invocation.as_ref().map(|invocation| invocation.id.as_str()).unwrap_or_default()
    }
}

impl GuestLog {
    pub(crate) fn new(component: Arc<str>, cx: Option<&CallContext>, limits: &Limits) -> Self {
        let state = State { labels: LogLabels::new(cx), ..State::default() };
        Self(Arc::new(GuestLogInner { component, limits: limits.clone(), state: Mutex::new(state) }))
    }

    /// Starts over for the next call of the same instance, with the full budget and an empty stderr tail. Logs the
    /// last lines of the call before.
    pub(crate) fn reset(&self, cx: Option<&CallContext>) {
        self.flush();
        *self.state() = State { labels: LogLabels::new(cx), ..State::default() };
    }

    /// Writes a line through the guest's `log` import.
    pub(crate) fn log(&self, level: &str, message: &str, fields: &[(String, String)]) -> Result<(), LimitExceeded> {
        let fields_size: usize = fields.iter().map(|(key, value)| key.len() + value.len() + FIELD_COST).sum();
        let size = message.len() + fields_size;
        let labels = {
            let mut state = self.state();
            state.charge(size + LINE_COST, &self.0.limits)?;
            state.labels.clone()
        };
        let message = escape_control(message);
        let fields: String =
            fields.iter().map(|(key, value)| format!(" {}={}", escape_control(key), escape_control(value))).collect();
        let shared = &*self.0;
        macro_rules! line {
            ($level:ident) => {{
                tracing::$level!(
                    target: "hatchery::component",
                    component = &*shared.component, session = labels.session(), invocation = labels.invocation(),
                    "{message}{fields}"
                );
                stringify!($level)
            }};
        }
        let level = match level {
            "error" => line!(error),
            "warn" => line!(warn),
            "debug" => line!(debug),
            "trace" => line!(trace),
            _ => line!(info),
        };
        if labels.span.is_recorded() {
            labels.span.add_log(level, &format!("{message}{fields}"));
        }
        Ok(())
    }

    /// Calls `log` with the session and the invocation to write a line of the audit log. A call has at most
    /// [`MAX_AUDIT_LINES`]; one further line reports that the rest is dropped. These lines are not text of the guest
    /// and do not count towards its budget.
    pub(crate) fn audit(&self, log: impl FnOnce(&str, &str)) {
        let shared = &*self.0;
        let (audited, labels) = {
            let mut state = self.state();
            state.audited = state.audited.saturating_add(1);
            (state.audited, state.labels.clone())
        };
        if audited <= MAX_AUDIT_LINES {
            log(labels.session(), labels.invocation());
        } else if audited == MAX_AUDIT_LINES + 1 {
            tracing::warn!(
                target: "hatchery::audit",
                component = &*shared.component, session = labels.session(), invocation = labels.invocation(),
                "denied more than {MAX_AUDIT_LINES} times in one call; further denials are not logged"
            );
        }
    }

    /// Writes to the audit log that a limit was exceeded. `limit` is its key in `hatchery.yaml`.
    pub(crate) fn report_limit(&self, limit: &str, detail: &dyn fmt::Display) {
        let component = &*self.0.component;
        self.audit(|session, invocation| {
            tracing::warn!(target: "hatchery::audit", component, session, invocation, limit, detail = %detail, "limit");
        });
    }

    /// Returns the end of stderr on one line.
    pub(crate) fn stderr_tail(&self) -> String {
        let state = self.state();
        let rest = String::from_utf8_lossy(&state.stderr);
        let words = format!("{}{rest}", state.stderr_tail).split_whitespace().collect::<Vec<_>>().join(" ");
        // A hint of Rust's panic handler that a reader of the message cannot follow.
        let words = words.replace(" note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", "");
        escape_control(&words).into_owned()
    }

    /// Buffers bytes of the stream `name` (`stdout` or `stderr`) and logs its complete lines. Over budget, output is
    /// dropped with one warning per call.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let is_stderr = name == "stderr";
        let buffered = if is_stderr { state.stderr.len() } else { state.stdout.len() };
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + (buffered + bytes.len()) / MAX_LINE;
        if let Err(exceeded) = state.charge(bytes.len() + lines * LINE_COST, &self.0.limits) {
            if !std::mem::replace(&mut state.is_cut, true) {
                tracing::warn!(
                    component = &*self.0.component,
                    "further output of the component is dropped: {exceeded}"
                );
            }
            return;
        }
        let mut lines = Vec::new();
        let buffer = if is_stderr { &mut state.stderr } else { &mut state.stdout };
        buffer.extend_from_slice(bytes);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n').map(|at| at + 1).or_else(|| full(buffer)) {
            let line: Vec<u8> = buffer.drain(..end).collect();
            lines.push(String::from_utf8_lossy(&line).into_owned());
        }
        if is_stderr {
            lines.iter().for_each(|line| state.append_stderr_tail(line));
        }
        let labels = state.labels.clone();
        drop(state);
        for line in lines {
            self.log_output(&labels, name, &line);
        }
    }

    /// Logs the last line of each stream that has no line break. Their bytes are charged already, and there are at
    /// most two such lines for each call.
    pub(crate) fn flush(&self) {
        let mut state = self.state();
        let stdout = String::from_utf8_lossy(&std::mem::take(&mut state.stdout)).into_owned();
        let stderr = String::from_utf8_lossy(&std::mem::take(&mut state.stderr)).into_owned();
        state.append_stderr_tail(&stderr);
        let labels = state.labels.clone();
        drop(state);
        for (name, line) in [("stdout", stdout), ("stderr", stderr)] {
            if !line.is_empty() {
                self.log_output(&labels, name, &line);
            }
        }
    }

    /// Logs a line of the stream `name`.
    fn log_output(&self, labels: &LogLabels, name: &str, line: &str) {
        let line = escape_control(line.trim_end());
        tracing::info!(
            target: "hatchery::component",
            component = &*self.0.component, session = labels.session(), invocation = labels.invocation(), stream = name,
            "{line}"
        );
        labels.span.add_log("info", &line);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock_unpoisoned()
    }
}

fn full(buffer: &[u8]) -> Option<usize> {
    (buffer.len() >= MAX_LINE).then_some(MAX_LINE)
}

impl State {
    fn charge(&mut self, bytes: usize, limits: &Limits) -> Result<(), LimitExceeded> {
        let used = self.used.saturating_add(bytes as u64);
        if used > limits.log {
            return Err(limits.exceeded(Limit::Log));
        }
        self.used = used;
        Ok(())
    }

    fn append_stderr_tail(&mut self, line: &str) {
        self.stderr_tail.push_str(line);
        let too_much = self.stderr_tail.len().saturating_sub(STDERR_TAIL);
        let cut = self.stderr_tail.ceil_char_boundary(too_much);
        self.stderr_tail.drain(..cut);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Dispatch, Metadata, Subscriber};

    use super::*;

    fn new_log(budget: u64) -> GuestLog {
        GuestLog::new("talker".into(), None, &Limits { log: budget, ..Limits::default() })
    }

    #[test]
    fn log_lines_and_streams_share_one_budget() {
        let log = new_log(10 + 2 * 128);
        log.log("info", "12345", &[]).unwrap();
        log.write("stderr", b"123\n");
        let exceeded = log.log("info", "123", &[]).unwrap_err();
        assert_eq!(
            exceeded.to_string(),
            "it exceeded its limit of 266 B of log output; raise `limits.log` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn many_empty_lines_use_the_budget_up() {
        let log = new_log(10 * 129);
        log.write("stdout", &[b'\n'; 10]);
        assert!(log.log("info", "", &[]).is_err());
        let log = new_log(10 * 128);
        let written = (0..100).take_while(|_| log.log("info", "", &[]).is_ok()).count();
        assert_eq!(written, 10);
        let log = new_log(2 * (MAX_LINE as u64 + 128));
        log.write("stderr", &[b'x'; 2 * MAX_LINE]);
        assert_eq!(log.state().used, 2 * (MAX_LINE as u64 + 128), "a long line is several");
    }

    #[test]
    fn many_empty_fields_use_the_budget_up() {
        let log = new_log(128 + 20);
        let fields = vec![(String::new(), String::new()); 11];
        assert!(log.log("info", "", &fields).is_err());
        log.log("info", "", &fields[1..]).unwrap();
    }

    #[test]
    fn control_characters_are_escaped() {
        let log = new_log(100_000);
        log.write("stderr", b"\x1b[31mred");
        assert_eq!(log.stderr_tail(), "\\u{1b}[31mred");
    }

    #[test]
    fn the_tail_is_the_end_of_stderr() {
        let log = new_log(100_000);
        log.write("stdout", b"not this\n");
        log.write("stderr", "ü".repeat(STDERR_TAIL).as_bytes());
        log.write("stderr", b"\npanicked at\nsrc/lib.rs");
        let tail = log.stderr_tail();
        assert!(tail.ends_with("ü panicked at src/lib.rs"), "{tail}");
        assert!(!tail.contains("not this"));
    }

    #[test]
    fn the_last_line_of_a_stream_needs_no_line_break() {
        let log = new_log(100_000);
        log.write("stdout", b"one\ntwo");
        log.write("stderr", b"three");
        LazyLock::force(&SECOND_SUBSCRIBER);
        let lines = CapturedLines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            log.flush();
            log.flush();
        });
        assert_eq!(*lines.0.lock_unpoisoned(), ["stdout two", "stderr three"]);
        assert_eq!(log.stderr_tail(), "three");
        log.write("stdout", b"four");
        tracing::subscriber::with_default(lines.clone(), || log.reset(None));
        assert_eq!(lines.0.lock_unpoisoned().last().unwrap(), "stdout four", "the next call starts with empty streams");
    }

    /// With a single subscriber, an event that a thread without one records first would be disabled for all threads.
    static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(CapturedLines::default()));

    /// Captures the streams and the texts of lines.
    #[derive(Clone, Default)]
    struct CapturedLines(Arc<Mutex<Vec<String>>>);

    #[derive(Default)]
    struct Line {
        stream: String,
        text: String,
    }

    impl Visit for Line {
        fn record_str(&mut self, field: &Field, value: &str) {
            if field.name() == "stream" {
                self.stream = value.into();
            }
        }

        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            if field.name() == "message" {
                self.text = format!("{value:?}");
            }
        }
    }

    impl Subscriber for CapturedLines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.lock_unpoisoned().push(format!("{} {}", line.stream, line.text));
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }
}
