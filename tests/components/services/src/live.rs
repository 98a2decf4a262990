//! A live run of another app.

use hatchery_guest::prelude::*;
use hatchery_guest::{Blob, FunctionResponse, LiveRun, PartData};

/// Holds a live conversation in the session `live` with the app that the user names first: says each further word, and
/// waits for the answer. The word `(sound)` is a sound, `(answer)` the response to a function call, and `(long)` a long
/// word.
#[agent]
pub async fn switchboard(cx: AgentContext) -> Result<(), Error> {
    let message = cx.user_content()?.text();
    let (app, words) = message.split_once(' ').unwrap_or((message.as_str(), ""));
    let run = match cx.runner().run_live(LiveRunRequest::new(app).session("live")).await {
        Ok(run) => run,
        Err(error) => return cx.say(format!("{}: {error}", error.code)).await,
    };
    let mut texts = Vec::new();
    let error = talk(&run, words, &mut texts).await.err().map(|error| format!("{}: {error}", error.code));
    cx.say(json!({ "session": run.session(), "texts": texts, "error": error }).to_string()).await
}

async fn talk(run: &LiveRun, words: &str, texts: &mut Vec<String>) -> Result<(), Error> {
    for word in words.split_whitespace() {
        let response =
            || PartData::FunctionResponse(FunctionResponse { name: "f".into(), ..FunctionResponse::default() });
        let request = match word {
            "(sound)" => Blob { mime_type: "audio/pcm".into(), data: vec![1, 2, 3], display_name: None }.into(),
            "(answer)" => Content { role: None, parts: vec![response().into()] }.into(),
            "(long)" => LiveRequest::text("a".repeat(100_000)),
            word => LiveRequest::text(word),
        };
        run.send(request).await?;
        listen(run, texts).await?;
    }
    run.close().await;
    listen(run, texts).await
}

/// Reads events until the end of a turn, or of the run.
async fn listen(run: &LiveRun, texts: &mut Vec<String>) -> Result<(), Error> {
    while let Some(event) = run.next().await? {
        if !event.partial && !event.text_content().is_empty() {
            texts.push(format!("{}: {}", event.author, event.text_content()));
        }
        if event.turn_complete == Some(true) {
            return Ok(());
        }
    }
    Ok(())
}
