//! HMAC-SHA256 under the random key of a code cache.

use std::fmt;

use sha2::{Digest, Sha256};

/// Bytes of a key.
pub(super) const KEY: usize = 32;

/// Bytes of a keyed hash.
pub(super) const MAC: usize = 32;

/// Block size of SHA-256, bytes.
const BLOCK: usize = 64;

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

    /// Returns the keyed hash of `parts`. Each but the last is followed by a zero byte, which none of those contains.
    pub(super) fn mac(&self, parts: &[&[u8]]) -> [u8; MAC] {
        let mut inner = Sha256::new_with_prefix(self.padded(0x36));
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                inner.update([0]);
            }
            inner.update(part);
        }
        Sha256::new_with_prefix(self.padded(0x5c)).chain_update(inner.finalize()).finalize().into()
    }

    /// Returns true if `mac` is the keyed hash of `parts`. Runs in constant time.
    pub(super) fn verify(&self, parts: &[&[u8]], mac: &[u8]) -> bool {
        let expected = self.mac(parts);
        mac.len() == MAC && expected.iter().zip(mac).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
    }

    fn padded(&self, pad: u8) -> [u8; BLOCK] {
        let mut block = [pad; BLOCK];
        block.iter_mut().zip(self.0).for_each(|(byte, key)| *byte ^= key);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test cases 1 and 2 of RFC 4231; their shorter keys are padded with zeros.
    #[test]
    fn the_keyed_hash_is_hmac_sha256() {
        let key = |start: &[u8]| {
            let mut bytes = [0; KEY];
            bytes[..start.len()].copy_from_slice(start);
            Key(bytes)
        };
        let hex = |mac: [u8; MAC]| mac.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(
            hex(key(&[0x0b; 20]).mac(&[b"Hi There"])),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
        );
        assert_eq!(
            hex(key(b"Jefe").mac(&[b"what do ya want for nothing?"])),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_hash_fits_only_its_key_and_its_parts() {
        let (key, other) = (Key([1; KEY]), Key([2; KEY]));
        let mac = key.mac(&[b"name", b"code"]);
        assert!(key.verify(&[b"name", b"code"], &mac));
        assert!(!other.verify(&[b"name", b"code"], &mac));
        assert!(!key.verify(&[b"nam", b"ecode"], &mac));
        assert!(!key.verify(&[b"name", b"code"], &mac[..MAC - 1]));
        assert!(!key.verify(&[b"name", b"code"], &[]));
    }

    #[test]
    fn a_key_is_not_shown_and_no_two_are_the_same() {
        assert_eq!(format!("{:?}", Key([7; KEY])), "Key(…)");
        assert!(Key::random().unwrap() != Key::random().unwrap());
    }
}
