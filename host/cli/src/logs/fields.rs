//! The fields of log lines in text.

use std::fmt::{self, Debug};

use tracing::field::{Field, Visit};
use tracing_subscriber::field::{RecordFields, VisitOutput};
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, DefaultVisitor, Writer};

/// Formats fields as [`DefaultFields`] does. Every request has a span with three; without colours they are written
/// without the machinery of styles, which takes twice the time.
pub(super) struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        if writer.has_ansi_escapes() {
            return DefaultFields::new().format_fields(writer, fields);
        }
        let mut visitor = PlainVisitor { writer: &mut writer, is_empty: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct PlainVisitor<'a, 'writer> {
    writer: &'a mut Writer<'writer>,
    is_empty: bool,
    result: fmt::Result,
}

impl PlainVisitor<'_, '_> {
    fn write(&mut self, field: &Field, value: &dyn Debug) -> fmt::Result {
        if !self.is_empty {
            self.writer.write_char(' ')?;
        }
        self.is_empty = false;
        self.writer.write_str(field.name())?;
        self.writer.write_char('=')?;
        write!(self.writer, "{value:?}")
    }

    /// Leaves a field to the default visitor, which writes nothing for fields of the crate `log`.
    fn delegate(&mut self, field: &Field, record: impl FnOnce(&mut DefaultVisitor<'_>)) {
        if self.result.is_ok() {
            let mut visitor = DefaultVisitor::new(self.writer.by_ref(), self.is_empty);
            record(&mut visitor);
            self.result = visitor.finish();
            self.is_empty &= field.name().starts_with("log.");
        }
    }
}

impl Visit for PlainVisitor<'_, '_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if is_plain(field) {
            self.record_debug(field, &value)
        } else {
            self.delegate(field, |visitor| visitor.record_str(field, value))
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.delegate(field, |visitor| visitor.record_error(field, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if !is_plain(field) {
            self.delegate(field, |visitor| visitor.record_debug(field, value));
        } else if self.result.is_ok() {
            self.result = self.write(field, value);
        }
    }
}

/// Returns true for a field that is written as `name=value`.
fn is_plain(field: &Field) -> bool {
    !field.name().starts_with("log.") && !field.name().starts_with("r#") && field.name() != "message"
}

#[cfg(test)]
mod tests {
    use super::super::tests::Lines;
    use super::*;

    fn lines(fields: impl for<'writer> FormatFields<'writer> + Send + Sync + 'static, is_coloured: bool) -> String {
        let lines = Lines::default();
        let format = tracing_subscriber::fmt().with_writer(lines.clone()).without_time().with_ansi(is_coloured);
        tracing::subscriber::with_default(format.fmt_fields(fields).finish(), || {
            let span = tracing::info_span!("request", id = "a\"b\u{1b}", method = %"GET", late = tracing::field::Empty);
            let _entered = span.enter();
            let error = std::io::Error::other("it failed");
            tracing::info!(
                status = 200,
                ms = 0.5,
                r#type = "t",
                error = &error as &dyn std::error::Error,
                "a {}",
                "line"
            );
            span.record("late", "x y");
            tracing::info!(only = true);
        });
        lines.text()
    }

    #[test]
    fn fields_are_written_as_in_the_default_format() {
        for is_coloured in [false, true] {
            let expected = lines(DefaultFields::new(), is_coloured);
            assert!(
                expected.contains("request") && expected.contains("it failed") && expected.contains("x y"),
                "{expected}"
            );
            assert_eq!(lines(Fields, is_coloured), expected);
        }
    }
}
