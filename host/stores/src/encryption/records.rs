//! Small records, which are sealed as strings.

use aws_lc_rs::aead::{Aad, NONCE_LEN, Nonce};
use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use hatchery_core::StoreError;

use super::keys::{EncryptionKeys, associated_data, cannot_seal, does_not_fit};

/// The start of a sealed record. The id of the key follows, a colon, and in Base64 the nonce and what the cipher
/// returned.
const PREFIX: &str = "hatchery:sealed:";

/// A record: `subject` describes it in errors, and `context` is its associated data.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub(super) subject: &'a str,
    pub(super) context: &'a [&'a str],
}

impl EncryptionKeys {
    /// Seals a record.
    pub(super) fn seal(&self, record: Record<'_>, content: &[u8]) -> Result<String, StoreError> {
        let key = self.first();
        let mut sealed = content.to_vec();
        let nonce = key.records.seal_in_place_append_tag(Aad::from(associated_data(record.context)), &mut sealed);
        let nonce = nonce.map_err(|_| cannot_seal(record.subject))?;
        let bytes = [nonce.as_ref().as_slice(), &sealed].concat();
        Ok(format!("{PREFIX}{}:{}", key.id, BASE64_STANDARD_NO_PAD.encode(bytes)))
    }

    /// Opens a record; `None` if it is not sealed, and need not be.
    pub(super) fn open(&self, record: Record<'_>, sealed: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((id, text)) = parse(sealed) else {
            self.check_plain(record.subject)?;
            return Ok(None);
        };
        let key = self.find(id, record.subject)?;
        let opened = BASE64_STANDARD_NO_PAD.decode(text).ok().and_then(|bytes| {
            let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let mut sealed = sealed.to_vec();
            let content =
                key.records.open_in_place(nonce, Aad::from(associated_data(record.context)), &mut sealed).ok()?.len();
            sealed.truncate(content);
            Some(sealed)
        });
        opened.map(Some).ok_or_else(|| does_not_fit(id, record.subject))
    }

    /// Returns true if a record that cannot be opened is sealed with a key that is missing, rather than damaged.
    pub(super) fn lacks_key_of(&self, sealed: &str) -> bool {
        parse(sealed).is_some_and(|(id, _)| !self.has(id))
    }

    /// Seals a string.
    pub(super) fn seal_text(&self, record: Record<'_>, text: &str) -> Result<String, StoreError> {
        self.seal(record, text.as_bytes())
    }

    /// Opens a sealed string. Returns other strings unchanged.
    pub(super) fn open_text(&self, record: Record<'_>, text: String) -> Result<String, StoreError> {
        match self.open(record, &text)? {
            Some(content) => String::from_utf8(content).map_err(|error| unreadable(record, error)),
            None => Ok(text),
        }
    }
}

/// Returns the id of the key of a sealed record and its Base64; `None` for other strings.
fn parse(sealed: &str) -> Option<(&str, &str)> {
    sealed.strip_prefix(PREFIX)?.split_once(':')
}

/// Returns the error of a record with unexpected content.
pub(super) fn unreadable(record: Record<'_>, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::backend(format!("cannot read {} after its decryption", record.subject), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(keys: &[(&str, &str)]) -> EncryptionKeys {
        let keys: Vec<_> = keys.iter().map(|(id, digits)| (*id, digits.repeat(32))).collect();
        EncryptionKeys::from_hex(keys.iter().map(|(id, key)| (*id, key.as_str()))).unwrap()
    }

    fn record<'a>(context: &'a [&'a str]) -> Record<'a> {
        Record { subject: "the record", context }
    }

    #[test]
    fn a_record_is_opened_only_where_it_belongs() {
        let keys = keys(&[("k", "01")]);
        let sealed = keys.seal(record(&["state", "ab", "c"]), b"content").unwrap();
        assert!(sealed.starts_with("hatchery:sealed:k:") && !sealed.contains("content"), "{sealed}");
        assert_eq!(keys.open(record(&["state", "ab", "c"]), &sealed).unwrap().unwrap(), b"content");
        assert_ne!(keys.seal(record(&["state", "ab", "c"]), b"content").unwrap(), sealed, "nonces are random");
        for context in [&["state", "a", "bc"][..], &["event", "ab", "c"], &[]] {
            let error = keys.open(record(context), &sealed).unwrap_err().to_string();
            assert!(error.starts_with("cannot decrypt the record: the key `k` does not open it"), "{error}");
        }
        assert_eq!(keys.open(record(&[]), "plain text").unwrap(), None);
    }

    #[test]
    fn the_first_key_seals_and_all_open() {
        let (old, new) = (keys(&[("old", "01")]), keys(&[("new", "02"), ("old", "01")]));
        let before = old.seal(record(&[]), b"before").unwrap();
        assert_eq!(new.open(record(&[]), &before).unwrap().unwrap(), b"before");
        let after = new.seal(record(&[]), b"after").unwrap();
        assert!(after.starts_with("hatchery:sealed:new:"), "{after}");
        let missing = old.open(record(&[]), &after).unwrap_err().to_string();
        let expected = "cannot decrypt the record: it is encrypted with the key `new`, which is not among \
                        `encryption.keys` in hatchery.yaml; add it there";
        assert_eq!(missing, expected);
        let wrong = keys(&[("new", "03")]).open(record(&[]), &after).unwrap_err().to_string();
        let expected = "cannot decrypt the record: the key `new` does not open it: `encryption.keys` in \
                        hatchery.yaml has another key of this id, or the stored data was changed";
        assert_eq!(wrong, expected);
    }

    #[test]
    fn a_changed_record_is_not_opened() {
        let keys = keys(&[("k", "01")]);
        let sealed = keys.seal(record(&[]), b"content").unwrap();
        for changed in
            ["hatchery:sealed:k:", "hatchery:sealed:k:AAAA", "hatchery:sealed:k:!", &sealed[..sealed.len() - 2]]
        {
            assert!(keys.open(record(&[]), changed).is_err(), "{changed}");
        }
    }
}
