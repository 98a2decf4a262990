//! Identifiers that clients choose: names of apps, users, sessions and artifacts, and the validation that they share.

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

/// The maximum length of a name in bytes of UTF-8.
pub const MAX_ID_BYTES: usize = 256;

/// The user of the sessions in which the host keeps its own data. No request may name it.
pub const HOST_USER: &str = "A2A_PUSH";

/// The maximum number of characters of an invalid name that the error repeats.
const MAX_SHOWN_CHARS: usize = 64;

/// Identifies a session. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// The name of the app.
    pub app: Arc<str>,
    /// The id of the user.
    pub user: Arc<str>,
    /// The id of the session, unique among the user's sessions in the app.
    pub id: Arc<str>,
}

impl SessionKey {
    /// Creates a key. Does not check the names.
    pub fn new(app: impl Into<Arc<str>>, user: impl Into<Arc<str>>, id: impl Into<Arc<str>>) -> Self {
        Self { app: app.into(), user: user.into(), id: id.into() }
    }

    /// Returns true if the session holds data of the host itself.
    pub fn belongs_to_host(&self) -> bool {
        &*self.user == HOST_USER
    }

    /// Checks the three names, see [`IdKind::check`].
    ///
    /// # Errors
    /// [`InvalidId`] for the first that is too long or contains control characters.
    pub fn check(&self) -> Result<(), InvalidId> {
        IdKind::App.check(&self.app)?;
        IdKind::User.check(&self.user)?;
        IdKind::Session.check(&self.id)
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "appName={}, userId={}, sessionId={}", self.app, self.user, self.id)
    }
}

/// The kind of thing that a name identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    App,
    User,
    Session,
    Artifact,
}

/// A name that is too long or contains control characters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid name `{name}`: {reason}")]
pub struct InvalidId {
    /// The name, with control characters escaped and cut if it is long.
    pub name: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

impl IdKind {
    /// Checks a name: at most [`MAX_ID_BYTES`] bytes and no control characters. An empty name is valid here; services
    /// that need one check that themselves.
    ///
    /// # Errors
    /// [`InvalidId`], which is safe to print.
    pub fn check(self, name: &str) -> Result<(), InvalidId> {
        let is_too_long = name.len() > MAX_ID_BYTES;
        let is_plain = || name.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !is_too_long && (is_plain() || !name.chars().any(char::is_control)) {
            return Ok(());
        }
        let reason = match (self, is_too_long) {
            (Self::App, true) => "the name of an app has at most 256 bytes",
            (Self::App, false) => "the name of an app has no control characters",
            (Self::User, true) => "the id of a user has at most 256 bytes",
            (Self::User, false) => "the id of a user has no control characters",
            (Self::Session, true) => "the id of a session has at most 256 bytes",
            (Self::Session, false) => "the id of a session has no control characters",
            (Self::Artifact, true) => "the name of an artifact has at most 256 bytes",
            (Self::Artifact, false) => "the name of an artifact has no control characters",
        };
        let mut escaped: String = name.chars().take(MAX_SHOWN_CHARS).flat_map(char::escape_default).collect();
        if name.chars().nth(MAX_SHOWN_CHARS).is_some() {
            escaped.push('…');
        }
        Err(InvalidId { name: escaped, reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_up_to_256_bytes_without_control_characters_pass() {
        for name in ["", "ann@example.org", "東京/a b", &"é".repeat(128)] {
            for kind in [IdKind::App, IdKind::User, IdKind::Session, IdKind::Artifact] {
                kind.check(name).unwrap();
            }
        }
    }

    #[test]
    fn long_names_and_control_characters_are_rejected_and_escaped() {
        let error = IdKind::User.check(&"é".repeat(129)).unwrap_err().to_string();
        let expected = format!("invalid name `{}…`: the id of a user has at most 256 bytes", "\\u{e9}".repeat(64));
        assert_eq!(error, expected);
        for (kind, what) in [
            (IdKind::App, "the name of an app"),
            (IdKind::User, "the id of a user"),
            (IdKind::Session, "the id of a session"),
            (IdKind::Artifact, "the name of an artifact"),
        ] {
            let error = kind.check("a\u{1b}[2J\n").unwrap_err().to_string();
            assert_eq!(error, format!("invalid name `a\\u{{1b}}[2J\\n`: {what} has no control characters"));
            assert!(kind.check(&"x".repeat(257)).unwrap_err().to_string().ends_with("has at most 256 bytes"));
        }
    }
}
