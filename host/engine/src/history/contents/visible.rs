//! Which events an agent sees, and how other agents' events are told to it.

use std::sync::Arc;

use hatchery_core::{Content, Event, Part, PartData, REQUEST_CONFIRMATION, USER_AUTHOR};
use serde_json::Value;

const MODEL: &str = "model";

/// An event as an agent sees it.
#[derive(Clone)]
pub(super) struct Visible {
    pub(super) content: Arc<Content>,
    /// Said by the user or another agent: the agent's current turn begins here.
    pub(super) from_others: bool,
}

/// What `agent` sees of an event in `branch`; nothing when it does not concern it.
pub(super) fn visible(event: &Event, agent: &str, branch: Option<&str>) -> Option<Visible> {
    if event.partial || !in_branch(event.branch.as_deref(), branch) {
        return None;
    }
    let content = sendable(event.content.as_ref()?);
    if !content.parts.iter().any(carries_something) {
        return None;
    }
    if event.author == agent {
        return Some(Visible { content: with_role(content, own_role), from_others: false });
    }
    if event.author == USER_AUTHOR {
        return Some(Visible { content: with_role(content, |_| USER_AUTHOR), from_others: true });
    }
    retold(&event.author, &content).map(|content| Visible { content: Arc::new(content), from_others: true })
}

/// What every agent sees in place of the events that a summary stands for.
pub(super) fn summary(content: &Content, from_others: bool) -> Option<Visible> {
    let parts: Vec<_> = content.parts.iter().filter(|part| !is_blank(part)).cloned().collect();
    let content = Content { role: Some(MODEL.into()), parts };
    content.parts.iter().any(carries_something).then(|| Visible { content: Arc::new(content), from_others })
}

/// The content without what no model is sent: parts without anything in them, which models refuse, and what a person is asked before a
/// tool does something and what they answer, which is between them and the host.
fn sendable(content: &Arc<Content>) -> Arc<Content> {
    let is_left_out = |part: &Part| is_blank(part) || is_question(part);
    if !content.parts.iter().any(is_left_out) {
        return content.clone();
    }
    let parts = content.parts.iter().filter(|part| !is_left_out(part)).cloned().collect();
    Arc::new(Content { role: content.role.clone(), parts })
}

fn is_question(part: &Part) -> bool {
    match &part.data {
        PartData::FunctionCall(call) => call.name == REQUEST_CONFIRMATION,
        PartData::FunctionResponse(response) => response.name == REQUEST_CONFIRMATION,
        _ => false,
    }
}

/// An agent sees its own branch, the branches around it, and what belongs to none.
fn in_branch(event: Option<&str>, agent: Option<&str>) -> bool {
    match (event, agent) {
        (None | Some(""), _) | (_, None | Some("")) => true,
        (Some(event), Some(agent)) => {
            agent.strip_prefix(event).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
    }
}

/// True for a part that says something, or that a model wants back.
fn carries_something(part: &Part) -> bool {
    let is_silent_thought = part.thought && !is_marked(part) && matches!(part.data, PartData::Text(_));
    !is_blank(part) && !is_silent_thought
}

/// True for a part without anything in it.
fn is_blank(part: &Part) -> bool {
    let is_empty = match &part.data {
        PartData::Text(text) => text.is_empty(),
        PartData::Other => true,
        PartData::InlineData(_)
        | PartData::FileData(_)
        | PartData::FunctionCall(_)
        | PartData::FunctionResponse(_)
        | PartData::ExecutableCode(_)
        | PartData::CodeExecutionResult(_) => false,
    };
    is_empty && !is_marked(part)
}

/// True for a part with a signature, or with data that this version does not know.
fn is_marked(part: &Part) -> bool {
    part.thought_signature.is_some() || !part.extra.is_empty()
}

/// The role of an agent's own content: answers of tools, and what code gave, are told to its model.
fn own_role(content: &Content) -> &'static str {
    let is_told = content.role.as_deref() == Some(USER_AUTHOR) && content.function_calls().next().is_none();
    if is_told { USER_AUTHOR } else { MODEL }
}

/// The content with the role that it has for a model: models refuse roles that they do not know.
fn with_role(content: Arc<Content>, role: impl FnOnce(&Content) -> &'static str) -> Arc<Content> {
    let role = role(&content);
    if content.role.as_deref() == Some(role) {
        return content;
    }
    Arc::new(Content { role: Some(role.into()), parts: content.parts.clone() })
}

/// Another agent's content, as the user would tell it; nothing when there is nothing to tell. Thoughts are not told.
fn retold(author: &str, content: &Content) -> Option<Content> {
    let mut parts = vec![Part::text("For context:")];
    parts.extend(content.parts.iter().filter(|part| !part.thought).filter_map(|part| match &part.data {
        PartData::Other => None,
        PartData::Text(text) if text.trim().is_empty() => None,
        PartData::Text(text) => Some(Part::text(format!("[{author}] said: {text}"))),
        PartData::FunctionCall(call) => {
            let (name, args) = (named(&call.name), Value::Object(call.args.clone()));
            Some(Part::text(format!("[{author}] called tool `{name}` with parameters: {args}")))
        }
        PartData::FunctionResponse(response) => {
            let (name, result) = (named(&response.name), Value::Object(response.response.clone()));
            Some(Part::text(format!("[{author}] `{name}` tool returned result: {result}")))
        }
        PartData::InlineData(_)
        | PartData::FileData(_)
        | PartData::ExecutableCode(_)
        | PartData::CodeExecutionResult(_) => Some(part.clone()),
    }));
    (parts.len() > 1).then(|| Content::new(USER_AUTHOR, parts))
}

fn named(name: &str) -> &str {
    if name.is_empty() { "unknown_tool" } else { name }
}
