//! `hatchery test`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use hatchery_core::session::EventWindow;
use hatchery_core::{Content, RunError, SessionKey};
use hatchery_engine::{RunRequest, Runner};
use hatchery_server::AppSource;
use serde::Serialize;
use serde_json::json;

use crate::conversation::{self, Conversation, Expected, Seen, Turn};
use crate::files;
use crate::host::{Host, StorageArgs, Watch, served_folder};
use crate::terminal::{DIM, ERROR, GOOD, harmless, stdout};
use crate::verbs::Outcome;

/// What to test.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hatchery test my-agents\n\n\
    plays every conversation.yaml in my-agents and in the folders below it:\n\n  \
    app: dice\n  turns:\n    - user: Roll a d20\n      expect:              # in this order, anything else may lie between\n        \
    - call: roll_die\n        - response: roll_die\n        - text: You rolled\n      state: {rolls_count: 1}")]
pub struct Args {
    /// The folder with the apps, or the folder of one app
    dir: PathBuf,
    /// Write the results as JSON
    #[arg(long)]
    json: bool,
}

const USER: &str = "test";

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, _) = served_folder(&args.dir)?;
    let mut conversations = Vec::new();
    for file in files::find(&args.dir, |name| name == conversation::FILE_NAME)? {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        conversations.push((Conversation::parse(&text, &file)?, file));
    }
    if conversations.is_empty() {
        bail!("no {} in {} or below it; `hatchery test --help` shows one", conversation::FILE_NAME, args.dir.display());
    }
    let host = Host::open(&folder, &StorageArgs::in_memory(), Watch::No).await?;
    let mut reports = Vec::new();
    for (conversation, file) in conversations {
        let report = play(&host.runner, host.source.as_ref(), conversation, file).await?;
        if !args.json {
            print(&report)?;
        }
        reports.push(report);
    }
    host.close().await;
    let failed = reports.iter().filter(|report| !report.passed).count();
    let passed = reports.len() - failed;
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", json!({"passed": passed, "failed": failed, "conversations": reports}))?;
    } else {
        writeln!(out, "{passed} passed, {failed} failed")?;
    }
    Ok(if failed == 0 { Outcome::Success } else { Outcome::Failure })
}

/// How a conversation went.
#[derive(Serialize)]
struct Report {
    file: PathBuf,
    app: String,
    passed: bool,
    /// Why it could not even begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    turns: Vec<TurnReport>,
}

/// How a turn went.
#[derive(Serialize)]
struct TurnReport {
    user: String,
    passed: bool,
    expected: Vec<Met>,
    seen: Vec<String>,
    /// What is wrong beside unmet expectations.
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Met {
    expectation: String,
    met: bool,
}

async fn play(
    runner: &Runner,
    source: &dyn AppSource,
    conversation: Conversation,
    file: PathBuf,
) -> anyhow::Result<Report> {
    let Conversation { app, turns } = conversation;
    let mut report = Report { file, app, passed: false, error: None, turns: Vec::new() };
    let Some(app) = source.app(&report.app) else {
        report.error = Some(format!("app `{}` not found; there is {}", report.app, source.app_names().join(", ")));
        return Ok(report);
    };
    let key = runner.services().sessions.create(&app.name, USER, None, Default::default()).await?.key;
    for turn in turns {
        let request = RunRequest::new(&*key.user, &*key.id, Content::user(&turn.user));
        let mut run = runner.run(app.clone(), request).await?;
        let mut seen = Vec::new();
        let mut failure = None;
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => seen.extend(conversation::seen(&event)),
                Err(error) => failure = Some(error),
            }
        }
        report.turns.push(judge(runner, &key, turn, &seen, failure).await?);
    }
    report.passed = report.turns.iter().all(|turn| turn.passed);
    Ok(report)
}

async fn judge(
    runner: &Runner,
    key: &SessionKey,
    turn: Turn,
    seen: &[Seen],
    failure: Option<RunError>,
) -> anyhow::Result<TurnReport> {
    let session = runner.services().sessions.get(key, EventWindow::Recent(0)).await?;
    let state = session.map(|session| session.state).unwrap_or_default();
    let mut problems: Vec<_> =
        failure.iter().map(|error| format!("the run failed: {}: {error}", error.code())).collect();
    problems.extend(conversation::compare_state(&turn.state, &state));
    let met = |(expected, met): (&Expected, bool)| Met { expectation: expected.to_string(), met };
    let expected: Vec<_> = turn.expect.iter().zip(conversation::compare(&turn.expect, seen)).map(met).collect();
    Ok(TurnReport {
        user: turn.user,
        passed: problems.is_empty() && expected.iter().all(|expected| expected.met),
        expected,
        seen: seen.iter().map(ToString::to_string).collect(),
        problems,
    })
}

fn print(report: &Report) -> std::io::Result<()> {
    let mut out = stdout();
    let mark = |good: bool| if good { (GOOD, "✓") } else { (ERROR, "✗") };
    let (style, sign) = mark(report.passed);
    writeln!(out, "{style}{sign}{style:#} {} {DIM}{}{DIM:#}", harmless(&report.app), report.file.display())?;
    if let Some(error) = &report.error {
        writeln!(out, "    {}", harmless(error))?;
    }
    for (index, turn) in report.turns.iter().enumerate().filter(|(_, turn)| !turn.passed) {
        writeln!(out, "  turn {}: {:?}", index + 1, turn.user)?;
        for expected in &turn.expected {
            let (style, sign) = mark(expected.met);
            writeln!(out, "    {style}{sign} {}{style:#}", harmless(&expected.expectation))?;
        }
        for problem in &turn.problems {
            writeln!(out, "    {ERROR}✗ {}{ERROR:#}", harmless(problem))?;
        }
        writeln!(out, "    {DIM}what came back:{DIM:#}")?;
        for seen in &turn.seen {
            writeln!(out, "      {seen}")?;
        }
        if turn.seen.is_empty() {
            writeln!(out, "      nothing")?;
        }
    }
    Ok(())
}
