//! Findings, grouped, for people and for programs.

use std::io::{self, Write};
use std::path::Path;

use anstyle::{AnsiColor, Style};
use hatchery::shell::quoted_path;
use serde::Serialize;

use crate::terminal::{BOLD, DIM, ERROR, GOOD, harmless};

const DOUBTFUL: Style = AnsiColor::Yellow.on_default().bold();

/// All that was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// False when something does not work.
    pub ok: bool,
    groups: Vec<Group>,
}

/// Findings about one thing.
#[derive(Debug, Serialize)]
pub struct Group {
    name: &'static str,
    findings: Vec<Finding>,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    level: Level,
    message: String,
    /// Lines to copy: a command, or what to add to a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Good,
    Doubtful,
    Broken,
}

impl Finding {
    /// Something is as it should be.
    pub fn good(message: impl Into<String>) -> Self {
        Self { level: Level::Good, message: message.into(), fix: None }
    }

    /// Something works, but perhaps not as wanted.
    pub fn doubtful(message: impl Into<String>) -> Self {
        Self { level: Level::Doubtful, ..Self::good(message) }
    }

    /// Something does not work.
    pub fn broken(message: impl Into<String>) -> Self {
        Self { level: Level::Broken, ..Self::good(message) }
    }

    /// The same with what to do.
    #[must_use]
    pub fn fixed_by(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (style, sign) = match self.level {
            Level::Good => (GOOD, "✓"),
            Level::Doubtful => (DOUBTFUL, "!"),
            Level::Broken => (ERROR, "✗"),
        };
        let message = harmless(&self.message);
        let mut lines = message.lines();
        writeln!(out, "  {style}{sign}{style:#} {}", lines.next().unwrap_or_default())?;
        lines.try_for_each(|line| writeln!(out, "    {line}"))?;
        self.fix.iter().flat_map(|fix| fix.lines()).try_for_each(|line| {
            let line = harmless(line);
            writeln!(out, "      {DIM}{line}{DIM:#}")
        })
    }
}

/// A path as a word of a command line.
pub fn shell(path: &Path) -> String {
    quoted_path(path)
}

impl Group {
    /// What was found about one thing.
    pub fn new(name: &'static str, findings: Vec<Finding>) -> Self {
        Self { name, findings }
    }
}

impl Report {
    /// What was found about all things; those of which there is nothing to say are left out.
    pub fn new(mut groups: Vec<Group>) -> Self {
        groups.retain(|group| !group.findings.is_empty());
        let mut findings = groups.iter().flat_map(|group| &group.findings);
        Self { ok: !findings.any(|finding| finding.level == Level::Broken), groups }
    }

    fn count(&self, level: Level) -> usize {
        self.groups.iter().flat_map(|group| &group.findings).filter(|finding| finding.level == level).count()
    }

    /// Writes it for a person.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for group in &self.groups {
            writeln!(out, "{BOLD}{}{BOLD:#}", group.name)?;
            group.findings.iter().try_for_each(|finding| finding.print(out))?;
        }
        let (broken, doubtful) = (self.count(Level::Broken), self.count(Level::Doubtful));
        match (broken, doubtful) {
            (0, 0) => writeln!(out, "{GOOD}all is well{GOOD:#}"),
            (0, _) => writeln!(out, "nothing is broken, {doubtful} to look at"),
            _ => writeln!(out, "{ERROR}{broken} broken{ERROR:#}, {doubtful} to look at"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(groups: Vec<Group>) -> String {
        let mut out = anstream::StripStream::new(Vec::new());
        Report::new(groups).print(&mut out).unwrap();
        String::from_utf8(out.into_inner()).unwrap()
    }

    #[test]
    fn it_is_grouped_with_marks_and_fixes_below() {
        let groups = vec![
            Group::new("files", vec![Finding::good("a.wasm"), Finding::broken("b.wasm\nis bad").fixed_by("rm\nb")]),
            Group::new("names", Vec::new()),
            Group::new("limits", vec![Finding::doubtful("tight")]),
        ];
        assert_eq!(
            printed(groups),
            "files\n  ✓ a.wasm\n  ✗ b.wasm\n    is bad\n      rm\n      b\nlimits\n  ! tight\n1 broken, 1 to look at\n"
        );
    }

    #[test]
    fn paths_in_commands_are_one_word_each() {
        let words = ["./a/b-1.wasm", "my agents/x", "it's", ""].map(|path| shell(Path::new(path)));
        assert_eq!(words, ["./a/b-1.wasm", "'my agents/x'", "'it'\\''s'", "''"]);
    }

    #[test]
    fn only_what_is_broken_makes_it_fail() {
        let one = |finding| vec![Group::new("files", vec![finding])];
        assert!(Report::new(one(Finding::doubtful("x"))).ok && !Report::new(one(Finding::broken("x"))).ok);
        assert!(printed(one(Finding::doubtful("x"))).ends_with("nothing is broken, 1 to look at\n"));
        assert!(printed(one(Finding::good("x"))).ends_with("all is well\n"));
    }

    #[test]
    fn programs_read_the_same() {
        let report =
            Report::new(vec![Group::new("files", vec![Finding::broken("x").fixed_by("y"), Finding::good("z")])]);
        assert_eq!(
            serde_json::to_value(report).unwrap(),
            serde_json::json!({"ok": false, "groups": [{"name": "files", "findings": [
                {"level": "broken", "message": "x", "fix": "y"}, {"level": "good", "message": "z"},
            ]}]})
        );
    }
}
