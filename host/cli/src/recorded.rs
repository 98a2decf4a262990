//! Recorded sessions, played again with the agents as they are now.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hatchery::{Storage, services};
use hatchery_core::{EventWindow, SessionKey};
use hatchery_engine::plugins::Replay;
use hatchery_engine::plugins::recordings::{Recordings, UserMessage};
use hatchery_engine::{App, AppSettings, RunRequest, Runner};

use crate::host::Host;
use crate::report::{self, Heard, Report, TurnReport};

const USER: &str = "test";

/// The app without compaction. A summary is there when it is ready, so with it no two sessions would ask their models the same.
pub fn never_compacted(app: &App) -> Arc<App> {
    let settings = AppSettings { compaction: None, ..app.settings.clone() };
    Arc::new(app.clone().with_settings(settings))
}

/// Says what was said in a recorded session, up to the first turn that is not as it was.
pub async fn replay(host: &Host, recordings: Recordings, file: PathBuf) -> anyhow::Result<Report> {
    let Recordings { app, initial_state, user_messages, .. } = recordings;
    let mut report = Report::new(file, app.unwrap_or_default());
    if report.app.is_empty() || user_messages.is_empty() {
        report.error = Some("it has no `app` or no `user_messages`; `hatchery run --record` writes both".into());
        return Ok(report);
    }
    let Some(app) = host.source.app(&report.app) else {
        let known = host.source.app_names().join(", ");
        report.error = Some(format!("app `{}` not found; there is {known}", report.app));
        return Ok(report);
    };
    let app = never_compacted(&app);
    // Services of its own: what other sessions leave in the state of the app or the user is not in the recording.
    let services = services::open(&host.config, &Storage::InMemory, &host.scripts).await?;
    let folder = report.file.parent().unwrap_or(Path::new("."));
    let runner = host.runner.with_prepended_plugin(services, Arc::new(Replay::of_folder(folder)));
    let key = runner.services().sessions.create(&app.name, USER, None, initial_state).await?.key;
    for message in user_messages {
        let turn = say(&runner, &app, &key, message).await?;
        let as_recorded = turn.passed;
        report.turns.push(turn);
        if !as_recorded {
            break;
        }
    }
    Ok(report.judged())
}

async fn say(runner: &Runner, app: &Arc<App>, key: &SessionKey, message: UserMessage) -> anyhow::Result<TurnReport> {
    let session = runner.services().sessions.get(key, EventWindow::All).await?;
    let content = message.content_for(&session.map(|session| session.events).unwrap_or_default());
    let request = RunRequest { state_delta: message.state_delta, ..RunRequest::new(&*key.user, &*key.id, content) };
    let Heard { seen, failure } = Heard::all(runner.run(app.clone(), request).await?).await;
    let problem = match (&failure, &message.error_code) {
        (None, None) => None,
        (Some(error), Some(code)) if error.code() == code => None,
        (Some(error), _) => Some(report::failed(error)),
        (None, Some(code)) => Some(format!("the recorded run failed with {code}, this one did not")),
    };
    Ok(TurnReport {
        user: message.content.text(),
        passed: problem.is_none(),
        expected: Vec::new(),
        seen: seen.iter().map(ToString::to_string).collect(),
        problems: problem.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use hatchery_core::{Agent, AgentKind};
    use hatchery_engine::compaction::CompactionConfig;

    use super::*;

    #[test]
    fn what_is_recorded_and_replayed_is_never_compacted_and_else_the_same() {
        let app = App::new("app", Agent::new("root", "", AgentKind::Sequential)).unwrap();
        let compaction = Some(CompactionConfig::default());
        let app = app.with_settings(AppSettings { resumable: true, compaction, ..AppSettings::default() });
        let settings = &never_compacted(&app).settings;
        assert!(settings.resumable && settings.compaction.is_none());
    }
}
