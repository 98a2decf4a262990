//! The memory: adding and searching.

use hatchery_guest::join_all;
use hatchery_guest::prelude::*;

/// The text to add or to search.
#[derive(Deserialize, JsonSchema)]
pub struct Note {
    /// `search`, `add_session` or `add_events`.
    what: String,
    /// The query, or the text to remember.
    #[serde(default)]
    text: String,
    /// Another session to add.
    session: Option<String>,
    /// The number of searches at the same time; 1 by default.
    times: Option<u32>,
}

/// Adds to the memory, or searches it.
#[tool]
pub async fn memory(note: Note, cx: ToolContext) -> Result<Value, Error> {
    let memory = cx.memory();
    match (note.what.as_str(), note.session) {
        ("add_session", None) => memory.add_session().await?,
        ("add_session", Some(id)) => memory.add_session_by_id(&id).await?,
        ("add_events", _) => {
            let event = Event { id: "note-1".into(), author: "office".into(), ..Event::text(note.text) };
            memory.add_events([event.clone(), event]).await?;
        }
        _ => {
            let searches = (0..note.times.unwrap_or(1)).map(|_| memory.search(note.text.clone()));
            let mut texts = Vec::new();
            for found in join_all(searches).await {
                texts.extend(found?.iter().map(|entry| entry.content.text()));
            }
            return Ok(json!(texts));
        }
    }
    Ok(Value::Null)
}
