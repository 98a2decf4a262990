//! Conversations of the samples, played over HTTP.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::{self, text_at};
use crate::host::{Host, USER, events_in};

/// What is said to an app, and what must come back: the format of `hatchery test`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// The app.
    pub app: String,
    turns: Vec<Turn>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    user: String,
    /// What the session has of it, where a plugin changes it.
    stored: Option<String>,
    #[serde(default)]
    expect: Vec<Expected>,
    #[serde(default)]
    state: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    call: Option<String>,
    response: Option<String>,
    text: Option<String>,
}

/// How a turn is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/run`: all events in one answer.
    Run,
    /// A route of server-sent events.
    Sse {
        /// `/run_sse` or `/run-sse`.
        path: &'static str,
        /// Whether pieces of answers come too.
        streaming: bool,
    },
}

impl Conversation {
    /// All conversations in a folder and below it, with their files.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn find(folder: &Path) -> anyhow::Result<Vec<(PathBuf, Self)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                found.extend(Self::find(&path)?);
            } else if path.file_name().is_some_and(|name| name == "conversation.yaml") {
                let text = std::fs::read_to_string(&path)?;
                let conversation = serde_yaml::from_str(&text).with_context(|| path.display().to_string())?;
                found.push((path, conversation));
            }
        }
        Ok(found)
    }

    /// Plays it in a new session; gives how many pieces of answers came.
    ///
    /// # Errors
    /// When something does not come back as it must, or the session does not hold what came.
    pub async fn play(&self, host: &Host, route: Route) -> anyhow::Result<usize> {
        let session = host.post(&format!("/apps/{}/users/{USER}/sessions", self.app), &json!({})).await?.json(200)?;
        let session = text_at(&session, "/id").to_owned();
        let mut pieces = 0;
        let mut yielded = Vec::new();
        for turn in &self.turns {
            let events = say(host, route, &self.app, &session, &turn.user).await?;
            pieces += event::check_pieces(&events)?;
            let whole: Vec<Value> = events.into_iter().filter(|event| !event::is_partial(event)).collect();
            turn.compare(&whole)?;
            yielded.extend(whole);
            let stored = host.session(&self.app, &session).await?;
            turn.compare_state(&stored)?;
            let stored = events_in(&stored)?;
            let (said, answered): (Vec<_>, Vec<_>) =
                stored.into_iter().partition(|event| text_at(event, "/author") == "user");
            ensure!(answered == yielded, "what is stored is not what was yielded: {answered:?}, {yielded:?}");
            let expected = turn.stored.as_ref().unwrap_or(&turn.user);
            ensure!(said.last().map(event::text).as_ref() == Some(expected), "the user's text is not stored: {said:?}");
        }
        Ok(pieces)
    }
}

async fn say(host: &Host, route: Route, app: &str, session: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    match route {
        Route::Run => host.run(app, session, text).await,
        Route::Sse { path, streaming } => host.stream_over(path, app, session, text, streaming).await?.collect().await,
    }
}

impl Turn {
    /// Each expectation must be met behind those before it; two texts may be met by one event.
    fn compare(&self, events: &[Value]) -> anyhow::Result<()> {
        let seen: Vec<Seen> = events.iter().flat_map(seen).collect();
        let mut rest = seen.as_slice();
        for expected in &self.expect {
            let position = rest.iter().position(|seen| expected.is_met_by(seen));
            let position =
                position.with_context(|| format!("{:?}: {expected:?} does not come in {seen:?}", self.user))?;
            let step = usize::from(expected.text.is_none());
            rest = rest.get(position + step..).unwrap_or_default();
        }
        Ok(())
    }

    fn compare_state(&self, session: &Value) -> anyhow::Result<()> {
        let state = session.get("state").and_then(Value::as_object).context("the session has no `state`")?;
        for (key, expected) in &self.state {
            let actual = state.get(key).unwrap_or(&Value::Null);
            ensure!(actual == expected, "{:?}: state `{key}` is {actual}, not {expected}", self.user);
        }
        Ok(())
    }
}

#[derive(Debug)]
enum Seen {
    Call(String),
    Response(String),
    Text(String),
}

fn seen(event: &Value) -> Vec<Seen> {
    let mut seen = Vec::new();
    let text = event::text(event);
    if !text.is_empty() {
        seen.push(Seen::Text(text));
    }
    for part in event::parts(event) {
        if let Some(call) = part.get("functionCall") {
            seen.push(Seen::Call(text_at(call, "/name").into()));
        }
        if let Some(response) = part.get("functionResponse") {
            seen.push(Seen::Response(text_at(response, "/name").into()));
        }
    }
    seen
}

impl Expected {
    fn is_met_by(&self, seen: &Seen) -> bool {
        match seen {
            Seen::Call(name) => self.call.as_ref() == Some(name),
            Seen::Response(name) => self.response.as_ref() == Some(name),
            Seen::Text(text) => self.text.as_ref().is_some_and(|part| text.contains(part.as_str())),
        }
    }
}
