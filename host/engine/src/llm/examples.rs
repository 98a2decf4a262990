//! Few-shot examples in the system instruction.

use hatchery_core::{CallContext, Examples, RunError};

use crate::tools::builtin::examples::format_examples;

/// Returns the instruction with the agent's examples. `None` if there are none for the user's message.
pub(super) async fn instruction(examples: Option<&Examples>, cx: &CallContext) -> Result<Option<String>, RunError> {
    match examples {
        None => Ok(None),
        Some(Examples::Fixed(examples)) => Ok(format_examples(examples)),
        Some(Examples::Chosen(provider)) => {
            let query = cx.invocation.user_content().text();
            Ok(format_examples(&provider.examples(&query, cx).await?))
        }
    }
}
