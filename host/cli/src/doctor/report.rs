//! The report of `hatchery doctor`: findings of each check, as text or JSON.

use std::io::{self, Write};

use hatchery_core::pluralize;
use serde::Serialize;

use crate::terminal::{BOLD, DIM, ERROR, SUCCESS, WARNING, escape_control};

#[derive(Debug, Serialize)]
pub struct Report {
    /// False if there is an error.
    #[serde(rename = "ok")]
    pub is_ok: bool,
    checks: Vec<CheckResults>,
}

/// The findings of one check.
#[derive(Debug, Serialize)]
pub struct CheckResults {
    name: &'static str,
    findings: Vec<Finding>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    level: Level,
    message: String,
    /// A command, or lines to add to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Ok,
    Warning,
    Error,
}

impl Finding {
    /// Creates a finding that something works.
    pub fn ok(message: impl Into<String>) -> Self {
        Self { level: Level::Ok, message: message.into(), fix: None }
    }

    /// Creates a finding that something works, but possibly not as intended.
    pub fn warning(message: impl Into<String>) -> Self {
        Self { level: Level::Warning, ..Self::ok(message) }
    }

    /// Creates a finding that something does not work.
    pub fn error(message: impl Into<String>) -> Self {
        Self { level: Level::Error, ..Self::ok(message) }
    }

    /// Adds a command, or lines to add to a file.
    #[must_use]
    pub fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (style, sign) = match self.level {
            Level::Ok => (SUCCESS, "✓"),
            Level::Warning => (WARNING, "!"),
            Level::Error => (ERROR, "✗"),
        };
        let message = escape_control(&self.message);
        let mut lines = message.lines();
        writeln!(out, "  {style}{sign}{style:#} {}", lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| writeln!(out, "    {line}"))?;
        self.fix.iter().flat_map(|fix| fix.lines()).try_for_each(|line| {
            let line = escape_control(line);
            writeln!(out, "      {DIM}{line}{DIM:#}")
        })
    }
}

impl CheckResults {
    pub fn new(name: &'static str, findings: Vec<Finding>) -> Self {
        Self { name, findings }
    }
}

impl Report {
    /// Creates a report. Leaves out checks without findings.
    pub fn new(mut checks: Vec<CheckResults>) -> Self {
        checks.retain(|check| !check.findings.is_empty());
        let mut findings = checks.iter().flat_map(|check| &check.findings);
        Self { is_ok: !findings.any(|finding| finding.level == Level::Error), checks }
    }

    fn count(&self, level: Level) -> usize {
        self.checks.iter().flat_map(|check| &check.findings).filter(|finding| finding.level == level).count()
    }

    /// Prints the report as text.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for check in &self.checks {
            writeln!(out, "{BOLD}{}{BOLD:#}", check.name)?;
            check.findings.iter().try_for_each(|finding| finding.print(out))?;
        }
        let errors = self.count(Level::Error);
        let warnings = pluralize(self.count(Level::Warning), "warning", "warnings");
        match errors {
            0 => writeln!(out, "{SUCCESS}no errors{SUCCESS:#}, {warnings}"),
            _ => writeln!(out, "{ERROR}{}{ERROR:#}, {warnings}", pluralize(errors, "error", "errors")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(checks: Vec<CheckResults>) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        Report::new(checks).print(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn findings_are_printed_by_check_with_their_fixes() {
        let checks = vec![
            CheckResults::new("files", vec![Finding::ok("a.wasm"), Finding::error("b.wasm\nis bad").with_fix("rm\nb")]),
            CheckResults::new("names", Vec::new()),
            CheckResults::new("limits", vec![Finding::warning("tight")]),
        ];
        assert_eq!(
            print(checks),
            "files\n  ✓ a.wasm\n  ✗ b.wasm\n    is bad\n      rm\n      b\nlimits\n  ! tight\n1 error, 1 warning\n"
        );
    }

    #[test]
    fn only_errors_make_a_report_fail() {
        let one = |finding| vec![CheckResults::new("files", vec![finding])];
        assert!(Report::new(one(Finding::warning("x"))).is_ok && !Report::new(one(Finding::error("x"))).is_ok);
        assert!(print(one(Finding::warning("x"))).ends_with("no errors, 1 warning\n"));
        assert!(print(one(Finding::ok("x"))).ends_with("no errors, 0 warnings\n"));
    }

    #[test]
    fn the_json_has_the_same_findings() {
        let report =
            Report::new(vec![CheckResults::new("files", vec![Finding::error("x").with_fix("y"), Finding::ok("z")])]);
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            serde_json::json!({"ok": false, "checks": [{"name": "files", "findings": [
                {"level": "error", "message": "x", "fix": "y"}, {"level": "ok", "message": "z"},
            ]}]})
        );
    }
}
