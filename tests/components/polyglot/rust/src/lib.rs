//! The same items in each guest language: Rust with the SDK. See `../python`, `../js` and `../plain`.

mod items;
mod services;
mod web;

use hatchery_guest::prelude::*;

use items::{Answerer, chief, count, echo_examples, foreman, keys, parrot, reverse, starling};
use services::{bake, compare, delegate, keep_diary, learn, look, stop};
use web::{visit, visit_all};

/// The arguments of `scale`.
#[derive(Deserialize, JsonSchema)]
struct Scale {
    /// The number.
    number: f64,
    /// How often it is taken.
    #[serde(default = "two")]
    by: i64,
    /// The type of the result.
    style: Option<Style>,
}

fn two() -> i64 {
    2
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Style {
    Plain,
    Text,
}

/// Multiplies a number.
#[tool]
async fn scale(args: Scale) -> Value {
    let result = args.number * args.by as f64;
    match args.style {
        None | Some(Style::Plain) => json!({ "result": result }),
        Some(Style::Text) => json!({ "result": result.to_string() }),
    }
}

/// The reason of a failure.
#[derive(Deserialize, JsonSchema)]
struct Reason {
    reason: String,
}

/// Fails with an error for the model.
#[tool]
async fn refuse(why: Reason) -> Result<(), ToolError> {
    Err(ToolError::recoverable(why.reason))
}

/// Fails with an error that ends the run.
#[tool]
async fn break_off(why: Reason) -> Result<(), ToolError> {
    Err(ToolError::fatal(Error::new("BROKEN", why.reason)))
}

/// A state key and its value.
#[derive(Deserialize, JsonSchema)]
struct Entry {
    key: String,
    value: Value,
}

/// Sets a state key and returns the old and the new value.
#[tool]
async fn remember(entry: Entry, cx: ToolContext) -> Result<Value, ToolError> {
    let before = cx.state::<Value>(&entry.key)?;
    cx.set_state(&entry.key, entry.value)?;
    Ok(json!({ "before": before, "now": cx.state::<Value>(&entry.key)? }))
}

/// A setting.
#[derive(Deserialize, JsonSchema)]
struct Key {
    key: String,
}

/// Returns one of the component's own settings.
#[tool]
async fn setting(args: Key, cx: ToolContext) -> Result<Option<Value>, ToolError> {
    Ok(cx.config(&args.key)?)
}

/// A line.
#[derive(Deserialize, JsonSchema)]
struct Line {
    text: String,
}

/// Writes a line to the log.
#[tool]
async fn note(line: Line) -> bool {
    log::info(line.text, &[("language", &"rust")]);
    true
}

/// A file.
#[derive(Deserialize, JsonSchema)]
struct File {
    name: String,
    text: String,
}

/// Saves an artifact and loads it again.
#[tool]
async fn keep(file: File, cx: ToolContext) -> Result<Value, ToolError> {
    let artifacts = cx.artifacts();
    let letters = json!({ "letters": file.text.len() });
    let version = artifacts.save_with(&file.name, Part::text(file.text), letters).await?;
    let part = artifacts.load(&file.name).await?;
    let text = part.as_ref().and_then(Part::as_text);
    let known = artifacts.version(&file.name, None).await?.ok_or_else(|| ToolError::fatal("it is not known"))?;
    let photo = artifacts.save("photo", Part::bytes("image/png", b"png")).await?;
    let photo = artifacts.version("photo", Some(photo)).await?.and_then(|version| version.mime_type);
    let missing = artifacts.version("missing", None).await?.map(|version| version.version);
    let about = json!({
        "version": known.version, "size": known.size, "hasTime": known.created_micros.is_some(),
        "custom": known.custom_metadata, "photo": photo,
    });
    let names = artifacts.list().await?;
    Ok(json!({ "version": version, "text": text, "about": about, "missing": missing, "names": names }))
}

/// Calls another tool twice at the same time.
#[tool]
async fn both(cx: ToolContext) -> Result<Value, ToolError> {
    let (one, two) = (json!({ "number": 1 }), json!({ "number": 2 }));
    let (one, two) = futures::try_join!(cx.call_tool::<Value>("scale", &one), cx.call_tool::<Value>("scale", &two))?;
    Ok(json!([one.get("result"), two.get("result")]))
}

/// Returns a random number.
#[tool]
async fn chance() -> Result<u32, ToolError> {
    Ok(getrandom::u32()?)
}

async fn tell(cx: AgentContext) -> Result<(), Error> {
    cx.say("one").await?;
    cx.set_state("told", 2)?;
    cx.say("two").await?;
    if cx.user_content()?.text() == "fail" {
        return Err(Error::new("STORY_LOST", "the story is lost"));
    }
    let answer = cx.generate(LlmRequest::new("", "Go on.").with_instruction("Be brief.")).await?;
    cx.say(answer.text_content()).await
}

/// Emits two lines and the response of a model; fails if the message asks for it.
#[agent]
fn storyteller() -> CustomAgent {
    CustomAgent::new("storyteller", tell).model("any")
}

async fn repeat(cx: AgentContext) -> Result<(), Error> {
    for event in cx.events(0, 100)? {
        cx.emit(event).await?;
    }
    Ok(())
}

/// Emits the events of the session once more.
#[agent]
fn echo() -> CustomAgent {
    CustomAgent::new("echo", repeat)
}

/// Answers for calls with the number 13, and takes 99 for 1.
#[callback(before_tool)]
async fn veto(call: &mut ToolCall, cx: CallbackContext) -> Result<Option<Value>, Error> {
    match call.args.get("number").and_then(Value::as_f64) {
        Some(13.0) => {
            cx.set_state("vetoed", &call.tool)?;
            return Ok(Some(json!({ "vetoed": true })));
        }
        Some(99.0) => {
            call.args.insert("number".into(), json!(1));
        }
        _ => {}
    }
    Ok(None)
}

/// Marks the answers of a tool.
#[callback(after_tool)]
async fn stamp(call: &ToolCall, response: &Value) -> Result<Option<Value>, Error> {
    let mut response = response.clone();
    Ok((call.tool == "note").then(|| {
        if let Some(response) = response.as_object_mut() {
            response.insert("stamped".into(), json!(true));
        }
        response
    }))
}

async fn manner(cx: Context) -> Result<String, Error> {
    Ok(format!("Speak to {}.", cx.info()?.user))
}

/// Calculates.
#[agent]
fn clerk() -> LlmAgent {
    LlmAgent::new("clerk")
        .model("any")
        .instruction_fn(manner)
        .tool(scale)
        .tool(note)
        .before_tool(veto)
        .after_tool(stamp)
}

hatchery_guest::export! {
    agents: [storyteller, echo, clerk, foreman, chief],
    tools: [
        scale, refuse, break_off, remember, setting, note, keep, both, chance, delegate, keep_diary, learn, compare, look, bake, stop,
        visit, visit_all,
    ],
    toolsets: [keys],
    callbacks: [veto, stamp],
    plugins: [Answerer],
    code_executors: [reverse],
    summarizers: [count],
    examples: [echo_examples],
    models: [parrot],
    live_models: [starling],
}
