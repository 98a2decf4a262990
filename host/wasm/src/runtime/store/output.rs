//! What a guest says: its log lines, stdout and stderr go to the host's log, up to a limit for all three together.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hatchery_core::CallContext;
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use super::Caller;
use crate::runtime::limits::{Limit, LimitHit, Limits};

/// A line is logged when it ends or has this many bytes.
const MAX_LINE: usize = 4096;

/// What a line costs beside its own bytes: the host adds where it comes from.
const LINE_COST: usize = 128;

/// Most lines that one call gets in the audit log.
const MOST_AUDITED: u32 = 16;

/// How much of stderr's end is kept for the message of a crash.
const LAST_WORDS: usize = 1024;

/// Where a call's output goes. Clones share the budget.
#[derive(Clone)]
pub(crate) struct Output(Arc<Shared>);

struct Shared {
    component: Arc<str>,
    limits: Limits,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    whose: Arc<Whose>,
    used: u64,
    is_cut: bool,
    /// Lines in the audit log.
    audited: u32,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    last_words: String,
}

/// What a line is written for; empty where there is no session.
#[derive(Default)]
struct Whose {
    session: String,
    invocation: String,
}

impl Whose {
    fn of(caller: &Caller) -> Arc<Self> {
        let cx: Option<&CallContext> = match caller {
            Caller::Loader | Caller::Model => None,
            Caller::Call(cx) => Some(cx),
            Caller::Agent(cx, _) => Some(&cx.call),
        };
        let session = cx.map(|cx| cx.invocation.session_key.id.to_string()).unwrap_or_default();
        let invocation = cx.map(|cx| cx.invocation.id.clone()).unwrap_or_default();
        Arc::new(Self { session, invocation })
    }
}

impl Output {
    pub(super) fn new(component: Arc<str>, caller: &Caller, limits: &Limits) -> Self {
        let state = State { whose: Whose::of(caller), ..State::default() };
        Self(Arc::new(Shared { component, limits: limits.clone(), state: Mutex::new(state) }))
    }

    /// Begins anew for the next call of the same instance, with the whole budget and nothing of what was said.
    pub(super) fn renew(&self, caller: &Caller) {
        *self.state() = State { whose: Whose::of(caller), ..State::default() };
    }

