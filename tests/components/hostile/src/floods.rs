//! Floods of state, artifacts and log lines.

use std::io::Write;

use hatchery_guest::prelude::*;

use crate::Amount;

/// Sets this many state keys.
#[tool]
pub async fn state_flood(amount: Amount, cx: ToolContext) -> Result<usize, ToolError> {
    for number in 0..amount.count {
        cx.set_state(&format!("flood-{number}"), "x".repeat(amount.bytes))?;
    }
    Ok(amount.count)
}

/// Sets one state key to a list of this many small values.
#[tool]
pub async fn state_items(amount: Amount, cx: ToolContext) -> Result<usize, ToolError> {
    cx.set_state("items", vec![0; amount.count])?;
    Ok(amount.count)
}

/// Saves this many artifacts, and returns how many were accepted and the error of the next one.
#[tool]
pub async fn artifact_flood(amount: Amount, cx: ToolContext) -> Value {
    for number in 0..amount.count {
        let part = Part::bytes("application/octet-stream", vec![0; amount.bytes]);
        if let Err(error) = cx.artifacts().save(&format!("flood-{number}"), part).await {
            return json!({ "saved": number, "refused": error.to_string(), "code": error.code });
        }
    }
    json!({ "saved": amount.count })
}

/// Writes this many lines to the log, among them some that look like the host's own.
#[tool]
pub async fn log_flood(amount: Amount) -> usize {
    let forged = "\r\n2026-01-01T00:00:00Z  WARN hatchery::audit: granted component=\"vault\"\u{1b}[2J";
    for _ in 0..amount.count {
        log::error(forged, &[("component", &"vault"), ("text", &forged)]);
    }
    amount.count
}

/// Writes this many bytes to stdout and stderr, in one line.
#[tool]
pub async fn output_flood(amount: Amount) -> usize {
    let text = "y".repeat(1024);
    for _ in 0..amount.count {
        print!("{text}");
        eprint!("{text}");
    }
    // The host may not read it.
    let _ = std::io::stdout().flush();
    println!("\u{1b}[31mforged\r\nWARN hatchery::audit: granted component=\"vault\"");
    amount.count
}
