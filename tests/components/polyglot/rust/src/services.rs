//! Tools that use the services of the host.

use hatchery_guest::prelude::*;
use hatchery_guest::{EventWindow, StreamingMode};

/// A message to an app.
#[derive(Deserialize, JsonSchema)]
pub struct Errand {
    app: String,
    text: String,
}

/// Runs an app in a session `errand`, and returns its last words; after `live: ` in a live run, in a session `talk`.
#[tool]
pub async fn delegate(errand: Errand, cx: ToolContext) -> Result<Value, Error> {
    let apps = cx.runner().list_apps()?;
    if let Some(text) = errand.text.strip_prefix("live: ") {
        let run = cx.runner().run_live(LiveRunRequest::new(errand.app).session("talk")).await?;
        run.send(LiveRequest::text(text)).await?;
        let mut last = String::new();
        while let Some(event) = run.next().await? {
            if !event.partial && event.content.is_some() {
                last = event.text_content();
            }
            if event.turn_complete == Some(true) {
                break;
            }
        }
        run.close().await;
        let mut rest = 0;
        while run.next().await?.is_some() {
            rest += 1;
        }
        return Ok(json!({ "apps": apps, "session": run.session(), "text": last, "rest": rest }));
    }
    let request = RunRequest::new(errand.app, errand.text).session("errand").state("lamp", 1)?;
    let run = cx.runner().run(request).await?;
    let session = run.session().to_owned();
    Ok(json!({ "apps": apps, "session": session, "text": run.text().await? }))
}

/// Creates, extends, reads and deletes a session.
#[tool]
pub async fn keep_diary(cx: ToolContext) -> Result<Value, Error> {
    let diary = cx.sessions("storyteller");
    let created = diary.create(Some("today"), [("mood".to_owned(), json!("good"))].into_iter().collect()).await?;
    let mut author = String::new();
    for text in ["Dear diary.", "Goodbye."] {
        author = diary.append("today", Event::text(text)).await?.author;
    }
    let newest = diary.events("today", EventWindow::all().recent(1), 0, 10).await?;
    let ids: Vec<_> = diary.list(0, 10).await?.into_iter().map(|session| session.id).collect();
    let count = diary.get("today").await?.map(|session| session.event_count);
    diary.delete("today").await?;
    Ok(json!({
        "state": created.state,
        "author": author,
        "newest": newest.iter().map(Event::text_content).collect::<Vec<_>>(),
        "ids": ids,
        "count": count,
        "is_gone": diary.get("today").await?.is_none(),
    }))
}

/// A text to remember.
#[derive(Deserialize, JsonSchema)]
pub struct Lesson {
    text: String,
}

/// Adds a text and the session to the memory, and returns what is found there.
#[tool]
pub async fn learn(lesson: Lesson, cx: ToolContext) -> Result<Vec<String>, Error> {
    let note = Event { id: "note-1".into(), author: "clerk".into(), ..Event::text(&lesson.text) };
    cx.memory().add_session().await?;
    cx.memory().add_events([note.clone(), note]).await?;
    let found = cx.memory().search(lesson.text).await?;
    Ok(found.into_iter().map(|entry| entry.content.text()).collect())
}

/// Two texts.
#[derive(Deserialize, JsonSchema)]
pub struct Pair {
    one: String,
    other: String,
}

/// Compares two texts by their embeddings: 1 for the same spelling.
#[tool]
pub async fn compare(pair: Pair, cx: ToolContext) -> Result<Value, Error> {
    let vectors = cx.embed("local:hashed-ngrams", [pair.one, pair.other]).await?;
    let product = match vectors.as_slice() {
        [one, other] => one.iter().zip(other).map(|(one, other)| one * other).sum(),
        _ => 0.0_f32,
    };
    Ok(json!({ "models": cx.models()?, "same": product > 0.99 }))
}

/// Describes the run.
#[tool]
pub async fn look(cx: ToolContext) -> Result<Value, Error> {
    let info = cx.info()?;
    let plugins: Vec<_> = cx.plugins()?.into_iter().map(|plugin| plugin.name).collect();
    Ok(json!({
        "streams": info.streaming_mode == StreamingMode::Sse,
        "resumable": info.is_resumable,
        "depth": info.depth,
        "calls": info.remaining.model_calls,
        "bytes": info.remaining.bytes,
        "plugins": plugins,
        "component": cx.plugin("answerer")?.and_then(|plugin| plugin.component),
        "nobody": cx.plugin("nobody")?.is_none(),
        "arguments": cx.arguments::<Value>()?,
        "key": cx.idempotency_key()?.map(|key| key.len()),
    }))
}

/// A number of loaves.
#[derive(Deserialize, JsonSchema)]
pub struct Batch {
    loaves: u32,
}

/// Reports progress for each loaf, and returns the metadata of the run.
#[tool]
pub async fn bake(batch: Batch, cx: ToolContext) -> Result<Value, Error> {
    for loaf in 1..=batch.loaves {
        cx.report_progress(f64::from(loaf), f64::from(batch.loaves), format!("loaf {loaf}"))?;
    }
    Ok(Value::Object(cx.run_metadata()?))
}

/// Ends the run.
#[tool]
pub async fn stop(cx: ToolContext) -> Result<&'static str, Error> {
    cx.end_invocation()?;
    Ok("stopped")
}
