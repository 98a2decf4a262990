//! An agent in a program of your own: no server, no files, no WebAssembly.
//!
//!     cargo run -p hatchery-engine --example embed
//!     GEMINI_API_KEY=… cargo run -p hatchery-engine --example embed -- gemini-2.5-flash
//!
//! Without the name of a model it uses a script, so that it runs without a network.

use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

use hatchery_core::{Agent, Content, Event, RunConfig, StreamingMode};
use hatchery_engine::build::{BuildError, function_tool, llm};
use hatchery_engine::{App, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_models::{ModelProviders, Settings};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The arguments of the tool. The model gets these comments as descriptions.
#[derive(Deserialize, JsonSchema)]
struct CountWords {
    /// The text whose words are counted.
    text: String,
}

/// Returns an agent with one tool.
fn word_counter(model: Option<&str>) -> Result<Agent, BuildError> {
    let count_words = function_tool("count_words", "Counts the words of a text.", |args: CountWords, cx| async move {
        let words = args.text.split_whitespace().count();
        cx.set_state("last_count", json!(words));
        Ok(words)
    });
    let agent = llm("word-counter").instruction("Count words when asked to.").tool(count_words);
    match model {
        Some(name) => agent.model(name).build(),
        None => agent.model_instance("scripted", Arc::new(script())).build(),
    }
}

/// Returns the model that is used if none is named.
fn script() -> Scripted {
    Scripted::new()
        .on_tool("count_words", Reply::text("These are {tool.result} words.").chunked(3))
        .on_user("count:", Reply::call("count_words", json!({ "text": "{rest}" })))
        .default_reply("I only count words.")
}

/// Runs one turn with `text`, and streams the events to `out`.
pub async fn run_turn(model: Option<&str>, text: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let app = Arc::new(App::new("words", word_counter(model)?)?);
    let models = ModelProviders::with_defaults(Settings::from_env());
    let runner = Runner::new(hatchery_stores::in_memory(Arc::new(models)));
    let config = RunConfig { streaming_mode: StreamingMode::On, auto_create_session: true, ..RunConfig::default() };
    let request = RunRequest { config, ..RunRequest::new("ada", "session-1", Content::user(text)) };
    let mut run = runner.run(app.clone(), request).await?;
    while let Some(event) = run.next().await {
        write_event(event?.as_ref(), out)?;
    }
    runner.close().await;
    app.close().await;
    Ok(())
}

/// Writes chunks of text as they are, and calls and their responses on separate lines. The complete text at the end of
/// a stream is omitted.
fn write_event(event: &Event, out: &mut impl Write) -> std::io::Result<()> {
    if event.partial {
        let text = event.content.as_ref().map(|content| content.text()).unwrap_or_default();
        write!(out, "{text}")?;
        return out.flush();
    }
    for call in event.function_calls() {
        writeln!(out, "→ {}({})", call.name, json!(call.args))?;
    }
    for response in event.function_responses() {
        writeln!(out, "← {} {}", response.name, json!(response.response))?;
    }
    if event.is_final_response() {
        writeln!(out)?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1);
    run_turn(model.as_deref(), "Please count: a rose is a rose", &mut stdout()).await
}
