//! Plays conversations of the samples over HTTP.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::{self, text_at};
use crate::host::{Host, USER, events_in};
use crate::live::Live;

/// Messages to an app with the expected events, in the format of `hatchery test`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    pub app: String,
    turns: Vec<Turn>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    user: String,
    /// The stored message, if a plugin changes it.
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

/// The route for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// `/run`, which returns all events in one answer.
    Run,
    /// A route with server-sent events.
    Sse {
        /// `/run_sse` or `/run-sse`.
        path: &'static str,
        /// Whether partial events are sent.
        streaming: bool,
    },
    /// `/run_live`, in one connection per conversation.
    Live,
}

impl Conversation {
    /// Finds all conversations in a folder and its subfolders, with their paths.
    ///
    /// # Errors
    /// If one cannot be read.
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

    /// Plays the conversation in a new session. Returns the number of partial events.
    ///
    /// # Errors
    /// If an expected event or state is missing, or the session does not contain the events.
    pub async fn play(&self, host: &Host, route: Route) -> anyhow::Result<usize> {
        let session = host.post(&format!("/apps/{}/users/{USER}/sessions", self.app), &json!({})).await?.json(200)?;
        let session = text_at(&session, "/id").to_owned();
        let mut partial_events = 0;
        let mut yielded = Vec::new();
        let mut live = match route {
            Route::Live => Some(Live::connect(host, &self.app, &session).await?),
            Route::Run | Route::Sse { .. } => None,
        };
        for turn in &self.turns {
            let events = match &mut live {
                Some(live) => live.ask(&turn.user).await?,
                None => send(host, route, &self.app, &session, &turn.user).await?,
            };
            partial_events += event::check_partial_events(&events)?;
            let complete: Vec<Value> = events.into_iter().filter(|event| !event::is_partial(event)).collect();
            turn.compare(&complete)?;
            yielded.extend(complete);
            let stored = host.session(&self.app, &session).await?;
            turn.compare_state(&stored)?;
            let stored = events_in(&stored)?;
            let (messages, responses): (Vec<_>, Vec<_>) =
                stored.into_iter().partition(|event| text_at(event, "/author") == "user");
            ensure!(responses == yielded, "the stored events differ from the yielded ones: {responses:?}, {yielded:?}");
            let expected = turn.stored.as_ref().unwrap_or(&turn.user);
            ensure!(
                messages.last().map(event::text).as_ref() == Some(expected),
                "the user's text is not stored: {messages:?}"
            );
        }
        Ok(partial_events)
    }
}

async fn send(host: &Host, route: Route, app: &str, session: &str, text: &str) -> anyhow::Result<Vec<Value>> {
    match route {
        Route::Run => host.run(app, session, text).await,
        Route::Sse { path, streaming } => host.stream_over(path, app, session, text, streaming).await?.collect().await,
        Route::Live => Live::connect(host, app, session).await?.ask(text).await,
    }
}

impl Turn {
    /// Checks that the expected items occur in this order. One text of an event can match several expected texts.
    fn compare(&self, events: &[Value]) -> anyhow::Result<()> {
        let items: Vec<Item> = events.iter().flat_map(items_of).collect();
        let mut rest = items.as_slice();
        for expected in &self.expect {
            let position = rest.iter().position(|item| expected.matches(item));
            let position = position.with_context(|| format!("{:?}: {expected:?} is not in {items:?}", self.user))?;
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
enum Item {
    Call(String),
    Response(String),
    Text(String),
}

fn items_of(event: &Value) -> Vec<Item> {
    let mut items = Vec::new();
    let text = event::text(event);
    if !text.is_empty() {
        items.push(Item::Text(text));
    }
    for part in event::parts(event) {
        if let Some(call) = part.get("functionCall") {
            items.push(Item::Call(text_at(call, "/name").into()));
        }
        if let Some(response) = part.get("functionResponse") {
            items.push(Item::Response(text_at(response, "/name").into()));
        }
    }
    items
}

impl Expected {
    fn matches(&self, item: &Item) -> bool {
        match item {
            Item::Call(name) => self.call.as_ref() == Some(name),
            Item::Response(name) => self.response.as_ref() == Some(name),
            Item::Text(text) => self.text.as_ref().is_some_and(|part| text.contains(part.as_str())),
        }
    }
}
