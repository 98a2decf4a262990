//! Other apps: a run of one, in sessions of the user.

use hatchery_guest::prelude::*;
use hatchery_guest::{EventWindow, SessionInfo};

use crate::memory::memory;

/// A run to start.
#[derive(Deserialize, JsonSchema)]
pub struct Errand {
    /// The app.
    app: String,
    /// The message.
    text: String,
    /// The session; a new one if there is none.
    session: Option<String>,
    /// A state key to set.
    state: Option<String>,
    /// How many events to read before the run is cancelled.
    cancel_after: Option<usize>,
}

/// Runs an app, and returns the result.
#[tool]
pub async fn delegate(errand: Errand, cx: ToolContext) -> Result<Value, Error> {
    run(errand, &cx).await
}

async fn run(errand: Errand, cx: &Context) -> Result<Value, Error> {
    let mut request = RunRequest::new(errand.app, errand.text);
    request.session = errand.session;
    if let Some(key) = errand.state {
        request = request.state(key, 1)?;
    }
    let mut run = cx.runner().run(request).await?;
    let mut texts = Vec::new();
    let error = loop {
        match run.next().await {
            Ok(Some(event)) => texts.push(format!("{}: {}", event.author, event.text_content())),
            Ok(None) => break None,
            Err(error) => break Some(error.code),
        }
        if errand.cancel_after == Some(texts.len()) {
            run.cancel()?;
        }
    };
    Ok(json!({ "session": run.session(), "run": run.invocation_id(), "texts": texts, "error": error }))
}

/// Lists the apps that can be run.
#[tool]
pub async fn list_apps(cx: ToolContext) -> Result<Vec<String>, Error> {
    cx.runner().list_apps()
}

/// Starts a run and drops it after its first event.
#[tool]
pub async fn abandon(errand: Errand, cx: ToolContext) -> Result<bool, Error> {
    let mut run = cx.runner().run(RunRequest::new(errand.app, errand.text).session("abandoned")).await?;
    Ok(run.next().await?.is_some())
}

/// Runs the app that the user names first, with the rest of the message, in the session that the app's name ends in, if
/// it has a `/`.
#[agent]
pub async fn courier(cx: AgentContext) -> Result<(), Error> {
    let message = cx.user_content()?.text();
    let (app, text) = message.split_once(' ').unwrap_or((message.as_str(), "hello"));
    let (app, session) = app.split_once('/').map_or((app, None), |(app, session)| (app, Some(session.to_owned())));
    let errand = Errand { app: app.into(), text: text.into(), session, state: None, cancel_after: None };
    match run(errand, &cx).await {
        Ok(outcome) => cx.say(outcome.to_string()).await,
        Err(error) => cx.say(format!("{}: {error}", error.code)).await,
    }
}

/// Emits lines without end.
#[agent]
pub async fn chatterbox(cx: AgentContext) -> Result<(), Error> {
    loop {
        cx.say("And another thing.").await?;
    }
}

/// Fails.
#[agent]
pub async fn failing(_cx: AgentContext) -> Result<(), Error> {
    Err(Error::new("OUT_OF_ORDER", "it is out of order"))
}

/// Has the tools that use other apps and their sessions.
#[agent]
pub fn office() -> LlmAgent {
    LlmAgent::new("office")
        .model("scripted:services.yaml")
        .tool(delegate)
        .tool(list_apps)
        .tool(abandon)
        .tool(sessions)
        .tool(memory)
}

/// An operation on the sessions of an app.
#[derive(Deserialize, JsonSchema)]
pub struct Order {
    /// `create`, `get`, `list`, `events`, `append` or `delete`.
    what: String,
    /// The app.
    app: String,
    /// The session.
    id: Option<String>,
    /// The author of an appended event.
    author: Option<String>,
    /// A state key to set.
    state: Option<String>,
    /// How many of the newest events to read.
    recent: Option<u32>,
    /// The number of the first event or session to read.
    #[serde(default)]
    offset: u64,
}

fn summary(session: SessionInfo) -> Value {
    json!({ "id": session.id, "events": session.event_count, "state": session.state })
}

/// Performs an operation on the user's sessions of an app.
#[tool]
pub async fn sessions(order: Order, cx: ToolContext) -> Result<Value, Error> {
    let (sessions, id) = (cx.sessions(order.app), order.id.unwrap_or_default());
    let state = || order.state.iter().map(|key| (key.clone(), json!(1))).collect();
    Ok(match order.what.as_str() {
        "create" => summary(sessions.create(Some(&id).filter(|id| !id.is_empty()).map(String::as_str), state()).await?),
        "get" => json!(sessions.get(&id).await?.map(summary)),
        "list" => json!(sessions.list(order.offset, 10).await?.into_iter().map(summary).collect::<Vec<_>>()),
        "events" => {
            let window = order.recent.map_or(EventWindow::all(), |count| EventWindow::all().recent(count));
            let events = sessions.events(&id, window, order.offset, 10).await?;
            json!(events.iter().map(|event| format!("{}: {}", event.author, event.text_content())).collect::<Vec<_>>())
        }
        "append" => {
            let mut event = Event { author: order.author.unwrap_or_default(), ..Event::text("a note") };
            event.actions.state_delta = state();
            let event = sessions.append(&id, event).await?;
            json!({ "author": event.author, "run": event.invocation_id })
        }
        _ => json!(sessions.delete(&id).await?),
    })
}
