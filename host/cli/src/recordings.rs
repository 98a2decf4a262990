//! Replay of recorded sessions with the current agents.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery::{Host, Storage, services};
use hatchery_core::{EventWindow, SessionKey};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_recordings::{Recordings, Replayer, UserMessage, without_compaction};

use crate::host::find_app;
use crate::test_report::{ObservedTurn, TestReport, TurnReport, describe_failure};

const USER: &str = "test";

/// Replays a recorded session of a served folder up to the first turn that differs from the recording.
pub async fn replay(host: &Host, served: &Path, recordings: Recordings, file: PathBuf) -> anyhow::Result<TestReport> {
    let Recordings { app, initial_state, user_messages, .. } = recordings;
    let mut report = TestReport::new(file, app.unwrap_or_default());
    if report.app.is_empty() || user_messages.is_empty() {
        report.error =
            Some("the file has no `app` or no `user_messages`; record it again with `hatchery run --record`".into());
        return Ok(report);
    }
    let app = match find_app(host.apps().as_ref(), served, &report.app) {
        Ok(app) => app,
        Err(error) => return Ok(TestReport { error: Some(error.to_string()), ..report }),
    };
    let app = without_compaction(&app);
    // New services, because state of the app and the user from other sessions is not part of the recording.
    let services = services::open(&host.config(), &Storage::InMemory, host.scripts()).await?;
    let folder = report.file.parent().unwrap_or(Path::new("."));
    let runner = host.runner().with_prepended_plugin(services, Arc::new(Replayer::from_folder(folder)));
    let key = runner.services().sessions.create(&app.name, USER, None, initial_state).await?.key;
    for message in user_messages {
        let turn = replay_message(&runner, &app, &key, message).await?;
        let passed = turn.passed;
        report.turns.push(turn);
        if !passed {
            break;
        }
    }
    Ok(report.complete())
}

async fn replay_message(
    runner: &Runner,
    app: &Arc<App>,
    key: &SessionKey,
    message: UserMessage,
) -> anyhow::Result<TurnReport> {
    let session = runner.services().sessions.get(key, EventWindow::All).await?;
    let content = message.content_for(&session.map(|session| session.events).unwrap_or_default());
    let request = RunRequest { state_delta: message.state_delta, ..RunRequest::new(&*key.user, &*key.id, content) };
    let ObservedTurn { items, failure } = ObservedTurn::collect(runner.run(app.clone(), request).await?).await;
    let problem = match (&failure, &message.error_code) {
        (None, None) => None,
        (Some(error), Some(code)) if error.code() == code => None,
        (Some(error), _) => Some(describe_failure(error)),
        (None, Some(code)) => Some(format!("the recorded run failed with {code}, but this run succeeded")),
    };
    Ok(TurnReport {
        user: message.content.text(),
        passed: problem.is_none(),
        expectations: Vec::new(),
        observed: items.iter().map(ToString::to_string).collect(),
        problems: problem.into_iter().collect(),
    })
}
