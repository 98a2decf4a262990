//! Tests made of sessions: the messages of a session are sent again, models answer with its events, and the new events
//! are compared with the recorded ones. The files are those of ADK's agent tests.

mod answers;
mod difference;

use std::sync::Arc;

use hatchery_core::{
    CallerOrigin, Event, EventData, EventWindow, JsonMap, RunError, Services, SessionKey, USER_AUTHOR,
};
use hatchery_engine::{App, RunRequest, Runner};
use imbl::Vector;
use serde::Deserialize;
use thiserror::Error;

use crate::user_messages::{self, is_message};
use crate::{UserMessage, without_compaction};
use answers::RecordedAnswers;
use difference::diff_events;

/// The user of the sessions in which tests run.
const USER: &str = "test";

/// A session whose events a run of the app must have again.
#[derive(Debug)]
pub struct SessionTest {
    turns: Vec<RecordedTurn>,
}

/// A turn of a run of a test.
#[derive(Debug)]
pub struct TestedTurn {
    /// The message of the user as text.
    pub message: String,
    /// The events of the agents.
    pub events: Vec<Arc<Event>>,
    /// The difference from the recording, in a line that a diff follows; `None` if there is none.
    pub problem: Option<String>,
}

/// The reason why JSON is not a test.
#[derive(Debug, Error)]
pub enum SessionTestError {
    /// It is not a session.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// Nothing would be sent.
    #[error("none of its events is a message of the user")]
    NoMessage,
}

#[derive(Debug)]
struct RecordedTurn {
    message: UserMessage,
    /// The events of the agents.
    events: Vec<Arc<Event>>,
}

/// The keys of a session that a test needs.
#[derive(Deserialize)]
struct SessionJson {
    events: Vec<EventData>,
}

impl SessionTest {
    /// Parses a session: an object with `events`.
    ///
    /// # Errors
    /// If the JSON is something else, or the user says nothing in it.
    pub fn from_json(session: &[u8]) -> Result<Self, SessionTestError> {
        let SessionJson { events } = serde_json::from_slice(session)?;
        let events: Vector<_> = events.into_iter().filter(|event| !event.partial).map(Event::new).collect();
        let turns = split_turns(&events);
        if turns.is_empty() { Err(SessionTestError::NoMessage) } else { Ok(Self { turns }) }
    }

    /// Runs the app in a new session of `services` until a turn differs. Models are not called; tools are, except for
    /// agents that are called as tools.
    ///
    /// # Errors
    /// If the session cannot be created or read. A failed run is a turn with a problem.
    pub async fn run(&self, runner: &Runner, services: Services, app: &App) -> Result<Vec<TestedTurn>, RunError> {
        let answers = RecordedAnswers::new(self.turns.iter().flat_map(|turn| turn.events.iter().cloned()));
        let runner = runner.with_prepended_plugin(services, Arc::new(answers.clone()));
        let conversation = Conversation::begin(runner, app).await?;
        let mut turns = Vec::new();
        for recorded in &self.turns {
            let (events, failure) = conversation.send(&recorded.message).await?;
            let problem = find_problem(recorded, &events, failure.as_ref(), answers.take_problem());
            let has_problem = problem.is_some();
            turns.push(TestedTurn { message: recorded.message.content.text(), events, problem });
            if has_problem {
                break;
            }
        }
        Ok(turns)
    }

    /// Runs the app in a new session of `services` with its own models. Returns the events of the session.
    ///
    /// # Errors
    /// The error of the first turn that fails.
    pub async fn record(&self, runner: &Runner, services: Services, app: &App) -> Result<Vec<Arc<Event>>, RunError> {
        let conversation = Conversation::begin(runner.with_services(services), app).await?;
        for turn in &self.turns {
            if let (_, Some(error)) = conversation.send(&turn.message).await? {
                return Err(error);
            }
        }
        let events = conversation.events().await?;
        Ok(events.into_iter().filter(|event| event.paused_run().is_none()).collect())
    }
}

fn split_turns(events: &Vector<Arc<Event>>) -> Vec<RecordedTurn> {
    let mut turns: Vec<Vec<Arc<Event>>> = Vec::new();
    for event in events {
        if is_message(event) {
            turns.push(Vec::new());
        } else if event.author != USER_AUTHOR
            && let Some(turn) = turns.last_mut()
        {
            turn.push(event.clone());
        }
    }
    let messages = user_messages::collect(events);
    messages.into_iter().zip(turns).map(|(message, events)| RecordedTurn { message, events }).collect()
}

/// Returns the problem of a turn. `unanswered` is a call that the recording has no answer for.
fn find_problem(
    recorded: &RecordedTurn,
    events: &[Arc<Event>],
    failure: Option<&RunError>,
    unanswered: Option<String>,
) -> Option<String> {
    let diff = diff_events(&recorded.events, events);
    let reason = match (unanswered, failure) {
        (Some(unanswered), _) => unanswered,
        (None, Some(error)) if recorded.message.error_code.as_deref() != Some(error.code()) => {
            format!("the run failed: {}: {}", error.code(), error.client_message())
        }
        (None, _) if diff.is_some() => "the events differ from the recorded ones".to_owned(),
        (None, _) => return None,
    };
    Some(match diff {
        Some(diff) => format!("{reason}\n{diff}"),
        None => reason,
    })
}

/// A session in which an app runs.
struct Conversation {
    runner: Runner,
    app: Arc<App>,
    key: SessionKey,
}

impl Conversation {
    async fn begin(runner: Runner, app: &App) -> Result<Self, RunError> {
        let session = runner.services().sessions.create(&app.name, USER, None, JsonMap::new()).await?;
        Ok(Self { key: session.key, runner, app: without_compaction(app) })
    }

    async fn events(&self) -> Result<Vector<Arc<Event>>, RunError> {
        let session = self.runner.services().sessions.get(&self.key, EventWindow::All).await?;
        Ok(session.map(|session| session.events).unwrap_or_default())
    }

    /// Runs a turn. Returns the events of the agents, and the error if it failed. Dropping the future cancels the run.
    async fn send(&self, message: &UserMessage) -> Result<(Vec<Arc<Event>>, Option<RunError>), RunError> {
        let content = message.content_for(&self.events().await?);
        let request = RunRequest {
            state_delta: message.state_delta.clone(),
            origin: CallerOrigin::InProcess,
            ..RunRequest::new(&*self.key.user, &*self.key.id, content)
        };
        let _cancel_on_drop = request.cancel.clone().drop_guard();
        let mut events = Vec::new();
        let mut run = match self.runner.run(self.app.clone(), request).await {
            Ok(run) => run,
            Err(error) => return Ok((events, Some(error))),
        };
        let mut failure = None;
        while let Some(item) = run.next().await {
            match item {
                Ok(event) if event.author != USER_AUTHOR && !event.partial => events.push(event),
                Ok(_) => {}
                Err(error) => failure = Some(error),
            }
        }
        Ok((events, failure))
    }
}
