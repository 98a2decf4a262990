//! The view of a host in a terminal.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::Value;

use super::host_client::{Snapshot, Stats};
use crate::terminal::{BOLD, DIM, ERROR, TerminalMode, stdout, truncate};

/// Maximum number of lines of each list.
const MAX_LINES: usize = 15;

/// A terminal in raw mode, which reports each key immediately and cuts off long lines. The drop restores it. Without
/// `stty`, keys need the return key.
pub(super) struct RawTerminal {
    _mode: TerminalMode,
}

impl RawTerminal {
    pub(super) fn enter() -> Self {
        let mode = TerminalMode::change(&["-icanon", "-echo", "min", "1"]);
        // The alternate screen, without the cursor and without wrapping lines.
        write("\x1b[?1049h\x1b[?25l\x1b[?7l");
        Self { _mode: mode }
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        write("\x1b[?7h\x1b[?25h\x1b[?1049l");
    }
}

/// Writes to the terminal. One that is closed needs no view.
fn write(text: &str) {
    let mut out = stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Returns the view as lines.
pub(super) fn render(snapshot: &Snapshot) -> String {
    let mut view = head(&snapshot.stats);
    runs(&mut view, &snapshot.stats);
    components(&mut view, &snapshot.stats);
    events(&mut view, &snapshot.events);
    view
}

/// Returns the lines of a view that the terminal has room for: further ones would scroll the first away.
pub(super) fn clip(view: &str, height: Option<usize>) -> String {
    view.lines().take(height.unwrap_or(usize::MAX)).collect::<Vec<_>>().join("\n")
}

fn head(stats: &Stats) -> String {
    let resident =
        stats.memory.resident_bytes.map(|bytes| format!("memory {}, ", mebibytes(bytes))).unwrap_or_default();
    format!(
        "{BOLD}hatchery {}{BOLD:#}  up {}  {resident}bodies {} of {}  runs {} of {}  apps {}  components {}",
        truncate(&stats.version, 20),
        duration(stats.uptime_seconds),
        mebibytes(stats.memory.body_bytes),
        mebibytes(stats.memory.max_body_bytes),
        stats.runs.active,
        stats.runs.max,
        stats.apps,
        stats.components.len(),
    )
}

fn runs(view: &mut String, stats: &Stats) {
    heading(view, &format!("{}{}TIME", ["APP", "USER", "SESSION"].map(column).concat(), id_column("RUN")));
    let runs = &stats.runs.in_progress;
    for run in runs.iter().take(MAX_LINES) {
        let columns = [&run.app_name, &run.user_id, &run.session_id].map(|text| column(text));
        line(view, &format!("{}{}{}", columns.concat(), id_column(&run.id), duration(run.seconds)));
    }
    write_remaining_count(view, runs.len());
}

fn components(view: &mut String, stats: &Stats) {
    heading(view, &format!("{}IDLE", ["COMPONENT", "CALLS"].map(column).concat()));
    let mut components: Vec<_> = stats.components.iter().collect();
    components.sort_by_key(|component| std::cmp::Reverse(component.calls));
    for component in components.iter().take(MAX_LINES) {
        let (calls, idle) = (component.calls.to_string(), component.waiting_instances.to_string());
        line(view, &format!("{}{}{idle}", column(&component.name), column(&calls)));
    }
    write_remaining_count(view, components.len());
    for file in stats.failed.iter().take(MAX_LINES) {
        let reason = file.reason.lines().next().unwrap_or_default();
        line(view, &format!("{ERROR}{}{ERROR:#}  {}", truncate(&file.path, 60), truncate(reason, 100)));
    }
}

fn events(view: &mut String, events: &[Value]) {
    heading(view, "EVENT");
    for event in events {
        let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
        let subject = ["app", "component", "name", "path"].map(text).into_iter().find(|text| !text.is_empty());
        let error = ["error", "reason"].map(text).into_iter().find(|text| !text.is_empty()).unwrap_or_default();
        let columns = [text("kind"), subject.unwrap_or_default()].map(column).concat();
        line(view, &format!("{columns}{}", truncate(error.lines().next().unwrap_or_default(), 80)));
    }
}

fn heading(view: &mut String, columns: &str) {
    line(view, "");
    line(view, &format!("{DIM}{columns}{DIM:#}"));
}

fn write_remaining_count(view: &mut String, count: usize) {
    if count > MAX_LINES {
        line(view, &format!("{DIM}and {} more{DIM:#}", count - MAX_LINES));
    }
}

fn line(view: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(view, "\n{text}");
}

/// Returns a string from a client in a column. Control characters in it are visible.
fn column(text: &str) -> String {
    format!("{:<24}", truncate(text, 22))
}

/// Like [`column`], for the whole id of a run.
fn id_column(text: &str) -> String {
    format!("{:<40}", truncate(text, 38))
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

fn duration(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn snapshot() -> Snapshot {
        let run = |id: usize| json!({"id": format!("e-{id}"), "appName": "dice", "userId": "ada\x1b[2J", "sessionId": "s", "seconds": 75.0});
        let stats = json!({
            "version": "1.0.0", "uptimeSeconds": 7260.0, "apps": 2,
            "memory": {"residentBytes": 10 << 20, "bodyBytes": 1, "maxBodyBytes": 512 << 20},
            "runs": {"active": 17, "max": 512, "inProgress": (0..17).map(run).collect::<Vec<_>>()},
            "components": [
                {"name": "idle", "calls": 0, "waitingInstances": 4}, {"name": "busy", "calls": 3, "waitingInstances": 1},
            ],
            "failed": [{"path": "broken.wasm", "reason": "not a component\nmore"}],
        });
        let events = vec![json!({"kind": "runEnded", "app": "dice", "error": "CANCELLED"})];
        Snapshot { stats: serde_json::from_value(stats).unwrap(), events }
    }

    #[test]
    fn a_view_has_the_runs_the_components_and_the_events() {
        let view = anstream::adapter::strip_str(&render(&snapshot())).to_string();
        let head =
            "hatchery 1.0.0  up 2:01 h  memory 10 MiB, bodies 1 MiB of 512 MiB  runs 17 of 512  apps 2  components 2";
        assert!(view.starts_with(head), "{view}");
        let words: Vec<Vec<&str>> = view.lines().map(|line| line.split_whitespace().collect()).collect();
        let has = |words_of: &[&str]| words.iter().any(|line| line == words_of);
        assert!(has(&["dice", "ada\\u{1b}[2J", "s", "e-14", "1:15", "min"]), "{view}");
        assert!(!view.contains("e-15") && has(&["and", "2", "more"]), "{view}");
        let place = |name: &str| view.find(name).unwrap();
        assert!(place("busy") < place("idle"), "{view}");
        assert!(has(&["broken.wasm", "not", "a", "component"]), "{view}");
        assert!(has(&["runEnded", "dice", "CANCELLED"]), "{view}");
    }

    #[test]
    fn a_view_has_at_most_the_lines_of_the_terminal() {
        assert_eq!(clip("a\n\nb\nc", Some(3)), "a\n\nb");
        assert_eq!(clip("a\nb", Some(3)), "a\nb");
        assert_eq!(clip("a\nb", None), "a\nb");
    }

    #[test]
    fn durations_have_a_unit() {
        for (seconds, expected) in [(0.25, "0.2 s"), (59.9, "59.9 s"), (61.0, "1:01 min"), (3600.0, "1:00 h")] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
