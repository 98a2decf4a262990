//! Names of artifacts: which are valid, whose artifact each names, and how names become file names.

use hatchery_core::StoreError;

/// What file systems allow.
const MAX_FILE_NAME_BYTES: usize = 255;

/// How an empty name is written as a file name. No other name is written so.
const EMPTY: &str = "%";

/// A valid name of an artifact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name<'a> {
    /// The whole of it.
    pub(super) full: &'a str,
    /// Without `user:`.
    pub(super) bare: &'a str,
    /// True when it is the user's, not the session's.
    pub(super) is_users: bool,
}

impl<'a> Name<'a> {
    /// Checks a name.
    pub(super) fn parse(full: &'a str) -> Result<Self, StoreError> {
        let (bare, is_users) = match full.strip_prefix(USER_PREFIX) {
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
            return Ok(Self { full, bare, is_users });
        };
        Err(StoreError::InvalidName { name: full.to_owned(), reason })
    }
}

/// Starts the names of artifacts that belong to a user.
pub(super) const USER_PREFIX: &str = "user:";

/// Writes any name as one file name: letters, digits, `-`, `_` and all dots but a leading one stay as they are, every other character
/// becomes `%` and two hexadecimal digits per byte. Different names give different file names.
///
/// # Errors
/// [`StoreError::InvalidName`] when that is longer than file systems allow.
pub(super) fn to_file_name(name: &str) -> Result<String, StoreError> {
    let mut file_name = String::with_capacity(name.len());
    for character in name.chars() {
        let plain = match character {
            '-' | '_' => true,
            '.' => !file_name.is_empty(),
            other => other.is_alphanumeric(),
        };
        if plain {
            file_name.push(character);
        } else {
            for byte in character.encode_utf8(&mut [0; 4]).bytes() {
                file_name.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    if file_name.len() > MAX_FILE_NAME_BYTES {
        let reason = "too long: as a file name it may take up to 255 bytes, three for each special character";
        return Err(StoreError::InvalidName { name: name.to_owned(), reason });
    }
    Ok(if file_name.is_empty() { EMPTY.to_owned() } else { file_name })
}

/// The name that [`to_file_name`] writes so, or `None` when it writes none so.
pub(super) fn from_file_name(file_name: &str) -> Option<String> {
    let mut parts = file_name.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let name = String::from_utf8(bytes).ok()?;
    (to_file_name(&name).ok()? == file_name).then_some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_name_is_read_back_from_its_file_name(name in "\\PC{1,20}|[./\\\\%:a\u{0}]{1,8}") {
            let file_name = to_file_name(&name).unwrap();
            prop_assert!(!file_name.starts_with('.') && !file_name.contains(['/', '\\', '\0', ':']));
            prop_assert_eq!(from_file_name(&file_name), Some(name));
        }
    }

    #[test]
    fn a_file_name_that_no_name_is_written_as_is_not_read() {
        for file_name in ["", "%", ".hidden", "a%2fb", "a%41", "%zz", "%F", "a b", "%FF"] {
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
    }

    #[test]
    fn a_name_belongs_to_the_user_or_to_the_session() {
        assert_eq!(Name::parse("user:a/b").unwrap(), Name { full: "user:a/b", bare: "a/b", is_users: true });
        assert_eq!(Name::parse("a").unwrap(), Name { full: "a", bare: "a", is_users: false });
    }
}
