//! Reports of `hatchery test`, as text and JSON.

use std::io::{self, Write};
use std::path::PathBuf;

use hatchery_core::RunError;
use hatchery_engine::Run;
use hatchery_files::serialize_path;
use serde::Serialize;

use crate::conversation::{ObservedItem, observe};
use crate::terminal::{DIM, ERROR, SUCCESS, escape_control, printable_path};

/// The report of one conversation or recording.
#[derive(Serialize)]
pub struct TestReport {
    #[serde(serialize_with = "serialize_path")]
    pub file: PathBuf,
    pub app: String,
    pub passed: bool,
    /// The reason why the test could not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub turns: Vec<TurnReport>,
}

#[derive(Serialize)]
pub struct TurnReport {
    /// The message of the user.
    pub user: String,
    pub passed: bool,
    pub expectations: Vec<ExpectationResult>,
    /// The calls, responses and texts of the turn.
    pub observed: Vec<String>,
    /// Problems other than expectations that are not met.
    pub problems: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpectationResult {
    pub expectation: String,
    pub is_met: bool,
}

/// The items of a turn, and its error if it failed.
pub struct ObservedTurn {
    pub items: Vec<ObservedItem>,
    pub failure: Option<RunError>,
}

impl ObservedTurn {
    /// Collects the items of a run until it ends.
    pub async fn collect(mut run: Run) -> Self {
        let mut turn = Self { items: Vec::new(), failure: None };
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => turn.items.extend(observe(&event)),
                Err(error) => turn.failure = Some(error),
            }
        }
        turn
    }
}

/// Describes the error of a run that was expected to succeed.
pub fn describe_failure(error: &RunError) -> String {
    format!("the run failed: {}: {error}", error.code())
}

impl TestReport {
    /// Creates the report of a test that has not run.
    pub fn new(file: PathBuf, app: String) -> Self {
        Self { file, app, passed: false, error: None, turns: Vec::new() }
    }

    /// Sets `passed` from the turns.
    #[must_use]
    pub fn complete(mut self) -> Self {
        self.passed = self.error.is_none() && self.turns.iter().all(|turn| turn.passed);
        self
    }

    /// Prints the report as text. Turns are printed only if they failed.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let (style, sign) = mark(self.passed);
        // A file that cannot be read names no app.
        let app = if self.app.is_empty() { String::new() } else { format!("{} ", escape_control(&self.app)) };
        writeln!(out, "{style}{sign}{style:#} {app}{DIM}{}{DIM:#}", printable_path(&self.file))?;
        if let Some(error) = &self.error {
            writeln!(out, "    {}", escape_control(error))?;
        }
        let mut failed = self.turns.iter().enumerate().filter(|(_, turn)| !turn.passed);
        failed.try_for_each(|(index, turn)| turn.print(index + 1, out))
    }
}

impl TurnReport {
    fn print(&self, number: usize, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  turn {number}: {:?}", self.user)?;
        for result in &self.expectations {
            let (style, sign) = mark(result.is_met);
            writeln!(out, "    {style}{sign} {}{style:#}", escape_control(&result.expectation))?;
        }
        for problem in &self.problems {
            print_problem(problem, out)?;
        }
        writeln!(out, "    {DIM}observed:{DIM:#}")?;
        for item in &self.observed {
            writeln!(out, "      {item}")?;
        }
        if self.observed.is_empty() {
            writeln!(out, "      no calls, responses or texts")?;
        }
        Ok(())
    }
}

/// Prints a problem. The lines after the first are a diff and have its colours.
fn print_problem(problem: &str, out: &mut impl Write) -> io::Result<()> {
    let problem = escape_control(problem);
    let mut lines = problem.lines();
    writeln!(out, "    {ERROR}✗ {}{ERROR:#}", lines.next().unwrap_or_default())?;
    for line in lines {
        match line.as_bytes().first() {
            Some(b'+') => writeln!(out, "      {SUCCESS}{line}{SUCCESS:#}")?,
            Some(b'-') => writeln!(out, "      {ERROR}{line}{ERROR:#}")?,
            Some(b'@') => writeln!(out, "      {DIM}{line}{DIM:#}")?,
            _ => writeln!(out, "      {line}")?,
        }
    }
    Ok(())
}

fn mark(passed: bool) -> (anstyle::Style, &'static str) {
    if passed { (SUCCESS, "✓") } else { (ERROR, "✗") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_is_coloured() {
        let mut out = Vec::new();
        print_problem("it differs\n--- recorded\n@@ -1 +1 @@\n same\n-old\n+new\x1b[2J", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            format!("    {ERROR}✗ it differs{ERROR:#}"),
            format!("      {DIM}@@ -1 +1 @@{DIM:#}"),
            "       same".into(),
            format!("      {ERROR}-old{ERROR:#}"),
            format!("      {SUCCESS}+new\\u{{1b}}[2J{SUCCESS:#}"),
        ] {
            assert!(text.lines().any(|it| it == line), "{line:?} is not in {text:?}");
        }
    }
}
