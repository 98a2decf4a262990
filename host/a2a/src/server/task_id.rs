//! Ids of tasks. A task consists of the runs of one message and of the answers to it; its id names the first of them and
//! the context, which is the session. So a task is found again by any host and at any time.

use std::fmt;

use hatchery_core::{Content, SessionKey};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::codec::{decode_url_safe, encode_url_safe};

/// What the ids of runs begin with.
pub(super) const RUN_PREFIX: &str = "a2a-";

/// What the ids of users begin with, as in ADK. The context follows.
const USER_PREFIX: &str = "A2A_USER_";

/// The longest context, in bytes. The id of a task in it is the name of a session too.
const MAX_CONTEXT_BYTES: usize = 160;

/// The id of a task: `UUID.CONTEXT`, with the context in URL-safe Base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskId {
    uuid: Uuid,
    pub(super) context: String,
}

impl TaskId {
    /// Returns a new id in a context.
    pub(super) fn new(context: String) -> Self {
        Self { uuid: Uuid::new_v4(), context }
    }

    /// Returns the id of the task that a message begins in a context that its client has chosen. It is always the same for the
    /// same message, whose id the content has.
    pub(super) fn of_message(context: String, content: &Content) -> Self {
        // Contents consist of texts and JSON, so writing them cannot fail.
        let content = serde_json::to_vec(content).unwrap_or_default();
        let hash = Sha256::new().chain_update(&context).chain_update([0_u8]).chain_update(&content).finalize();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(hash).for_each(|(byte, hashed)| *byte = hashed);
        Self { uuid: Builder::from_custom_bytes(bytes).into_uuid(), context }
    }

    /// Reads an id. `None` if it is not one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (uuid, context) = text.split_once('.')?;
        let id = Self { uuid: Uuid::try_parse(uuid).ok()?, context: decode_url_safe(context)? };
        // A UUID has several spellings, an id has one.
        (id.to_string() == text && is_context(&id.context)).then_some(id)
    }

    /// Returns the id of the task that a run belongs to. `None` if it does not belong to one.
    pub(super) fn of_run(run: &str, context: &str) -> Option<Self> {
        let uuid = run.strip_prefix(RUN_PREFIX)?.split('.').next()?;
        Some(Self { uuid: Uuid::try_parse(uuid).ok()?, context: context.to_owned() })
    }

    /// Returns the session of the task.
    pub(super) fn session(&self, app: &str) -> SessionKey {
        SessionKey::new(app, user(&self.context), self.context.as_str())
    }

    /// Returns the id of the `number`th run, which counts from one.
    pub(super) fn run(&self, number: usize) -> String {
        let uuid = self.uuid.simple();
        if number == 1 { format!("{RUN_PREFIX}{uuid}") } else { format!("{RUN_PREFIX}{uuid}.{number}") }
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.uuid, encode_url_safe(&self.context))
    }
}

/// Returns the user of a context, since clients are not authenticated.
pub(super) fn user(context: &str) -> String {
    format!("{USER_PREFIX}{context}")
}

/// Returns true if a client may choose this context.
pub(super) fn is_context(context: &str) -> bool {
    !context.trim().is_empty() && context.len() <= MAX_CONTEXT_BYTES && !context.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_again_with_its_session_and_runs() {
        for context in ["7f4c", "a b/c?:ü", &"x".repeat(MAX_CONTEXT_BYTES)] {
            let id = TaskId::new(context.to_owned());
            let text = id.to_string();
            assert!(text.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char)), "{text}");
            assert_eq!(TaskId::parse(&text), Some(id.clone()));
            assert_eq!((&*id.session("app").id, &*id.session("app").user), (context, &*user(context)));
            id.session("app").check().unwrap();
            hatchery_core::IdKind::Session.check(&text).unwrap();
            for number in [1, 2, 12] {
                assert_eq!(TaskId::of_run(&id.run(number), context), Some(id.clone()));
            }
            assert_ne!(id.run(1), id.run(2));
        }
    }

    #[test]
    fn the_id_of_a_message_depends_on_its_context_and_content() {
        let id = |context: &str, text: &str| TaskId::of_message(context.into(), &Content::user(text));
        assert_eq!(id("c", "hi"), id("c", "hi"));
        assert!(id("c", "hi") != id("d", "hi") && id("c", "hi") != id("c", "ho"));
        assert_eq!(TaskId::parse(&id("c", "hi").to_string()), Some(id("c", "hi")));
    }

    #[test]
    fn other_texts_are_not_ids() {
        let id = TaskId::new("c".into()).to_string();
        for text in ["", "x", &id.to_uppercase(), &format!("{id}="), &format!("{id}A"), &id.replace('-', "")] {
            assert_eq!(TaskId::parse(text), None, "{text}");
        }
        assert!(!is_context(" ") && !is_context("a\n") && !is_context(&"x".repeat(MAX_CONTEXT_BYTES + 1)));
        assert_eq!(TaskId::of_run("e-1", "c"), None);
    }
}
