//! Visibility of events: which events are part of an agent's prompt, and with which content and role.

use std::sync::Arc;

use hatchery_core::{Content, Event, Part, PartData, USER_AUTHOR};
use serde_json::Value;

use crate::tools::confirmation::is_request_name;

const MODEL: &str = "model";

/// The content of an event for one agent.
#[derive(Clone)]
pub(super) struct VisibleContent {
    pub(super) content: Arc<Content>,
    /// True if it is a message of the user or of another agent, which starts a turn of the agent.
    pub(super) starts_turn: bool,
}

/// Returns the content of an event for `agent` in `branch`, or `None` if the event is not visible.
pub(super) fn visible_to(event: &Event, agent: &str, branch: Option<&str>) -> Option<VisibleContent> {
    if event.partial || !is_in_branch(event.branch.as_deref(), branch) {
        return None;
    }
    let content = match &event.content {
        Some(content) => without_internal_parts(content),
        None => Arc::new(transcript(event)?),
    };
    if !content.parts.iter().any(is_relevant) {
        return None;
    }
    if event.author == agent {
        return Some(VisibleContent { content: with_role(content, own_role), starts_turn: false });
    }
    if event.author == USER_AUTHOR {
        return Some(VisibleContent { content: with_role(content, |_| USER_AUTHOR), starts_turn: true });
    }
    as_user_context(&event.author, &content)
        .map(|content| VisibleContent { content: Arc::new(content), starts_turn: true })
}

/// Returns the transcription of an event as a message. `None` if it has none.
fn transcript(event: &Event) -> Option<Content> {
    let (role, transcription) = match (&event.input_transcription, &event.output_transcription) {
        (Some(input), _) => (USER_AUTHOR, input),
        (None, Some(output)) => (MODEL, output),
        (None, None) => return None,
    };
    let text = transcription.get("text")?.as_str()?;
    Some(Content::new(role, vec![Part::text(text)]))
}

/// Returns the content of a summary, which is visible to all agents, or `None` if it is empty.
pub(super) fn summary_content(content: &Content, starts_turn: bool) -> Option<VisibleContent> {
    let parts: Vec<_> = content.parts.iter().filter(|part| !is_empty(part)).cloned().collect();
    let content = Content { role: Some(MODEL.into()), parts };
    content.parts.iter().any(is_relevant).then(|| VisibleContent { content: Arc::new(content), starts_turn })
}

/// Removes empty parts, which models reject, and requests for confirmations and credentials with their responses,
/// which only concern the user and the host.
fn without_internal_parts(content: &Arc<Content>) -> Arc<Content> {
    let is_internal = |part: &Part| is_empty(part) || is_request(part);
    if !content.parts.iter().any(is_internal) {
        return content.clone();
    }
    let parts = content.parts.iter().filter(|part| !is_internal(part)).cloned().collect();
    Arc::new(Content { role: content.role.clone(), parts })
}

fn is_request(part: &Part) -> bool {
    match &part.data {
        PartData::FunctionCall(call) => is_request_name(&call.name),
        PartData::FunctionResponse(response) => is_request_name(&response.name),
        _ => false,
    }
}

/// Returns true if the event is in the agent's branch, in one above or below it, or in no branch. Branches below have
/// ended: an agent waits for its parallel agents.
fn is_in_branch(event: Option<&str>, agent: Option<&str>) -> bool {
    let is_within = |inner: &str, outer: &str| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    match (event, agent) {
        (None | Some(""), _) | (_, None | Some("")) => true,
        (Some(event), Some(agent)) => is_within(agent, event) || is_within(event, agent),
    }
}

/// Returns true for a part that is relevant to a model. An event without such parts is not visible.
fn is_relevant(part: &Part) -> bool {
    let is_plain_thought = part.thought && !has_metadata(part) && matches!(part.data, PartData::Text(_));
    !is_empty(part) && !is_plain_thought
}

/// Returns true for a part without data.
fn is_empty(part: &Part) -> bool {
    let has_no_data = match &part.data {
        PartData::Text(text) => text.is_empty(),
        PartData::Other => true,
        PartData::InlineData(_)
        | PartData::FileData(_)
        | PartData::FunctionCall(_)
        | PartData::FunctionResponse(_)
        | PartData::ExecutableCode(_)
        | PartData::CodeExecutionResult(_) => false,
    };
    has_no_data && !has_metadata(part)
}

/// Returns true for a part with a signature or with unknown fields. Models may require such parts in the next request.
fn has_metadata(part: &Part) -> bool {
    part.thought_signature.is_some() || !part.extra.is_empty()
}

/// Returns the role of the agent's own content. Function responses and results of code have the role of the user.
fn own_role(content: &Content) -> &'static str {
    let is_user_role = content.role.as_deref() == Some(USER_AUTHOR) && content.function_calls().next().is_none();
    if is_user_role { USER_AUTHOR } else { MODEL }
}

/// Replaces the role of a content. Models reject unknown roles.
fn with_role(content: Arc<Content>, role: impl FnOnce(&Content) -> &'static str) -> Arc<Content> {
    let role = role(&content);
    if content.role.as_deref() == Some(role) {
        return content;
    }
    Arc::new(Content { role: Some(role.into()), parts: content.parts.clone() })
}

/// Converts a content of another agent to a description in the role of the user. Thoughts are omitted. Returns `None`
/// if no parts remain.
fn as_user_context(author: &str, content: &Content) -> Option<Content> {
    let mut parts = vec![Part::text("For context:")];
    parts.extend(content.parts.iter().filter(|part| !part.thought).filter_map(|part| match &part.data {
        PartData::Other => None,
        PartData::Text(text) if text.trim().is_empty() => None,
        PartData::Text(text) => Some(Part::text(format!("[{author}] said: {text}"))),
        PartData::FunctionCall(call) => {
            let (name, args) = (name_or_default(&call.name), Value::Object(call.args.clone()));
            Some(Part::text(format!("[{author}] called tool `{name}` with parameters: {args}")))
        }
        PartData::FunctionResponse(response) => {
            let (name, result) = (name_or_default(&response.name), Value::Object(response.response.clone()));
            Some(Part::text(format!("[{author}] `{name}` tool returned result: {result}")))
        }
        PartData::InlineData(_)
        | PartData::FileData(_)
        | PartData::ExecutableCode(_)
        | PartData::CodeExecutionResult(_) => Some(part.clone()),
    }));
    (parts.len() > 1).then(|| Content::new(USER_AUTHOR, parts))
}

fn name_or_default(name: &str) -> &str {
    if name.is_empty() { "unknown_tool" } else { name }
}
