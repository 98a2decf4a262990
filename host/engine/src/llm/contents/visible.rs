//! Which events an agent sees, and how other agents' events are told to it.

use std::sync::Arc;

use hatchery_core::confirmation::REQUEST_CONFIRMATION;
use hatchery_core::event::USER;
use hatchery_core::{Content, Event, Part, PartData};
use serde_json::Value;

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
    let content = without_questions(event.content.as_ref()?);
    if !content.parts.iter().any(carries_something) {
        return None;
    }
    if event.author == agent {
        return Some(Visible { content: with_role(content, "model"), from_others: false });
    }
    if event.author == USER {
        return Some(Visible { content: with_role(content, USER), from_others: true });
    }
    retold(&event.author, &content).map(|content| Visible { content: Arc::new(content), from_others: true })
}

/// What every agent sees in place of the events that a summary stands for.
pub(super) fn summary(content: &Content, from_others: bool) -> Option<Visible> {
    let content = Content { role: Some("model".into()), parts: content.parts.clone() };
    content.parts.iter().any(carries_something).then(|| Visible { content: Arc::new(content), from_others })
}

/// The content without what a person is asked before a tool does something, and what they answer: that is between them and the host.
fn without_questions(content: &Arc<Content>) -> Arc<Content> {
    let is_question = |part: &Part| match &part.data {
        PartData::FunctionCall(call) => call.name == REQUEST_CONFIRMATION,
        PartData::FunctionResponse(response) => response.name == REQUEST_CONFIRMATION,
        _ => false,
    };
    if !content.parts.iter().any(is_question) {
        return content.clone();
    }
    let parts = content.parts.iter().filter(|part| !is_question(part)).cloned().collect();
    Arc::new(Content { role: content.role.clone(), parts })
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

fn carries_something(part: &Part) -> bool {
    let is_marked = part.thought_signature.is_some() || !part.extra.is_empty();
    match &part.data {
        PartData::Text(text) => is_marked || !(text.is_empty() || part.thought),
        PartData::Other => is_marked,
        PartData::InlineData(_)
        | PartData::FileData(_)
        | PartData::FunctionCall(_)
        | PartData::FunctionResponse(_)
        | PartData::ExecutableCode(_)
        | PartData::CodeExecutionResult(_) => true,
    }
}

fn with_role(content: Arc<Content>, role: &str) -> Arc<Content> {
    match content.role {
        Some(_) => content,
        None => Arc::new(Content { role: Some(role.into()), parts: content.parts.clone() }),
    }
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
    (parts.len() > 1).then(|| Content::new(USER, parts))
}

fn named(name: &str) -> &str {
    if name.is_empty() { "unknown_tool" } else { name }
}
