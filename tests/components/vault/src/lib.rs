//! Protected resources: a note in a granted folder, a payment that requires confirmation, and state of the user.

use std::fs;

use hatchery_guest::prelude::*;

/// Returns the note in the granted folder.
#[tool]
async fn read_note() -> Result<String, ToolError> {
    Ok(fs::read_to_string("/vault/note.txt")?)
}

/// A payment.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Payment {
    /// The amount.
    amount: u64,
    /// The payee.
    to: String,
}

/// Makes a payment after confirmation, and records it in the state key `paid`.
#[tool(confirm)]
async fn pay(payment: Payment, cx: ToolContext) -> Result<Payment, ToolError> {
    cx.set_state("paid", &payment)?;
    Ok(payment)
}

/// Remembers the user's secret number in the state key `user:ssn`.
#[tool]
async fn remember_secret(cx: ToolContext) -> Result<(), ToolError> {
    cx.set_state("user:ssn", "123-45-6789")?;
    Ok(())
}

hatchery_guest::export! { tools: [read_note, pay, remember_secret] }
