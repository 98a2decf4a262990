//! The tools.

use serde_json::{Map, Value, json};

use crate::bindings::exports::hatchery::agent::sync_guest_tools::{Guest, ToolError, ToolSpec};
use crate::bindings::hatchery::agent::types::{Blob, Error, FunctionDeclaration, Part, PartData};
use crate::bindings::hatchery::agent::{config, log, session, sync_artifacts, sync_tools};
use crate::{Plain, parsed, part, services, text_of, web};

impl Guest for Plain {
    fn describe() -> Vec<ToolSpec> {
        let scale = json!({
            "type": "object",
            "properties": {
                "number": { "type": "number", "description": "The number." },
                "by": { "type": "integer", "default": 2, "description": "How often it is taken." },
                "style": { "type": "string", "enum": ["plain", "text"] },
            },
            "required": ["number"],
        });
        vec![
            spec("scale", "Multiplies a number.", scale),
            spec("refuse", "Fails with an error for the model.", json!({ "type": "object" })),
            spec("break_off", "Fails with an error that ends the run.", json!({ "type": "object" })),
            spec("remember", "Sets a state key and returns the old and the new value.", json!({ "type": "object" })),
            spec("setting", "Returns one of the component's own settings.", json!({ "type": "object" })),
            spec("note", "Writes a line to the log.", json!({ "type": "object" })),
            spec("keep", "Saves an artifact and loads it again.", json!({ "type": "object" })),
            spec("both", "Calls another tool twice.", json!({ "type": "object" })),
            spec("chance", "Returns a random number.", json!({ "type": "object" })),
            spec(
                "delegate",
                "Runs an app in a session `errand`, and returns its last words.",
                json!({ "type": "object" }),
            ),
            spec("keep_diary", "Creates, extends, reads and deletes a session.", json!({ "type": "object" })),
            spec(
                "learn",
                "Adds a text and the session to the memory, and returns what is found.",
                json!({ "type": "object" }),
            ),
            spec("compare", "Compares two texts by their embeddings.", json!({ "type": "object" })),
            spec("look", "Describes the run.", json!({ "type": "object" })),
            spec(
                "bake",
                "Reports progress for each loaf, and returns the metadata of the run.",
                json!({ "type": "object" }),
            ),
            spec("stop", "Ends the run.", json!({ "type": "object" })),
            spec("visit", "Sends a request, and returns what has arrived, or the error.", json!({ "type": "object" })),
        ]
    }

    fn call(name: String, args: String) -> Result<String, ToolError> {
        let args: Map<String, Value> = serde_json::from_str(&args).map_err(|error| wrong(&error.to_string()))?;
        let result = match name.as_str() {
            "scale" => scale(&args)?,
            "refuse" => return Err(wrong(word(&args, "reason")?)),
            "break_off" => {
                let message = word(&args, "reason")?.to_owned();
                return Err(ToolError::Fatal(Error { code: "BROKEN".into(), message }));
            }
            "remember" => remember(&args)?,
            "setting" => config::get(word(&args, "key")?).map_err(refused)?.map_or(Value::Null, |json| parsed(&json)),
            "note" => {
                log::write("info", word(&args, "text")?, &[("language".into(), "plain".into())]).map_err(refused)?;
                json!(true)
            }
            "keep" => keep(word(&args, "name")?, word(&args, "text")?)?,
            "both" => json!([scaled(1)?, scaled(2)?]),
            "chance" => json!(getrandom::u32().map_err(|error| wrong(&error.to_string()))?),
            "delegate" => services::delegate(word(&args, "app")?, word(&args, "text")?).map_err(refused)?,
            "keep_diary" => services::keep_diary().map_err(refused)?,
            "learn" => services::learn(word(&args, "text")?).map_err(refused)?,
            "compare" => services::compare(word(&args, "one")?, word(&args, "other")?).map_err(refused)?,
            "look" => services::look().map_err(refused)?,
            "bake" => services::bake(&args).map_err(refused)?,
            "stop" => services::stop().map_err(refused)?,
            "visit" => web::visit(&args),
            other => return Err(wrong(&format!("this component has no tool `{other}`"))),
        };
        Ok(result.to_string())
    }
}

fn spec(name: &str, description: &str, parameters: Value) -> ToolSpec {
    let declaration = FunctionDeclaration {
        name: name.into(),
        description: description.into(),
        parameters: Some(parameters.to_string()),
        response: None,
    };
    ToolSpec { declaration, long_running: false, requires_confirmation: false }
}

fn wrong(message: &str) -> ToolError {
    ToolError::Recoverable(message.into())
}

fn refused(error: Error) -> ToolError {
    ToolError::Recoverable(error.message)
}

fn word<'a>(args: &'a Map<String, Value>, key: &str) -> Result<&'a str, ToolError> {
    args.get(key).and_then(Value::as_str).ok_or_else(|| wrong(&format!("argument `{key}` must be a string")))
}

fn scale(args: &Map<String, Value>) -> Result<Value, ToolError> {
    let number = args.get("number").and_then(Value::as_f64);
    let number = number.ok_or_else(|| wrong("argument `number` must be a number"))?;
    let result = number * args.get("by").and_then(Value::as_f64).unwrap_or(2.0);
    match args.get("style").and_then(Value::as_str) {
        None | Some("plain") => Ok(json!({ "result": result })),
        Some("text") => Ok(json!({ "result": result.to_string() })),
        Some(_) => Err(wrong("argument `style` must be plain or text")),
    }
}

fn remember(args: &Map<String, Value>) -> Result<Value, ToolError> {
    let key = word(args, "key")?;
    let read = || session::get_state(key).map(|value| value.map_or(Value::Null, |json| parsed(&json))).map_err(refused);
    let before = read()?;
    session::set_state(key, &args.get("value").unwrap_or(&Value::Null).to_string()).map_err(refused)?;
    Ok(json!({ "before": before, "now": read()? }))
}

fn keep(name: &str, text: &str) -> Result<Value, ToolError> {
    let letters = json!({ "letters": text.len() }).to_string();
    let version = sync_artifacts::save_with(name, &part(text), &letters).map_err(refused)?;
    let loaded = sync_artifacts::load(name, None).map_err(refused)?;
    let content = loaded.map(|part| crate::Content { role: None, parts: vec![part] });
    let known = sync_artifacts::get_version(name, None).map_err(refused)?.ok_or_else(|| wrong("it is not known"))?;
    let blob = Blob { mime_type: "image/png".into(), data: b"png".to_vec(), display_name: None };
    let photo = Part { data: PartData::InlineData(blob), ..part("") };
    let photo = sync_artifacts::save("photo", &photo).map_err(refused)?;
    let photo = sync_artifacts::get_version("photo", Some(photo)).map_err(refused)?;
    let missing = sync_artifacts::get_version("missing", None).map_err(refused)?.map(|version| version.version);
    let about = json!({
        "version": known.version, "size": known.size, "hasTime": known.created.is_some(),
        "custom": parsed(&known.custom_metadata), "photo": photo.and_then(|version| version.mime_type),
    });
    let names = sync_artifacts::list().map_err(refused)?;
    Ok(
        json!({ "version": version, "text": text_of(content.as_ref()), "about": about, "missing": missing, "names": names }),
    )
}

fn scaled(number: u32) -> Result<Value, ToolError> {
    let answer = sync_tools::call("scale", &json!({ "number": number }).to_string());
    let answer = answer.map_err(|_| wrong("`scale` failed"))?;
    Ok(parsed(&answer).get("result").cloned().unwrap_or_default())
}
