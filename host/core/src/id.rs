//! The one check of names that clients choose: of apps, users, sessions and artifacts.

use crate::error::StoreError;

/// The longest name, in bytes of UTF-8.
pub const MAX_ID_BYTES: usize = 256;

/// How much of a name that is refused is repeated in the error.
const SHOWN_CHARACTERS: usize = 64;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdKind {
    /// An app.
    App,
    /// A user.
    User,
    /// A session.
    Session,
    /// An artifact.
    Artifact,
}

impl IdKind {
    /// Checks a name: at most [`MAX_ID_BYTES`] bytes and no control characters. An empty name passes; where one is needed, the
    /// service that is asked says so.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`], with control characters escaped and a long name cut.
    pub fn check(self, name: &str) -> Result<(), StoreError> {
        let is_long = name.len() > MAX_ID_BYTES;
        if !is_long && !name.chars().any(char::is_control) {
            return Ok(());
        }
        let reason = match (self, is_long) {
            (Self::App, true) => "the name of an app has at most 256 bytes",
            (Self::App, false) => "the name of an app has no control characters",
            (Self::User, true) => "the id of a user has at most 256 bytes",
            (Self::User, false) => "the id of a user has no control characters",
            (Self::Session, true) => "the id of a session has at most 256 bytes",
            (Self::Session, false) => "the id of a session has no control characters",
            (Self::Artifact, true) => "the name of an artifact has at most 256 bytes",
            (Self::Artifact, false) => "the name of an artifact has no control characters",
        };
        let mut shown: String = name.chars().take(SHOWN_CHARACTERS).flat_map(char::escape_default).collect();
        if name.chars().nth(SHOWN_CHARACTERS).is_some() {
            shown.push('…');
        }
        Err(StoreError::InvalidName { name: shown, reason })
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
    fn long_names_and_control_characters_are_refused_and_shown_harmlessly() {
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
