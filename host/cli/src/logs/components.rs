//! The log lines of components, for the people who write them.

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use crate::terminal::{DIM, ERROR, WARNING};

/// The target of the lines.
const TARGET: &str = "hatchery::component";

/// A line break in the text of a component, as the host logs it.
const ESCAPED_BREAK: &str = "\\n";

/// Begins each further line of a text. A component cannot imitate the beginning of a line of the log.
const INDENT: &str = "\n    ";

/// Formats the lines of components as level, component and text, such as a traceback, with its line breaks. Formats
/// other lines as [`Format`] does.
#[derive(Default)]
pub(super) struct ComponentFormat(Format);

impl<S, N> FormatEvent<S, N> for ComponentFormat
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, cx: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() != TARGET {
            return self.0.format_event(cx, writer, event);
        }
        let mut line = ComponentLine::default();
        event.record(&mut line);
        line.write(*event.metadata().level(), writer)
    }
}

#[derive(Default)]
struct ComponentLine {
    component: String,
    text: String,
}

impl ComponentLine {
    fn write(&self, level: Level, mut writer: Writer<'_>) -> fmt::Result {
        if writer.has_ansi_escapes() {
            let style = match level {
                Level::ERROR => ERROR,
                Level::WARN => WARNING,
                _ => DIM,
            };
            write!(writer, "{style}{level:>5}{style:#}")?;
        } else {
            write!(writer, "{level:>5}")?;
        }
        writeln!(writer, " {}: {}", self.component, self.text.replace(ESCAPED_BREAK, INDENT))
    }
}

impl Visit for ComponentLine {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "component" {
            self.component = value.to_owned();
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.text = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Lines;
    use super::*;

    fn lines(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let format = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false);
        tracing::subscriber::with_default(format.event_format(ComponentFormat::default()).finish(), log);
        lines.text()
    }

    #[test]
    fn a_traceback_of_a_component_has_its_line_breaks() {
        let log = || {
            let text = "Traceback:\\n  File \"app.py\", line 1\\nKeyError: 'x'";
            tracing::error!(target: "hatchery::component", component = "dice", session = "s", "{text}");
        };
        assert_eq!(lines(log), "ERROR dice: Traceback:\n      File \"app.py\", line 1\n    KeyError: 'x'\n");
        let log = || tracing::info!(target: "hatchery::component", component = "dice", stream = "stdout", "one");
        assert_eq!(lines(log), " INFO dice: one\n");
    }

    #[test]
    fn a_line_of_the_host_is_unchanged() {
        let line = lines(|| tracing::warn!(target: "hatchery::audit", component = "dice", "denied\\nagain"));
        assert!(line.ends_with(" WARN hatchery::audit: denied\\nagain component=\"dice\"\n"), "{line}");
    }
}
