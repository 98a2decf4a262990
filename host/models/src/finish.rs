//! Finish reasons. All providers use Gemini's names.

use hatchery_core::LlmResponse;

/// The reason of a complete response.
pub(crate) const STOP: &str = "STOP";

/// Sets the finish reason. Any reason but [`STOP`] also makes the response an error with the reason as its code and
/// `message`, or a default text, as its message.
pub(crate) fn set(response: &mut LlmResponse, reason: &str, message: Option<String>) {
    response.finish_reason = Some(reason.to_owned());
    if reason == STOP {
        return;
    }
    response.error_code = Some(reason.to_owned());
    response.error_message = Some(message.unwrap_or_else(|| {
        match reason {
            "MAX_TOKENS" => "the answer was cut off at the limit of tokens; raise maxOutputTokens",
            "SAFETY" | "PROHIBITED_CONTENT" | "BLOCKLIST" | "SPII" => "the provider blocked the answer",
            "RECITATION" => "the provider stopped the answer, which repeated protected text",
            "MALFORMED_FUNCTION_CALL" => "the model wrote a tool call that cannot be read",
            _ => "the model ended its answer early",
        }
        .to_owned()
    }));
}
