//! System instructions: templates with placeholders for state and artifacts, and the identity of the agent.

use std::borrow::Cow;
use std::sync::Arc;

use hatchery_core::{Agent, CallContext, Capabilities, Capability, Instruction, Part, PartData, RunError};
use serde_json::Value;

/// Maximum size in bytes of a rendered template. A short template can name a large value very often.
const MAX_RENDERED: usize = 16 << 20;

/// The capabilities of an instruction's author. `None` is all of them.
type Rights<'a> = Option<&'a Arc<dyn Capabilities>>;

/// Returns the text of an instruction. A template may only read data that its author has the capabilities for.
pub(crate) async fn text(
    instruction: &Instruction,
    rights: Rights<'_>,
    cx: &CallContext,
) -> Result<Option<String>, RunError> {
    match instruction {
        Instruction::None => Ok(None),
        Instruction::Template(template) => render(template, rights, cx).await.map(Some),
        Instruction::Computed(provider) => provider.instruction(&cx.read_only()).await.map(Some),
    }
}

/// Returns the instruction that names and describes the agent.
pub(crate) fn identity(agent: &Agent) -> String {
    if agent.description.is_empty() {
        format!("You are an agent. Your internal name is \"{}\".", agent.name)
    } else {
        format!(
            "You are an agent. Your internal name is \"{}\". The description about you is \"{}\".",
            agent.name, agent.description
        )
    }
}

/// Replaces `{key}`, `{key?}` (empty if missing), `{app:key}` and `{artifact.name}`. Braces around anything else stay
/// as they are, so that JSON and code in an instruction need no escapes.
async fn render(template: &str, rights: Rights<'_>, cx: &CallContext) -> Result<String, RunError> {
    if !template.contains('{') {
        return Ok(template.into());
    }
    let mut rendered = String::with_capacity(template.len());
    for piece in pieces(template) {
        let value = match piece {
            Piece::Text(text) => Cow::Borrowed(text),
            Piece::Placeholder { source, name, optional } => {
                value(name, optional, rights, cx).await?.map_or(Cow::Borrowed(source), Cow::Owned)
            }
        };
        if rendered.len().saturating_add(value.len()) > MAX_RENDERED {
            return Err(RunError::Agent {
                agent: cx.agent.to_string(),
                code: "INSTRUCTION_TOO_LARGE".into(),
                message: format!(
                    "its instruction has more than {} MiB with the values of its placeholders; shorten them",
                    MAX_RENDERED >> 20
                ),
            });
        }
        rendered.push_str(&value);
    }
    Ok(rendered)
}

/// A value that a template reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder<'a> {
    /// A state key, with its prefix.
    State(&'a str),
    /// An artifact, by its name.
    Artifact(&'a str),
}

impl<'a> Placeholder<'a> {
    /// Parses the text between braces. `None` if it is not a placeholder.
    fn parse(name: &'a str) -> Option<Self> {
        match name.strip_prefix("artifact.") {
            Some(artifact) => Some(Self::Artifact(artifact)),
            None => is_state_key(name).then_some(Self::State(name)),
        }
    }
}

/// Returns the placeholders of a template, in order.
pub fn placeholders(template: &str) -> impl Iterator<Item = Placeholder<'_>> {
    pieces(template).into_iter().filter_map(|piece| match piece {
        Piece::Placeholder { name, .. } => Placeholder::parse(name),
        Piece::Text(_) => None,
    })
}

/// A part of a template.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Placeholder { source: &'a str, name: &'a str, optional: bool },
}

/// Splits a template at its placeholders: one or more `{`, no brace, one or more `}`.
fn pieces(template: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        let (before, from_open) = rest.split_at(open);
        let inner_at = from_open.find(|c| c != '{').unwrap_or(from_open.len());
        let (braces, from_inner) = from_open.split_at(inner_at);
        let inner_len = from_inner.find(['{', '}']).unwrap_or(from_inner.len());
        let (inner, from_close) = from_inner.split_at(inner_len);
        let close_len = from_close.find(|c| c != '}').unwrap_or(from_close.len());
        if close_len == 0 {
            let (text, after) = rest.split_at(open + braces.len() + inner_len);
            pieces.push(Piece::Text(text));
            rest = after;
            continue;
        }
        pieces.push(Piece::Text(before));
        let (source, after) = from_open.split_at(inner_at + inner_len + close_len);
        let name = inner.trim();
        let (name, optional) = match name.strip_suffix('?') {
            Some(name) => (name.trim_end(), true),
            None => (name, false),
        };
        pieces.push(Piece::Placeholder { source, name, optional });
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| *piece != Piece::Text(""));
    pieces
}

