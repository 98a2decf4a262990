//! `hatchery test`: runs scripted conversations, replays recordings and sessions, and compares the results.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use hatchery::Host;
use hatchery_core::{Content, EventWindow, SessionKey};
use hatchery_engine::{RunRequest, Runner};
use hatchery_recordings::Recordings;
use hatchery_wasm::DeterministicMode;
use serde_json::json;

use crate::conversation::{self, Conversation, Turn};
use crate::dotenv::DotEnvSource;
use crate::files;
use crate::host::{self, ConfigArgs, StorageArgs, find_app, find_served_folder};
use crate::outcome::Outcome;
use crate::recordings;
use crate::rejections::print_rejections;
use crate::session_tests::{self, SessionTestFile};
use crate::terminal::{format_error, plain_stdout, stdout};
use crate::test_report::{ExpectationResult, ObservedTurn, TestReport, TurnReport, describe_failure};

#[derive(clap::Args)]
#[command(after_help = "Example:\n  hatchery test my-agents\n\n\
    runs every conversation.yaml in my-agents and the folders below it:\n\n  \
    app: dice\n  turns:\n    - user: Roll a die with 20 sides\n      \
    expect:              # in this order, with anything in between\n        \
    - call: roll_die\n        - response: roll_die\n        - text: You rolled\n      state: {last_sides: 20}\n\n\
    The clock and the random numbers of components are the same in each run. `http` contains the responses to their \
    HTTP requests, as in\n  http: [{url: https://example.com/, body: Hello}]\n\n\
    Sessions recorded by `hatchery run --record` (generated-recordings.yaml) are replayed: models and tools return the \
    recorded responses, and a test fails if their requests differ from the recorded ones.\n\n\
    Sessions in APP/tests/NAME.json, such as those of ADK's web client, are run again: models return the recorded answers, \
    tools are called, and a test fails if the events differ from the recorded ones.\n\n\
    Runs agents and components of the folder with the grants of hatchery.yaml. Grants for access outside of the folder need \
    `hatchery trust`; the network is never used.")]
pub struct Args {
    /// The folder with the apps, or the folder of one app
    #[arg(default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_app_folder(&self.dir, &self.config)
    }
}

const USER: &str = "test";

/// The content of a test file.
enum TestCase {
    /// The reason why the file cannot be used.
    Malformed(String),
    Conversation(Conversation),
    Recordings(Recordings),
    Session(SessionTestFile),
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (folder, _) = find_served_folder(&args.dir)?;
    let mut tests = read_tests(&args.dir)?;
    check_not_empty(&tests, &args.dir)?;
    let deterministic = DeterministicMode::default();
    let builder = host::builder(args.config.source(&folder), &StorageArgs::in_memory());
    let host = host::open(builder.deterministic(deterministic.clone())).await?;
    print_rejections(host.apps().as_ref(), &folder, None);
    tests.retain(|(file, test)| match test {
        TestCase::Session(test) => test.is_test(&host, file),
        TestCase::Malformed(_) | TestCase::Conversation(_) | TestCase::Recordings(_) => true,
    });
    check_not_empty(&tests, &args.dir)?;
    let mut reports = Vec::new();
    for (file, test) in tests {
        let report = match test {
            // One malformed file does not keep the others from being tested.
            TestCase::Malformed(error) => {
                TestReport { error: Some(error), ..TestReport::new(file, String::new()) }.complete()
            }
            TestCase::Conversation(mut conversation) => {
                deterministic.http.play(std::mem::take(&mut conversation.http));
                run_conversation(&host, &folder, conversation, file).await?
            }
            TestCase::Recordings(recordings) => recordings::replay(&host, &folder, recordings, file).await?,
            TestCase::Session(test) => {
                deterministic.http.play(Vec::new());
                test.run(&host, &folder, file).await?
            }
        };
        if !args.json {
            report.print(&mut stdout())?;
        }
        reports.push(report);
    }
    host.close().await;
    let failed = reports.iter().filter(|report| !report.passed).count();
    let passed = reports.len() - failed;
    if args.json {
        writeln!(plain_stdout(), "{}", json!({"passed": passed, "failed": failed, "conversations": reports}))?;
    } else {
        writeln!(stdout(), "{passed} passed, {failed} failed")?;
    }
    Ok(if failed == 0 { Outcome::Success } else { Outcome::Failure })
}

fn check_not_empty(tests: &[(PathBuf, TestCase)], folder: &Path) -> anyhow::Result<()> {
    if !tests.is_empty() {
        return Ok(());
    }
    bail!(
        "no {}, {} or APP/tests/NAME.json found in {} or below it; `hatchery test --help` shows an example",
        conversation::FILE_NAME,
        hatchery_recordings::FILE_NAME,
        folder.display()
    )
}

/// Returns all test files in a folder and below it, sorted. Sessions are read when they run.
fn read_tests(folder: &Path) -> anyhow::Result<Vec<(PathBuf, TestCase)>> {
    let files = files::find(folder, |name| [conversation::FILE_NAME, hatchery_recordings::FILE_NAME].contains(&name))?;
    let read = |file: PathBuf| {
        let test = read_test(&file).unwrap_or_else(|error| TestCase::Malformed(format_error(&error)));
        (file, test)
    };
    let sessions = session_tests::find(folder)?.into_iter().map(|(file, test)| (file, TestCase::Session(test)));
    let mut tests: Vec<_> = files.into_iter().map(read).chain(sessions).collect();
    tests.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(tests)
}

fn read_test(file: &Path) -> anyhow::Result<TestCase> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(if file.ends_with(hatchery_recordings::FILE_NAME) {
        TestCase::Recordings(Recordings::parse(&text).with_context(|| file.display().to_string())?)
    } else {
        TestCase::Conversation(Conversation::parse(&text, file)?)
    })
}

