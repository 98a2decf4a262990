//! Parts of requests that several providers share.

use std::borrow::Cow;

use hatchery_core::GenerateContentConfig;
use serde_json::Value;

/// Text of a user message that is inserted where a provider requires one.
pub(crate) const CONTINUE_TEXT: &str = "Go on from here as your instructions say, without remarking on this line.";

/// Returns the id of a call or response. Without one, a call and its response share an id made of the tool's name.
pub(crate) fn call_id<'a>(id: Option<&'a str>, name: &str) -> Cow<'a, str> {
    match id {
        Some(id) if !id.is_empty() => Cow::Borrowed(id),
        _ => Cow::Owned(format!("call_{name}")),
    }
}

/// Returns code or its output in a fenced block.
pub(crate) fn code_fence(language: Option<&str>, text: &str) -> String {
    let language = language.unwrap_or_default().to_lowercase();
    format!("```{language}\n{}\n```\n", text.trim_end_matches('\n'))
}

/// Returns the keys of `httpOptions.extraBody`.
pub(crate) fn extra_body(config: &GenerateContentConfig) -> impl Iterator<Item = (&String, &Value)> {
    let options = config.extra.get("httpOptions");
    let body = options.and_then(|options| options.get("extraBody")).and_then(Value::as_object);
    body.into_iter().flatten()
}
