//! HMAC-SHA256 under the random key of a code cache.

use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a key.
pub(super) const KEY: usize = 32;

/// Bytes of a keyed hash.
pub(super) const MAC: usize = 32;

/// A random key. `Debug` does not print it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key([u8; KEY]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Key {
    pub(super) fn random() -> std::io::Result<Self> {
        let mut bytes = [0; KEY];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the key with these bytes; `None` if their number is wrong.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Starts the keyed hash of a file with this name, which contains no zero byte.
    pub(super) fn hash(&self, name: &str) -> FileHash {
        // HMAC fills a key up with zeros.
        let mut block = hmac::digest::Key::<Hmac<Sha256>>::default();
        block.iter_mut().zip(self.0).for_each(|(to, byte)| *to = byte);
        let mut hash = Hmac::new(&block);
        hash.update(name.as_bytes());
        hash.update(&[0]);
        FileHash(hash)
    }
}

/// The keyed hash of a file's name and content.
pub(super) struct FileHash(Hmac<Sha256>);

impl FileHash {
    /// Adds a part of the content.
    pub(super) fn update(&mut self, content: &[u8]) {
        self.0.update(content);
    }

    /// Returns the hash.
    pub(super) fn finish(self) -> [u8; MAC] {
        self.0.finalize().into_bytes().into()
    }

    /// Returns true if `mac` is the hash. Runs in constant time.
    pub(super) fn verify(self, mac: &[u8]) -> bool {
        self.0.verify_slice(mac).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_fits_only_its_key_its_name_and_its_content() {
        let (key, other) = (Key([1; KEY]), Key([2; KEY]));
        let hash = |key: &Key, name: &str, content: &[&[u8]]| {
            let mut hash = key.hash(name);
            content.iter().for_each(|content| hash.update(content));
            hash
        };
        let mac = hash(&key, "name", &[b"code"]).finish();
        assert!(hash(&key, "name", &[b"co", b"de"]).verify(&mac));
        assert!(!hash(&other, "name", &[b"code"]).verify(&mac));
        assert!(!hash(&key, "nam", &[b"ecode"]).verify(&mac));
        assert!(!hash(&key, "name", &[b"code"]).verify(&mac[..MAC - 1]));
        assert!(!hash(&key, "name", &[b"code"]).verify(&[]));
    }

    #[test]
    fn a_key_is_not_shown_and_no_two_are_the_same() {
        assert_eq!(format!("{:?}", Key([7; KEY])), "Key(…)");
        assert!(Key::random().unwrap() != Key::random().unwrap());
    }
}
