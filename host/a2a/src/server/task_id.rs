//! Ids of tasks. A task consists of the runs of one message and of the answers to it. Its id names the first run and
//! the context, which is the session. So a task is found again by any host and at any time.

use std::fmt;
use std::sync::Arc;

use hatchery_core::{Content, HOST_USER, SessionKey};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::codec::{decode_url_safe, encode_url_safe};

/// Prefix of the ids of runs.
pub(super) const RUN_PREFIX: &str = "a2a-";

/// Prefix of the user ids of clients that are not authenticated, as in ADK. The context follows.
const USER_PREFIX: &str = "A2A_USER_";

/// The longest context, in bytes. The id of a task in it is the name of a session too.
const MAX_CONTEXT_BYTES: usize = 160;

/// The id of a task: `UUID.CONTEXT`, with the context in URL-safe Base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskId {
    uuid: Uuid,
    pub(super) context: String,
    /// The user of the session, which is not in the text. `None` if clients are not authenticated.
    pub(super) user: Option<Arc<str>>,
}

impl TaskId {
    /// Returns a new id in a context.
    pub(super) fn new(context: String, user: Option<Arc<str>>) -> Self {
        Self { uuid: Uuid::new_v4(), context, user }
    }

    /// Returns the id of the task that a message begins in a context that its client has chosen. The same message,
    /// whose id is part of the content, always begins the same task.
    pub(super) fn for_message(context: String, content: &Content, user: Option<Arc<str>>) -> Self {
        // Contents consist of texts and JSON, so writing them cannot fail.
        let content = serde_json::to_vec(content).unwrap_or_default();
        let mut hash = Sha256::new().chain_update(&context).chain_update([0_u8]).chain_update(&content);
        if let Some(user) = &user {
            // A byte that is in no JSON keeps the user apart from the content.
            hash = hash.chain_update([0_u8]).chain_update(user.as_bytes());
        }
        let hash = hash.finalize();
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(hash).for_each(|(byte, hashed)| *byte = hashed);
        Self { uuid: Builder::from_custom_bytes(bytes).into_uuid(), context, user }
    }

    /// Reads the id of a task of a user. `None` if it is not one.
    pub(super) fn parse(text: &str, user: Option<Arc<str>>) -> Option<Self> {
        let (uuid, context) = text.split_once('.')?;
        let id = Self { uuid: Uuid::try_parse(uuid).ok()?, context: decode_url_safe(context)?, user };
        // A UUID has several spellings, an id has one.
        (id.to_string() == text && is_context(&id.context)).then_some(id)
    }

    /// Returns the id of the task that a run belongs to. `None` if it does not belong to one.
    pub(super) fn from_run(run: &str, context: &str, user: Option<Arc<str>>) -> Option<Self> {
        let uuid = run.strip_prefix(RUN_PREFIX)?.split('.').next()?;
        Some(Self { uuid: Uuid::try_parse(uuid).ok()?, context: context.to_owned(), user })
    }

    /// Returns the session of the task.
    pub(super) fn session(&self, app: &str) -> SessionKey {
        session(app, &self.context, self.user.as_ref())
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

/// Returns true for a user id that the server has generated, for a client without its own user.
pub fn is_reserved_user(id: &str) -> bool {
    id == HOST_USER || id.starts_with(USER_PREFIX)
}

/// Returns the session of a context: of the client's user, or of a user made from the context id.
pub(super) fn session(app: &str, context: &str, user: Option<&Arc<str>>) -> SessionKey {
    let user = user.cloned().unwrap_or_else(|| format!("{USER_PREFIX}{context}").into());
    SessionKey::new(app, user, context)
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
            let id = TaskId::new(context.to_owned(), None);
            let text = id.to_string();
            assert!(text.chars().all(|char| char.is_ascii_alphanumeric() || "-_.".contains(char)), "{text}");
            assert_eq!(TaskId::parse(&text, None), Some(id.clone()));
            let session = id.session("app");
            assert_eq!((&*session.id, &*session.user), (context, &*format!("A2A_USER_{context}")));
            id.session("app").check().unwrap();
            hatchery_core::IdKind::Session.check(&text).unwrap();
            for number in [1, 2, 12] {
                assert_eq!(TaskId::from_run(&id.run(number), context, None), Some(id.clone()));
            }
            assert_ne!(id.run(1), id.run(2));
        }
    }

    #[test]
    fn the_id_of_a_message_depends_on_its_context_and_content() {
        let id = |context: &str, text: &str| TaskId::for_message(context.into(), &Content::user(text), None);
        assert_eq!(id("c", "hi"), id("c", "hi"));
        assert!(id("c", "hi") != id("d", "hi") && id("c", "hi") != id("c", "ho"));
        assert_eq!(TaskId::parse(&id("c", "hi").to_string(), None), Some(id("c", "hi")));
    }

    #[test]
    fn the_same_message_of_two_users_begins_two_tasks() {
        let id = |user: &str| TaskId::for_message("c".into(), &Content::user("hi"), Some(user.into()));
        assert_eq!(id("alice"), id("alice"));
        assert_ne!(id("alice").to_string(), id("bob").to_string());
    }

    #[test]
    fn a_task_of_an_authenticated_client_is_in_a_session_of_its_user() {
        let id = TaskId::new("c".into(), Some("alice".into()));
        assert_eq!(id.session("app"), SessionKey::new("app", "alice", "c"));
        assert_eq!(TaskId::parse(&id.to_string(), Some("bob".into())).unwrap().session("app").user, "bob".into());
    }

    #[test]
    fn other_texts_are_not_ids() {
        let id = TaskId::new("c".into(), None).to_string();
        for text in ["", "x", &id.to_uppercase(), &format!("{id}="), &format!("{id}A"), &id.replace('-', "")] {
            assert_eq!(TaskId::parse(text, None), None, "{text}");
        }
        assert!(!is_context(" ") && !is_context("a\n") && !is_context(&"x".repeat(MAX_CONTEXT_BYTES + 1)));
        assert_eq!(TaskId::from_run("e-1", "c", None), None);
    }
}
