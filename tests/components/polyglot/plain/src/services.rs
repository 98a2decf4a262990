//! Tools that use the services of the host.

use serde_json::{Map, Value, json};

use crate::bindings::hatchery::agent::types::{
    Error, EventWindow, LiveMessage, LiveRequest, LiveRunRequest, RunRequest, SessionInfo,
};
use crate::bindings::hatchery::agent::{
    config, plugins, session, sync_agents, sync_memory, sync_models, sync_runner, sync_sessions,
};
use crate::events::event;
use crate::{content, parsed, text_of};

/// Runs an app in a session `errand`, and returns its last words.
pub(crate) fn delegate(app: &str, text: &str) -> Result<Value, Error> {
    let apps = sync_runner::list_apps()?;
    if let Some(text) = text.strip_prefix("live: ") {
        return talk(&apps, app, text);
    }
    let run = sync_runner::run(&RunRequest {
        app: app.into(),
        session: Some("errand".into()),
        message: content("user", text),
        state_delta: vec![("lamp".into(), "1".into())],
        streaming: false,
    })?;
    let mut last = String::new();
    while let Some(event) = run.next()? {
        if let Some(code) = event.error_code {
            return Err(Error { code, message: event.error_message.unwrap_or_default() });
        }
        if !event.partial && event.content.is_some() {
            last = text_of(event.content.as_ref());
        }
    }
    Ok(json!({ "apps": apps, "session": run.info()?.session, "text": last }))
}

/// Says something in a live run of an app in a session `talk`, and returns its last words.
fn talk(apps: &[String], app: &str, text: &str) -> Result<Value, Error> {
    let session = Some("talk".into());
    let run = sync_runner::run_live(&LiveRunRequest { app: app.into(), session, config: None })?;
    run.send(&LiveRequest::Content(LiveMessage { content: content("user", text), partial: false }))?;
    let mut last = String::new();
    while let Some(event) = run.next()? {
        if !event.partial && event.content.is_some() {
            last = text_of(event.content.as_ref());
        }
        if event.turn_complete == Some(true) {
            break;
        }
    }
    run.close()?;
    let mut rest = 0;
    while run.next()?.is_some() {
        rest += 1;
    }
    Ok(json!({ "apps": apps, "session": run.session()?, "text": last, "rest": rest }))
}

/// Creates, extends, reads and deletes a session.
pub(crate) fn keep_diary() -> Result<Value, Error> {
    let (app, id) = ("storyteller", "today");
    let created = sync_sessions::create(app, Some(id), &[("mood".into(), r#""good""#.into())])?;
    let state: Map<_, _> = created.state.into_iter().map(|(key, json)| (key, parsed(&json))).collect();
    sync_sessions::append(app, id, &event("Dear diary."))?;
    let last = sync_sessions::append(app, id, &event("Goodbye."))?;
    let newest = sync_sessions::events(app, id, EventWindow { recent: Some(1), after: None }, 0, 10)?;
    let newest: Vec<_> = newest.iter().map(|event| text_of(event.content.as_ref())).collect();
    let ids: Vec<_> = sync_sessions::list(app, 0, 10)?.into_iter().map(|session: SessionInfo| session.id).collect();
    let count = sync_sessions::get(app, id)?.map(|session| session.event_count);
    sync_sessions::delete(app, id)?;
    let is_gone = sync_sessions::get(app, id)?.is_none();
    Ok(json!({
        "state": state, "author": last.author, "newest": newest, "ids": ids, "count": count, "is_gone": is_gone,
    }))
}

/// Adds a text and the session to the memory, and returns what is found there.
pub(crate) fn learn(text: &str) -> Result<Value, Error> {
    let mut note = event(text);
    note.id = "note-1".into();
    note.author = "clerk".into();
    sync_memory::add_session(None)?;
    sync_memory::add_events(&[note.clone(), note])?;
    let found = sync_memory::search(text)?;
    Ok(found.iter().map(|entry| text_of(Some(&entry.content))).collect())
}

/// Compares two texts by their embeddings: 1 for the same spelling.
pub(crate) fn compare(one: &str, other: &str) -> Result<Value, Error> {
    let vectors = sync_models::embed("local:hashed-ngrams", &[one.into(), other.into()])?;
    let product = match vectors.as_slice() {
        [one, other] => one.iter().zip(other).map(|(one, other)| one * other).sum(),
        _ => 0.0_f32,
    };
    Ok(json!({ "models": sync_models::list()?, "same": product > 0.99 }))
}

/// Describes the run.
pub(crate) fn look() -> Result<Value, Error> {
    let info = session::current()?;
    let names: Vec<_> = plugins::list()?.into_iter().map(|plugin| plugin.name).collect();
    Ok(json!({
        "streams": info.streaming_mode == session::StreamingMode::Sse,
        "resumable": info.is_resumable,
        "depth": info.depth,
        "calls": info.remaining.model_calls,
        "bytes": info.remaining.bytes,
        "plugins": names,
        "component": plugins::get("answerer")?.and_then(|plugin| plugin.component),
        "nobody": plugins::get("nobody")?.is_none(),
        "arguments": config::arguments()?.map(|json| parsed(&json)),
        "key": session::idempotency_key()?.map(|key| key.len()),
    }))
}

/// Reports progress for each loaf, and returns the metadata of the run.
pub(crate) fn bake(args: &Map<String, Value>) -> Result<Value, Error> {
    let loaves = args.get("loaves").and_then(Value::as_u64).unwrap_or_default();
    for loaf in 1..=loaves {
        session::report_progress(loaf as f64, Some(loaves as f64), Some(&format!("loaf {loaf}")))?;
    }
    Ok(parsed(&session::run_metadata()?))
}

/// Ends the run.
pub(crate) fn stop() -> Result<Value, Error> {
    sync_agents::end_invocation()?;
    Ok(json!("stopped"))
}
