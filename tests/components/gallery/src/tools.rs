//! Tools: a setting, log lines, a panic, the call's info, one that requires confirmation, and one that requests it.

use hatchery_guest::prelude::*;

/// The arguments of `setting`.
#[derive(Deserialize, JsonSchema)]
pub struct Setting {
    /// Its key.
    key: String,
}

/// Returns one of the component's own settings.
#[tool]
pub async fn configured(setting: Setting, cx: ToolContext) -> Result<Option<Value>, ToolError> {
    Ok(cx.config(&setting.key)?)
}

/// The number of log lines.
#[derive(Deserialize, JsonSchema)]
pub struct Chatter {
    /// How many lines.
    lines: u32,
}

/// Writes lines of ten bytes to the log and one more to stderr, and returns how many went to the log.
#[tool]
pub async fn chatter(chatter: Chatter) -> u32 {
    for line in 1..=chatter.lines {
        log::info(format!("line {line:05}"), &[]);
    }
    eprintln!("that was all");
    chatter.lines
}

/// The error of a tool.
#[derive(Deserialize, JsonSchema)]
pub struct Alarm {
    /// In words.
    text: String,
}

/// Panics.
#[tool]
#[allow(clippy::panic, reason = "the tests need it")]
pub async fn panics(alarm: Alarm) {
    panic!("{}", alarm.text);
}

/// Returns the call's info.
#[tool]
pub async fn whereabouts(cx: ToolContext) -> Result<String, ToolError> {
    Ok(cx.info()?.agent)
}

/// Sets the state key `guarded` when it runs. Requires confirmation.
#[tool(confirm)]
pub async fn guarded(cx: ToolContext) -> Result<&'static str, ToolError> {
    cx.set_state("guarded", true)?;
    Ok("done")
}

/// The payload that a person may change before the confirmation.
#[derive(Serialize, Deserialize)]
struct Days {
    days: u32,
}

/// Requests confirmation with a payload of three days, and returns the confirmed payload.
#[tool]
pub async fn asks(cx: ToolContext) -> Result<Value, ToolError> {
    let Some(confirmation) = cx.confirmation()? else {
        cx.request_confirmation("Are three days off all right?", Days { days: 3 })?;
        return Ok(json!({ "status": "waiting for a person" }));
    };
    let given = confirmation.payload_as::<Days>()?;
    Ok(json!({ "hint": confirmation.hint, "confirmed": confirmation.confirmed, "days": given.map(|given| given.days) }))
}
