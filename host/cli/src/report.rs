//! How scripted conversations and replays went, for people and for programs.

use std::io::{self, Write};
use std::path::PathBuf;

use hatchery_core::RunError;
use hatchery_engine::Run;
use serde::Serialize;

use crate::conversation::{self, Seen};
use crate::terminal::{DIM, ERROR, GOOD, harmless};

/// How a conversation went.
#[derive(Serialize)]
pub struct Report {
    /// The file that it is from.
    pub file: PathBuf,
    /// The app.
    pub app: String,
    /// Whether all of it was as it should be.
    pub passed: bool,
    /// Why it could not even begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How its turns went.
    pub turns: Vec<TurnReport>,
}

/// How a turn went.
#[derive(Serialize)]
pub struct TurnReport {
    /// What the user said.
    pub user: String,
    /// Whether it was as it should be.
    pub passed: bool,
    /// What had to come back.
    pub expected: Vec<Met>,
    /// What came back.
    pub seen: Vec<String>,
    /// What is wrong beside unmet expectations.
    pub problems: Vec<String>,
}

/// Whether an expectation was met.
#[derive(Serialize)]
pub struct Met {
    /// The expectation.
    pub expectation: String,
    /// Whether it was met.
    pub met: bool,
}

/// What came back in a turn, and how it failed if it did.
pub struct Heard {
    /// What came back.
    pub seen: Vec<Seen>,
    /// How it failed.
    pub failure: Option<RunError>,
}

impl Heard {
    /// Listens to a run until it ends.
    pub async fn all(mut run: Run) -> Self {
        let mut heard = Self { seen: Vec::new(), failure: None };
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => heard.seen.extend(conversation::seen(&event)),
                Err(error) => heard.failure = Some(error),
            }
        }
        heard
    }
}

/// What is said of a run that should not have failed.
pub fn failed(error: &RunError) -> String {
    format!("the run failed: {}: {error}", error.code())
}

impl Report {
    /// A report on what has not begun.
    pub fn new(file: PathBuf, app: String) -> Self {
        Self { file, app, passed: false, error: None, turns: Vec::new() }
    }

    /// The same with what follows from its turns.
    #[must_use]
    pub fn judged(mut self) -> Self {
        self.passed = self.error.is_none() && self.turns.iter().all(|turn| turn.passed);
        self
    }

    /// Writes it for a person.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (style, sign) = mark(self.passed);
        writeln!(out, "{style}{sign}{style:#} {} {DIM}{}{DIM:#}", harmless(&self.app), self.file.display())?;
        if let Some(error) = &self.error {
            writeln!(out, "    {}", harmless(error))?;
        }
        let mut failed = self.turns.iter().enumerate().filter(|(_, turn)| !turn.passed);
        failed.try_for_each(|(index, turn)| turn.print(index + 1, out))
    }
}

impl TurnReport {
    fn print(&self, number: usize, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  turn {number}: {:?}", self.user)?;
        for expected in &self.expected {
            let (style, sign) = mark(expected.met);
            writeln!(out, "    {style}{sign} {}{style:#}", harmless(&expected.expectation))?;
        }
        for problem in &self.problems {
            print_problem(problem, out)?;
        }
        writeln!(out, "    {DIM}what came back:{DIM:#}")?;
        for seen in &self.seen {
            writeln!(out, "      {seen}")?;
        }
        if self.seen.is_empty() {
            writeln!(out, "      nothing")?;
        }
        Ok(())
    }
}

/// What is wrong, and below it the lines of a diff in the colours of one.
fn print_problem(problem: &str, out: &mut impl Write) -> io::Result<()> {
    let problem = harmless(problem);
    let mut lines = problem.lines();
    writeln!(out, "    {ERROR}✗ {}{ERROR:#}", lines.next().unwrap_or_default())?;
    for line in lines {
        match line.as_bytes().first() {
            Some(b'+') => writeln!(out, "      {GOOD}{line}{GOOD:#}")?,
            Some(b'-') => writeln!(out, "      {ERROR}{line}{ERROR:#}")?,
            Some(b'@') => writeln!(out, "      {DIM}{line}{DIM:#}")?,
            _ => writeln!(out, "      {line}")?,
        }
    }
    Ok(())
}

fn mark(good: bool) -> (anstyle::Style, &'static str) {
    if good { (GOOD, "✓") } else { (ERROR, "✗") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_the_colours_of_one() {
        let mut out = Vec::new();
        print_problem("it differs\n--- recorded\n@@ -1 +1 @@\n same\n-old\n+new\x1b[2J", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            format!("    {ERROR}✗ it differs{ERROR:#}"),
            format!("      {DIM}@@ -1 +1 @@{DIM:#}"),
            "       same".into(),
            format!("      {ERROR}-old{ERROR:#}"),
            format!("      {GOOD}+new\\u{{1b}}[2J{GOOD:#}"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line:?} is not in {text:?}");
        }
    }
}
