//! `hatchery test`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::AppSource;
use hatchery_core::{Content, EventWindow, SessionKey};
use hatchery_engine::{RunRequest, Runner};
use hatchery_recordings::Recordings;
use hatchery_wasm::DeterministicMode;
use serde_json::json;

use crate::conversation::{self, Conversation, Expected, Turn};
use crate::files;
use crate::host::{self, ConfigArgs, StorageArgs, served_folder};
use crate::recordings;
use crate::report::{self, Heard, Met, Report, TurnReport};
use crate::terminal::stdout;
use crate::verbs::Outcome;

/// What to test.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  hatchery test my-agents\n\n\
    plays every conversation.yaml in my-agents and in the folders below it:\n\n  \
    app: dice\n  turns:\n    - user: Roll a d20\n      expect:              # in this order, anything else may lie between\n        \
    - call: roll_die\n        - response: roll_die\n        - text: You rolled\n      state: {rolls_count: 1}\n\n\
    Components find the same time of day and the same random numbers in each call. `http` answers their requests, as in\n\
    \x20 http: [{url: https://example.com/, body: Hello}]\n\n\
    Sessions that `hatchery run --record` has recorded there (generated-recordings.yaml) are replayed: models\n\
    and tools are not called, they answer as recorded. It is a failure when they would now be asked something else.\n\n\
    Agents and components of the folder run, with the grants of hatchery.yaml; those that reach outside of the folder need\n\
    `hatchery trust`, but for those of the network, which is not there in tests.")]
pub struct Args {
    /// The folder with the apps, or the folder of one app
    dir: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Write the results as JSON
    #[arg(long)]
    json: bool,
}

const USER: &str = "test";

/// What a file holds.
enum Test {
    Scripted(Conversation),
    Recorded(Recordings),
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, _) = served_folder(&args.dir)?;
    let tests = find(&args.dir)?;
    if tests.is_empty() {
        bail!(
            "no {} and no {} in {} or below it; `hatchery test --help` shows one",
            conversation::FILE_NAME,
            hatchery_recordings::FILE_NAME,
            args.dir.display()
        );
    }
    let deterministic = DeterministicMode::default();
    let builder = host::builder(args.config.source(&folder), &StorageArgs::in_memory());
    let host = host::open(builder.deterministic(deterministic.clone())).await?;
    let mut reports = Vec::new();
    for (file, test) in tests {
        let report = match test {
            Test::Scripted(mut conversation) => {
                deterministic.http.play(std::mem::take(&mut conversation.http));
                play(host.runner(), host.apps().as_ref(), conversation, file).await?
            }
            Test::Recorded(recordings) => recordings::replay(&host, recordings, file).await?,
        };
        if !args.json {
            report.print(&mut stdout())?;
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

/// The files below a folder that can be played. All of them are read before the first is played.
fn find(folder: &Path) -> anyhow::Result<Vec<(PathBuf, Test)>> {
    let files = files::find(folder, |name| [conversation::FILE_NAME, hatchery_recordings::FILE_NAME].contains(&name))?;
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let test = if file.ends_with(hatchery_recordings::FILE_NAME) {
            Test::Recorded(Recordings::parse(&text).with_context(|| file.display().to_string())?)
        } else {
            Test::Scripted(Conversation::parse(&text, &file)?)
        };
        Ok((file, test))
    };
    files.into_iter().map(read).collect()
}

async fn play(
    runner: &Runner,
    source: &dyn AppSource,
    conversation: Conversation,
    file: PathBuf,
) -> anyhow::Result<Report> {
    let Conversation { app, turns, .. } = conversation;
    let mut report = Report::new(file, app);
    let Some(app) = source.app(&report.app) else {
        report.error = Some(format!("app `{}` not found; there is {}", report.app, source.app_names().join(", ")));
        return Ok(report);
    };
    let key = runner.services().sessions.create(&app.name, USER, None, Default::default()).await?.key;
    for turn in turns {
        let request = RunRequest::new(&*key.user, &*key.id, Content::user(&turn.user));
        let heard = Heard::all(runner.run(app.clone(), request).await?).await;
        report.turns.push(judge(runner, &key, turn, heard).await?);
    }
    Ok(report.judged())
}

async fn judge(runner: &Runner, key: &SessionKey, turn: Turn, heard: Heard) -> anyhow::Result<TurnReport> {
    let Heard { seen, failure } = heard;
    let session = runner.services().sessions.get(key, EventWindow::All).await?;
    let said = session.as_ref().and_then(|session| session.events.iter().rev().find(|event| event.author == "user"));
    let said = said.and_then(|event| event.content.as_ref()).map(|content| content.text());
    let state = session.map(|session| session.state).unwrap_or_default();
    let mut problems: Vec<_> = failure.iter().map(report::failed).collect();
    if let Some(stored) = turn.stored.filter(|stored| said.as_ref() != Some(stored)) {
        problems.push(format!("the session has {said:?} of what the user said, not {stored:?}"));
    }
    problems.extend(conversation::compare_state(&turn.state, &state));
    let met = |(expected, met): (&Expected, bool)| Met { expectation: expected.to_string(), met };
    let expected: Vec<_> = turn.expect.iter().zip(conversation::compare(&turn.expect, &seen)).map(met).collect();
    Ok(TurnReport {
        user: turn.user,
        passed: problems.is_empty() && expected.iter().all(|expected| expected.met),
        expected,
        seen: seen.iter().map(ToString::to_string).collect(),
        problems,
    })
}