async fn run_conversation(
    host: &Host,
    folder: &Path,
    conversation: Conversation,
    file: PathBuf,
) -> anyhow::Result<TestReport> {
    let Conversation { app, turns, .. } = conversation;
    let runner = host.runner();
    let mut report = TestReport::new(file, app);
    let app = match find_app(host.apps().as_ref(), folder, &report.app) {
        Ok(app) => app,
        Err(error) => return Ok(TestReport { error: Some(error.to_string()), ..report }),
    };
    let key = runner.services().sessions.create(&app.name, USER, None, Default::default()).await?.key;
    for turn in turns {
        let request = RunRequest::new(&*key.user, &*key.id, Content::user(&turn.user));
        let observed = ObservedTurn::collect(runner.run(app.clone(), request).await?).await;
        report.turns.push(check_turn(runner, &key, turn, observed).await?);
    }
    Ok(report.complete())
}

/// Compares a turn with its expectations.
async fn check_turn(
    runner: &Runner,
    key: &SessionKey,
    turn: Turn,
    observed: ObservedTurn,
) -> anyhow::Result<TurnReport> {
    let ObservedTurn { items, failure } = observed;
    let session = runner.services().sessions.get(key, EventWindow::All).await?;
    let mut events = session.iter().flat_map(|session| session.events.iter().rev());
    let message = events.find(|event| event.author == "user").and_then(|event| event.content.as_ref());
    let message = message.map(|content| content.text()).unwrap_or_default();
    let mut problems: Vec<_> = failure.iter().map(describe_failure).collect();
    if let Some(expected) = turn.stored.filter(|expected| *expected != message) {
        problems.push(format!("stored user message: expected {expected:?}, found {message:?}"));
    }
    let state = session.map(|session| session.state).unwrap_or_default();
    problems.extend(conversation::compare_state(&turn.state, &state));
    let matches = conversation::match_in_order(&turn.expect, &items);
    let expectations: Vec<_> = turn
        .expect
        .iter()
        .zip(matches)
        .map(|(expectation, is_met)| ExpectationResult { expectation: expectation.to_string(), is_met })
        .collect();
    Ok(TurnReport {
        user: turn.user,
        passed: problems.is_empty() && expectations.iter().all(|result| result.is_met),
        expectations,
        observed: items.iter().map(ToString::to_string).collect(),
        problems,
    })
}
