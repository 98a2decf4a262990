//! Keeps what others should not have: a note in a granted folder, a payment that a person must agree to, and state of the user.

use std::fs;

use hatchery_guest::prelude::*;

/// Gives the note that is in the folder granted to this component.
#[tool]
async fn read_note() -> Result<String, ToolError> {
    Ok(fs::read_to_string("/vault/note.txt")?)
}

/// A payment.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Payment {
    /// How much.
    amount: u64,
    /// To whom.
    to: String,
}

/// Pays somebody, once a person has agreed, and notes it in the state key `paid`.
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
