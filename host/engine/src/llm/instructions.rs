//! Instructions: templates filled in from state and artifacts, and what every agent is told about itself.

use std::sync::Arc;

use hatchery_core::{Agent, CallContext, Capabilities, Capability, Instruction, RunError};
use serde_json::Value;

/// What the author of an instruction may reach; `None` is everything.
type Rights<'a> = Option<&'a Arc<dyn Capabilities>>;

/// The text of an instruction, if there is one. What a template names must be within the rights of its author.
pub(crate) async fn text(
    instruction: &Instruction,
    rights: Rights<'_>,
    cx: &CallContext,
) -> Result<Option<String>, RunError> {
    match instruction {
        Instruction::None => Ok(None),
        Instruction::Template(template) => fill(template, rights, cx).await.map(Some),
        Instruction::Computed(provider) => provider.instruction(cx).await.map(Some),
    }
}

/// What an agent is told about itself.
pub(super) fn identity(agent: &Agent) -> String {
    if agent.description.is_empty() {
        format!("You are an agent. Your internal name is \"{}\".", agent.name)
    } else {
        format!(
            "You are an agent. Your internal name is \"{}\". The description about you is \"{}\".",
            agent.name, agent.description
        )
    }
}

/// Fills in `{key}`, `{key?}` (empty when missing), `{app:key}`, `{artifact.name}`. Braces around anything that is not a key stay as
/// they are, so that JSON and code in an instruction need no escapes.
async fn fill(template: &str, rights: Rights<'_>, cx: &CallContext) -> Result<String, RunError> {
    if !template.contains('{') {
        return Ok(template.into());
    }
    let mut filled = String::with_capacity(template.len());
    for piece in pieces(template) {
        match piece {
            Piece::Text(text) => filled.push_str(text),
            Piece::Placeholder { whole, name, optional } => match value(name, optional, rights, cx).await? {
                Some(value) => filled.push_str(&value),
                None => filled.push_str(whole),
            },
        }
    }
    Ok(filled)
}

/// What a template reads when it is filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder<'a> {
    /// A state key, with its prefix.
    State(&'a str),
    /// An artifact, by its name.
    Artifact(&'a str),
}

impl<'a> Placeholder<'a> {
    /// Returns what `name`, which stands between braces, is a placeholder of; `None` for text that only has braces
    /// around it.
    fn of(name: &'a str) -> Option<Self> {
        match name.strip_prefix("artifact.") {
            Some(artifact) => Some(Self::Artifact(artifact)),
            None => is_state_key(name).then_some(Self::State(name)),
        }
    }
}

/// Returns the placeholders of a template, in order.
pub fn placeholders(template: &str) -> impl Iterator<Item = Placeholder<'_>> {
    pieces(template).into_iter().filter_map(|piece| match piece {
        Piece::Placeholder { name, .. } => Placeholder::of(name),
        Piece::Text(_) => None,
    })
}

/// A stretch of a template.
#[derive(Debug, PartialEq)]
enum Piece<'a> {
    Text(&'a str),
    Placeholder { whole: &'a str, name: &'a str, optional: bool },
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
        let (whole, after) = from_open.split_at(inner_at + inner_len + close_len);
        let name = inner.trim();
        let (name, optional) = match name.strip_suffix('?') {
            Some(name) => (name.trim_end(), true),
            None => (name, false),
        };
        pieces.push(Piece::Placeholder { whole, name, optional });
        rest = after;
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| *piece != Piece::Text(""));
    pieces
}

/// What stands for a placeholder; nothing when it is not one.
async fn value(name: &str, optional: bool, rights: Rights<'_>, cx: &CallContext) -> Result<Option<String>, RunError> {
    let check = |capability| rights.map_or(Ok(()), |rights| rights.check(cx, capability));
    let missing = |what: &str| match optional {
        true => Ok(Some(String::new())),
        false => Err(RunError::BadInput(format!(
            "the instruction of agent `{}` needs {what}; set it, or write `{{{name}?}}` if it may be missing",
            cx.agent
        ))),
    };
    match Placeholder::of(name) {
        None => Ok(None),
        Some(Placeholder::Artifact(artifact)) => {
            check(Capability::ReadArtifacts)?;
            match cx.load_artifact(artifact, None).await? {
                Some(part) => Ok(Some(serde_json::to_string(&part).unwrap_or_default())),
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
    fn pieces_put_together_are_the_template() {
        for template in ["", "{", "}", "{a", "{a}{", "{{a}", "x{a}}y", "{a{b}c}", "é{ü}"] {
            let whole: String = pieces(template)
                .into_iter()
                .map(|piece| match piece {
                    Piece::Text(text) | Piece::Placeholder { whole: text, .. } => text,
                })
                .collect();
            assert_eq!(whole, template);
        }
    }

    #[test]
    fn placeholders_are_what_filling_in_would_read() {
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