/// Returns the value of a placeholder, or `None` if `name` is not one.
async fn value(name: &str, optional: bool, rights: Rights<'_>, cx: &CallContext) -> Result<Option<String>, RunError> {
    let check = |capability| rights.map_or(Ok(()), |rights| rights.check(cx, capability));
    let missing = |value: &str| {
        if optional {
            Ok(Some(String::new()))
        } else {
            Err(RunError::Agent {
                agent: cx.agent.to_string(),
                code: "INSTRUCTION_INCOMPLETE".into(),
                message: format!("its instruction needs {value}; set it, or write `{{{name}?}}` if it may be missing"),
            })
        }
    };
    match Placeholder::parse(name) {
        None => Ok(None),
        Some(Placeholder::Artifact(artifact)) => {
            check(Capability::ReadArtifacts)?;
            match cx.load_artifact(artifact, None).await? {
                Some(part) => Ok(Some(artifact_text(&part))),
                None => missing(&format!("artifact `{artifact}`")),
            }
        }
        Some(Placeholder::State(key)) => {
            check(Capability::ReadState(key))?;
            match cx.state(key) {
                Some(Value::String(text)) => Ok(Some(text)),
                Some(value) => Ok(Some(value.to_string())),
                None => missing(&format!("state key `{key}`")),
            }
        }
    }
}

/// Returns the text of an artifact; the JSON of any other file.
fn artifact_text(part: &Part) -> String {
    let text = match &part.data {
        PartData::Text(text) => Some(text.as_str()),
        PartData::InlineData(blob) if blob.mime_type.starts_with("text/") || blob.mime_type == "application/json" => {
            std::str::from_utf8(&blob.data).ok()
        }
        _ => None,
    };
    text.map_or_else(|| serde_json::to_string(part).unwrap_or_default(), Into::into)
}

fn is_state_key(name: &str) -> bool {
    let bare = ["app:", "user:", "temp:"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    bare.starts_with(|c: char| c.is_alphabetic() || c == '_') && bare.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(template: &str) -> Vec<(&str, bool)> {
        pieces(template)
            .into_iter()
            .filter_map(|piece| match piece {
                Piece::Placeholder { name, optional, .. } => Some((name, optional)),
                Piece::Text(_) => None,
            })
            .collect()
    }

    #[test]
    fn placeholders_are_trimmed_and_may_be_optional_and_doubled() {
        assert_eq!(
            names("a { name } b {{city}} c {x?}{ y ? } {user:name}"),
            [("name", false), ("city", false), ("x", true), ("y", true), ("user:name", false)]
        );
    }

    #[test]
    fn concatenated_pieces_are_the_template() {
        for template in ["", "{", "}", "{a", "{a}{", "{{a}", "x{a}}y", "{a{b}c}", "é{ü}"] {
            let source: String = pieces(template)
                .into_iter()
                .map(|piece| match piece {
                    Piece::Text(text) | Piece::Placeholder { source: text, .. } => text,
                })
                .collect();
            assert_eq!(source, template);
        }
    }

    #[test]
    fn placeholders_are_the_values_that_rendering_reads() {
        let found: Vec<_> = placeholders("{a?} {{user:b}} {artifact.c.txt} {\"json\": 1} { app:d }").collect();
        let expected = [
            Placeholder::State("a"),
            Placeholder::State("user:b"),
            Placeholder::Artifact("c.txt"),
            Placeholder::State("app:d"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn numbers_and_code_are_not_state_keys() {
        for name in ["123", "a-b", "", "a b", "x.y", "\"k\": 1"] {
            assert!(!is_state_key(name), "{name}");
        }
    }
}