    /// Writes a line of the guest's log.
    pub(crate) fn log(&self, level: &str, message: &str, fields: &[(String, String)]) -> Result<(), LimitHit> {
        let size = message.len() + fields.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        let whose = {
            let mut state = self.state();
            state.charge(size + LINE_COST, &self.0.limits)?;
            state.whose.clone()
        };
        let message = plain(message);
        let fields: String = fields.iter().map(|(key, value)| format!(" {}={}", plain(key), plain(value))).collect();
        let shared = &*self.0;
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(
                    target: "hatchery::component",
                    component = &*shared.component, session = whose.session, invocation = whose.invocation,
                    "{message}{fields}"
                )
            };
        }
        match level {
            "error" => line!(error),
            "warn" => line!(warn),
            "debug" => line!(debug),
            "trace" => line!(trace),
            _ => line!(info),
        }
        Ok(())
    }

    /// Lets `log` write a line of the audit log with these, the session and the invocation, unless there are enough of this call. They are
    /// not the guest's own words and take nothing from its budget.
    pub(crate) fn audit(&self, log: impl FnOnce(&str, &str)) {
        let shared = &*self.0;
        let (audited, whose) = {
            let mut state = self.state();
            state.audited = state.audited.saturating_add(1);
            (state.audited, state.whose.clone())
        };
        if audited <= MOST_AUDITED {
            log(&whose.session, &whose.invocation);
        } else if audited == MOST_AUDITED + 1 {
            tracing::warn!(
                target: "hatchery::audit",
                component = &*shared.component, session = whose.session, invocation = whose.invocation,
                "denied more than {MOST_AUDITED} times in one call; what follows is not logged"
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

    /// A writer for WASI.
    pub(super) fn stream(&self, name: &'static str) -> Stream {
        Stream { output: self.clone(), name }
    }

    /// The last lines of stderr, on one line.
    pub(super) fn last_words(&self) -> String {
        let state = self.state();
        let rest = String::from_utf8_lossy(&state.stderr);
        let words = format!("{}{rest}", state.last_words).split_whitespace().collect::<Vec<_>>().join(" ");
        plain(&words).into_owned()
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let is_stderr = name == "stderr";
        let buffered = if is_stderr { state.stderr.len() } else { state.stdout.len() };
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + (buffered + bytes.len()) / MAX_LINE;
        if let Err(hit) = state.charge(bytes.len() + lines * LINE_COST, &self.0.limits) {
            if !std::mem::replace(&mut state.is_cut, true) {
                tracing::warn!(component = &*self.0.component, "further output of the component is dropped: {hit}");
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
            lines.iter().for_each(|line| state.remember(line));
        }
        let whose = state.whose.clone();
        drop(state);
        for line in lines {
            let shared = &*self.0;
            tracing::info!(
                target: "hatchery::component",
                component = &*shared.component, session = whose.session, invocation = whose.invocation, stream = name,
                "{}", plain(line.trim_end())
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A text without line ends and other control characters, by which a guest could write lines that look like the host's.
pub(crate) fn plain(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\t' || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(is_control) {
        return text.into();
    }
    let escape = |c: char| if is_control(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().map(escape).collect()
}

fn full(buffer: &[u8]) -> Option<usize> {
    (buffer.len() >= MAX_LINE).then_some(MAX_LINE)
}

impl State {
    fn charge(&mut self, bytes: usize, limits: &Limits) -> Result<(), LimitHit> {
        let used = self.used.saturating_add(bytes as u64);
        if used > limits.log {
            return Err(limits.hit(Limit::Log));
        }
        self.used = used;
        Ok(())
    }

    fn remember(&mut self, line: &str) {
        self.last_words.push_str(line);
        let too_much = self.last_words.len().saturating_sub(LAST_WORDS);
        let cut = self.last_words.ceil_char_boundary(too_much);
        self.last_words.drain(..cut);
    }
}

/// stdout or stderr of a guest.
pub(super) struct Stream {
    output: Output,
    name: &'static str,
}

impl IsTerminal for Stream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Stream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(Self { output: self.output.clone(), name: self.name })
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(Self { output: self.output.clone(), name: self.name })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.output.write(self.name, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Stream {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Stream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.output.write(self.name, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(log: u64) -> Output {
        Output::new("talker".into(), &Caller::Loader, &Limits { log, ..Limits::default() })
    }

    #[test]
    fn log_lines_and_streams_share_one_budget() {
        let output = output(10 + 2 * 128);
        output.log("info", "12345", &[]).unwrap();
        output.write("stderr", b"123\n");
        let hit = output.log("info", "123", &[]).unwrap_err();
        assert_eq!(
            hit.to_string(),
            "it needs more than 266 B of log output; raise `limits.log` in hatchery.yaml to allow more"
        );
    }

    #[test]
    fn many_empty_lines_use_the_budget_up() {
        let talker = output(10 * 129);
        talker.write("stdout", &[b'\n'; 10]);
        assert!(talker.log("info", "", &[]).is_err());
        let talker = output(10 * 128);
        let written = (0..100).take_while(|_| talker.log("info", "", &[]).is_ok()).count();
        assert_eq!(written, 10);
        let talker = output(2 * (MAX_LINE as u64 + 128));
        talker.write("stderr", &[b'x'; 2 * MAX_LINE]);
        assert_eq!(talker.state().used, 2 * (MAX_LINE as u64 + 128), "a long line is several");
    }

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(plain("a\tb ü"), "a\tb ü");
        assert_eq!(
            plain("ok\n2026 ERROR\r\u{1b}[2K\0\u{85}\u{2028}"),
            "ok\\n2026 ERROR\\r\\u{1b}[2K\\u{0}\\u{85}\\u{2028}"
        );
        let talker = output(100_000);
        talker.write("stderr", b"\x1b[31mred");
        assert_eq!(talker.last_words(), "\\u{1b}[31mred");
    }

    #[test]
    fn the_last_words_are_the_end_of_stderr() {
        let output = output(100_000);
        output.write("stdout", b"not this\n");
        output.write("stderr", "ü".repeat(LAST_WORDS).as_bytes());
        output.write("stderr", b"\npanicked at\nsrc/lib.rs");
        let words = output.last_words();
        assert!(words.ends_with("ü panicked at src/lib.rs"), "{words}");
        assert!(!words.contains("not this"));
    }
}
