//! Validation of artifact names, their scope, and their encoding as file names.

use hatchery_core::StoreError;
use sha2::{Digest, Sha256};

/// The limit of common file systems.
const MAX_FILE_NAME_BYTES: usize = 255;

/// The encoding of an empty name. No other name has this encoding.
const EMPTY: &str = "%";

/// Marks the hash in a shortened name. No encoding contains it.
const HASH_MARK: &str = "%-";

/// A valid name of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ArtifactName<'a> {
    /// The full name.
    pub(super) full: &'a str,
    /// The name without `user:`.
    pub(super) bare: &'a str,
    /// Whether the artifact belongs to the user, not to the session.
    pub(super) is_user_scoped: bool,
}

impl<'a> ArtifactName<'a> {
    /// Validates a name.
    pub(super) fn parse(full: &'a str) -> Result<Self, StoreError> {
        let (bare, is_user_scoped) = match full.strip_prefix(USER_PREFIX) {
            Some(bare) => (bare, true),
            None => (full, false),
        };
        let reason = if bare.is_empty() {
            "an artifact needs a name"
        } else if bare.starts_with('/') {
            "the name of an artifact cannot start with `/`"
        } else if bare.split(['/', '\\']).any(|segment| segment == "..") {
            "the name of an artifact cannot have `..` between its slashes"
        } else if bare.contains('\0') {
            "the name of an artifact cannot hold a NUL character"
        } else {
            to_file_name(bare)?;
            return Ok(Self { full, bare, is_user_scoped });
        };
        Err(StoreError::InvalidName { name: full.to_owned(), reason })
    }
}

/// The prefix of names of artifacts that belong to a user.
pub(super) const USER_PREFIX: &str = "user:";

/// Encodes any name as one file name: lower-case letters, letters without case, digits, `-`, `_` and dots other than a
/// leading one are kept, and every other character becomes `%` and two hexadecimal digits per byte. The encodings of
/// different names differ even on file systems that ignore case.
///
/// # Errors
/// [`StoreError::InvalidName`] if the encoding is longer than file systems allow.
pub(super) fn to_file_name(name: &str) -> Result<String, StoreError> {
    let file_name = encode(name);
    if file_name.len() > MAX_FILE_NAME_BYTES {
        let reason =
            "too long: as a file name it may take up to 255 bytes, three for each special character or capital letter";
        return Err(StoreError::InvalidName { name: name.to_owned(), reason });
    }
    Ok(file_name)
}

/// Encodes the name of an app, a user or a session as [`to_file_name`] does, but replaces the end of a long one by its
/// hash. It need not be decoded.
pub(super) fn to_owner_name(name: &str) -> String {
    let file_name = encode(name);
    if file_name.len() <= MAX_FILE_NAME_BYTES {
        return file_name;
    }
    let hash: String = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
    let end = file_name.floor_char_boundary(MAX_FILE_NAME_BYTES - HASH_MARK.len() - hash.len());
    format!("{}{HASH_MARK}{hash}", file_name.get(..end).unwrap_or_default())
}

fn encode(name: &str) -> String {
    escape(name, |character| character.is_alphanumeric() && is_own_fold(character))
}

/// Encodes a name as layout version 1 did: capital letters are kept.
pub(super) fn to_old_file_name(name: &str) -> String {
    escape(name, char::is_alphanumeric)
}

/// Returns true if the character is its own case folding: `a`, but neither `A` nor `ſ`.
fn is_own_fold(character: char) -> bool {
    character.to_uppercase().flat_map(char::to_lowercase).eq([character])
}

/// Escapes all characters except those that `is_plain` accepts, `-`, `_`, and dots other than a leading one.
fn escape(name: &str, is_plain: impl Fn(char) -> bool) -> String {
    let mut file_name = String::with_capacity(name.len());
    for character in name.chars() {
        let plain = match character {
            '-' | '_' => true,
            '.' => !file_name.is_empty(),
            other => is_plain(other),
        };
        if plain {
            file_name.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                file_name.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    if file_name.is_empty() { EMPTY.to_owned() } else { file_name }
}

/// Decodes a file name; `None` if it is not an encoding of [`to_file_name`].
pub(super) fn from_file_name(file_name: &str) -> Option<String> {
    unescape(file_name).filter(|name| to_file_name(name).is_ok_and(|written| written == file_name))
}

/// Decodes a file name; `None` if it is not an encoding of [`to_old_file_name`].
pub(super) fn from_old_file_name(file_name: &str) -> Option<String> {
    unescape(file_name).filter(|name| to_old_file_name(name) == file_name)
}

fn unescape(file_name: &str) -> Option<String> {
    let mut parts = file_name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_can_be_decoded_from_its_file_name(name in "\\PC{1,20}|[./\\\\%:a\u{0}]{1,8}") {
            let file_name = to_file_name(&name).unwrap();
            prop_assert!(!file_name.starts_with('.') && !file_name.contains(['/', '\\', '\0', ':']));
            prop_assert_eq!(from_file_name(&file_name), Some(name.clone()));
            prop_assert_eq!(from_old_file_name(&to_old_file_name(&name)), Some(name));
        }

        #[test]
        fn file_names_of_different_names_differ_even_if_case_is_ignored(a in "[aAbBſsSßµμKkΣσςıIi]{1,4}", b in "[aAbBſsSßµμKkΣσςıIi]{1,4}") {
            let fold = |name: &str| {
                let file_name = to_file_name(name).unwrap();
                (file_name.to_lowercase(), file_name.to_uppercase())
            };
            let (folded, other) = (fold(&a), fold(&b));
            prop_assert!(a == b || (folded.0 != other.0 && folded.1 != other.1), "{a} {b}");
        }
    }

    #[test]
    fn a_file_name_that_is_no_encoding_is_not_decoded() {
        for file_name in ["", "%", "A", ".hidden", "a%2fb", "a%61", "%zz", "%F", "a b", "%FF"] {
            assert_eq!(from_file_name(file_name), None, "{file_name}");
        }
    }

    #[test]
    fn names_of_people_and_sentences_stay_readable() {
        assert_eq!(to_file_name("résumé_v1.2-東京.pdf").unwrap(), "résumé_v1.2-東京.pdf");
        assert_eq!(to_file_name("ann@example.org").unwrap(), "ann%40example.org");
        assert_eq!(to_file_name("a/b").unwrap(), "a%2Fb");
        assert_eq!(to_file_name("..").unwrap(), "%2E.");
        assert_eq!(to_file_name("").unwrap(), "%");
        assert_eq!(to_file_name("Ann").unwrap(), "%41nn");
    }

    #[test]
    fn the_end_of_a_long_owner_is_replaced_by_its_hash() {
        assert_eq!(to_owner_name("Ann"), to_file_name("Ann").unwrap());
        for text in ["x", "X", "é", "🙂"] {
            let [one, other] = ["1", "2"].map(|end| to_owner_name(&(text.repeat(256) + end)));
            assert!(one != other && one.len() <= 255 && from_file_name(&one).is_none(), "{one}");
        }
    }

    #[test]
    fn a_name_belongs_to_the_user_or_to_the_session() {
        assert_eq!(
            ArtifactName::parse("user:a/b").unwrap(),
            ArtifactName { full: "user:a/b", bare: "a/b", is_user_scoped: true }
        );
        assert_eq!(ArtifactName::parse("a").unwrap(), ArtifactName { full: "a", bare: "a", is_user_scoped: false });
        let error = ArtifactName::parse("user:a\0b").unwrap_err().to_string();
        assert_eq!(error, "invalid name `user:a\0b`: the name of an artifact cannot hold a NUL character");
    }
}
