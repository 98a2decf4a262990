//! The keys of encryption.

use std::collections::BTreeSet;
use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, LessSafeKey, RandomizedNonceKey, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use hatchery_core::StoreError;
use thiserror::Error;

/// The bytes of a key.
const KEY_BYTES: usize = 32;

/// The longest id of a key.
const MAX_ID_BYTES: usize = 64;

/// The purposes with which the keys of records and artifacts are derived.
const RECORDS: &[u8] = b"hatchery records";
const ARTIFACTS: &[u8] = b"hatchery artifact";

/// A key cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidKey {
    /// There is none.
    #[error("there is no key; generate one with `openssl rand -hex 32`")]
    None,
    /// The id cannot be part of a record.
    #[error("`{0}` is not a valid id of a key; use up to 64 letters, digits, `-`, `_` and `.`")]
    Id(String),
    /// Two keys have one id.
    #[error("the id `{0}` is listed twice; give each key its own")]
    Duplicate(String),
    /// The string is not a key.
    #[error("the key `{0}` is not 64 hexadecimal digits; generate one with `openssl rand -hex 32`")]
    Text(String),
}

/// Handling of stored data that is not encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PlainData {
    /// Accept it. Anyone who can write to the storage can then replace encrypted data.
    #[default]
    Accept,
    /// Reject it.
    Refuse,
}

/// Keys by their ids. The first one encrypts, and all of them decrypt.
pub struct EncryptionKeys {
    first: Key,
    others: Vec<Key>,
    plain: PlainData,
}

/// A key and those that are derived from it.
pub(super) struct Key {
    pub(super) id: String,
    pub(super) records: RandomizedNonceKey,
    artifacts: Prk,
}

impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|key| &key.id)).finish()
    }
}

impl EncryptionKeys {
    /// Reads keys. Each is an id and 64 hexadecimal digits.
    ///
    /// # Errors
    /// The first key that cannot be used.
    pub fn from_hex<'a>(keys: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, InvalidKey> {
        let mut ids = BTreeSet::new();
        let mut parsed = Vec::new();
        for (id, text) in keys {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
            if id.is_empty() || id.len() > MAX_ID_BYTES || !id.bytes().all(is_plain) {
                return Err(InvalidKey::Id(id.to_owned()));
            }
            if !ids.insert(id) {
                return Err(InvalidKey::Duplicate(id.to_owned()));
            }
            let key = parse_hex(text.trim()).and_then(|secret| Key::new(id, &secret));
            parsed.push(key.ok_or_else(|| InvalidKey::Text(id.to_owned()))?);
        }
        let mut keys = parsed.into_iter();
        let first = keys.next().ok_or(InvalidKey::None)?;
        Ok(Self { first, others: keys.collect(), plain: PlainData::default() })
    }

    /// Sets the handling of data that is not encrypted. By default it is accepted.
    #[must_use]
    pub fn with_plain_data(self, plain: PlainData) -> Self {
        Self { plain, ..self }
    }

    /// Checks that a record may be stored without encryption. `subject` describes it in errors.
    pub(super) fn check_plain(&self, subject: &str) -> Result<(), StoreError> {
        match self.plain {
            PlainData::Accept => Ok(()),
            PlainData::Refuse => {
                let reason = "it is not encrypted, and `encryption.plain` in hatchery.yaml refuses that: it was stored without \
                              encryption, or somebody has replaced it";
                Err(StoreError::backend(format!("cannot decrypt {subject}"), reason))
            }
        }
    }

    /// Returns true if there is a key of this id.
    pub(super) fn has(&self, id: &str) -> bool {
        self.iter().any(|key| key.id == id)
    }

    /// Returns the key that encrypts.
    pub(super) fn first(&self) -> &Key {
        &self.first
    }

    /// Returns the key of a record. `subject` describes it in errors.
    pub(super) fn find(&self, id: &str, subject: &str) -> Result<&Key, StoreError> {
        self.iter().find(|key| key.id == id).ok_or_else(|| {
            let reason = format!(
                "it is encrypted with the key `{id}`, which is not among `encryption.keys` in hatchery.yaml; add it there"
            );
            StoreError::backend(format!("cannot decrypt {subject}"), reason)
        })
    }

    fn iter(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.first).chain(&self.others)
    }
}

impl Key {
    fn new(id: &str, secret: &[u8; KEY_BYTES]) -> Option<Self> {
        let root = Prk::new_less_safe(HKDF_SHA256, secret);
        let mut records = [0; KEY_BYTES];
        root.expand(&[RECORDS], HKDF_SHA256).ok()?.fill(&mut records).ok()?;
        let records = RandomizedNonceKey::new(&AES_256_GCM, &records).ok()?;
        Some(Self { id: id.to_owned(), records, artifacts: root })
    }

    /// Derives the key of one version of an artifact from the salt of the version.
    pub(super) fn derive_artifact_key(&self, salt: &[u8]) -> Option<LessSafeKey> {
        let info = [ARTIFACTS, salt];
        let derived = self.artifacts.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(derived)))
    }
}

/// Returns the error of a record that a key of its id does not open.
pub(super) fn does_not_fit(id: &str, subject: &str) -> StoreError {
    let reason = format!(
        "the key `{id}` does not open it: `encryption.keys` in hatchery.yaml has another key of this id, or the stored data \
         was changed"
    );
    StoreError::backend(format!("cannot decrypt {subject}"), reason)
}

/// Returns the error of a failed encryption.
pub(super) fn cannot_seal(subject: &str) -> StoreError {
    StoreError::backend(format!("cannot encrypt {subject}"), "the cipher has failed")
}

/// Returns the associated data of a record for the cipher: each part with its length.
pub(super) fn associated_data(parts: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    for part in parts {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}

fn parse_hex(text: &str) -> Option<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_an_id_and_64_hexadecimal_digits() {
        let key = "0f".repeat(32);
        let read = |keys: &[(&str, &str)]| EncryptionKeys::from_hex(keys.iter().copied());
        let keys = read(&[("new", &key), ("old.1", &format!("{}\n", "AB".repeat(32)))]).unwrap();
        assert_eq!(format!("{keys:?}"), r#"["new", "old.1"]"#, "no key is shown");
        assert_eq!(read(&[]).unwrap_err(), InvalidKey::None);
        assert_eq!(read(&[("a:b", &key)]).unwrap_err(), InvalidKey::Id("a:b".into()));
        assert_eq!(read(&[("a", &key), ("a", &key)]).unwrap_err(), InvalidKey::Duplicate("a".into()));
        for text in ["", "0f", &"0g".repeat(32), &"+f".repeat(32), &"0f".repeat(33), &"é".repeat(32)] {
            let error = read(&[("a", text)]).unwrap_err();
            let message = "the key `a` is not 64 hexadecimal digits; generate one with `openssl rand -hex 32`";
            assert_eq!(error.to_string(), message, "{text}");
        }
    }
}
