//! Bytes of any length, which are sealed in segments and opened in the same order.
//!
//! ```text
//! HTENC1, the length of the key's id, the id, a salt of 32 bytes
//! segments of 64 KiB, each with 16 bytes of the cipher; the last one may be shorter
//! ```
//! Each salt has its own key. The nonce of a segment is its number, and whether it is the last: segments cannot be
//! omitted, repeated or exchanged.

use aws_lc_rs::aead::{Aad, LessSafeKey, NONCE_LEN, Nonce};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{ByteStream, StoreError};

use super::keys::{EncryptionKeys, associated_data, cannot_seal, does_not_fit};
use super::records::Record;

const MAGIC: &[u8] = b"HTENC1";
const SALT_BYTES: usize = 32;
/// The number of bytes in a segment.
pub(super) const SEGMENT: usize = 64 << 10;
const TAG: usize = 16;

/// The number of a segment and whether it is the last.
fn nonce(number: u64, is_last: bool) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    nonce.copy_from_slice(&[0, 0, 0, a, b, c, d, e, f, g, h, u8::from(is_last)]);
    Nonce::assume_unique_for_key(nonce)
}

/// Encrypts a stream of bytes incrementally.
struct Sealer<'a> {
    bytes: ByteStream<'a>,
    key: LessSafeKey,
    subject: String,
    associated_data: Vec<u8>,
    number: u64,
    /// The bytes that are not encrypted yet.
    buffer: BytesMut,
}

impl EncryptionKeys {
    /// Returns the sealed bytes of a stream that is not empty.
    pub(super) fn seal_stream<'a>(
        &self,
        record: Record<'_>,
        bytes: ByteStream<'a>,
    ) -> Result<ByteStream<'a>, StoreError> {
        let mut salt = [0; SALT_BYTES];
        let failed = || cannot_seal(record.subject);
        aws_lc_rs::rand::fill(&mut salt).map_err(|_| failed())?;
        let first = self.first();
        let id_bytes = u8::try_from(first.id.len()).map_err(|_| failed())?;
        let header = [MAGIC, &[id_bytes], first.id.as_bytes(), &salt].concat();
        let sealer = Sealer {
            bytes,
            key: first.derive_artifact_key(&salt).ok_or_else(failed)?,
            subject: record.subject.to_owned(),
            associated_data: associated_data(record.context),
            number: 0,
            buffer: BytesMut::new(),
        };
        let segments = stream::try_unfold(Some(sealer), |sealer| async move {
            match sealer {
                Some(sealer) => sealer.next().await.map(Some),
                None => Ok(None),
            }
        });
        Ok(stream::iter([Ok(Bytes::from(header))]).chain(segments).boxed())
    }

    /// Returns a reader that decrypts `len` sealed bytes.
    pub(super) async fn open_stream(
        &self,
        record: Record<'_>,
        len: u64,
        mut bytes: ByteStream<'static>,
    ) -> Result<Opener, StoreError> {
        let not_sealed =
            || StoreError::backend(format!("cannot decrypt {}", record.subject), "the stored data was changed");
        let mut buffer = BytesMut::new();
        fill(&mut bytes, &mut buffer, MAGIC.len() + 1).await?;
        let id_bytes = match buffer.strip_prefix(MAGIC) {
            Some([length, ..]) => usize::from(*length),
            Some([]) | None => return Err(not_sealed()),
        };
        let header = MAGIC.len() + 1 + id_bytes + SALT_BYTES;
        fill(&mut bytes, &mut buffer, header).await?;
        if buffer.len() < header {
            return Err(not_sealed());
        }
        let head = buffer.split_to(header);
        let (id, salt) = head.get(MAGIC.len() + 1..).unwrap_or_default().split_at(id_bytes);
        let id = str::from_utf8(id).map_err(|_| not_sealed())?;
        let key = self.find(id, record.subject)?;
        let sealed = len.saturating_sub(header as u64);
        Ok(Opener {
            bytes,
            key: key.derive_artifact_key(salt).ok_or_else(|| does_not_fit(id, record.subject))?,
            key_id: id.to_owned(),
            subject: record.subject.to_owned(),
            associated_data: associated_data(record.context),
            number: 0,
            buffer,
            is_open: true,
            len: sealed.saturating_sub(sealed.div_ceil((SEGMENT + TAG) as u64) * TAG as u64),
        })
    }
}

impl<'a> Sealer<'a> {
    /// Returns the next segment, and the sealer of the others; `None` after the last.
    async fn next(mut self) -> Result<(Bytes, Option<Self>), StoreError> {
        // A full segment is not the last if there are more bytes.
        while self.buffer.len() <= SEGMENT {
            let Some(chunk) = self.bytes.try_next().await? else {
                let last = std::mem::take(&mut self.buffer);
                return Ok((self.seal(last, true)?, None));
            };
            self.buffer.extend_from_slice(&chunk);
        }
        let segment = self.buffer.split_to(SEGMENT);
        let sealed = self.seal(segment, false)?;
        self.number += 1;
        Ok((sealed, Some(self)))
    }

    fn seal(&self, segment: BytesMut, is_last: bool) -> Result<Bytes, StoreError> {
        let mut sealed = segment.to_vec();
        let aad = Aad::from(self.associated_data.as_slice());
        let tagged = self.key.seal_in_place_append_tag(nonce(self.number, is_last), aad, &mut sealed);
        tagged.map_err(|_| cannot_seal(&self.subject))?;
        Ok(sealed.into())
    }
}

/// Decrypts a stream of bytes incrementally.
pub(super) struct Opener {
    bytes: ByteStream<'static>,
    key: LessSafeKey,
    key_id: String,
    subject: String,
    associated_data: Vec<u8>,
    number: u64,
    /// The bytes that are not decrypted yet.
    buffer: BytesMut,
    /// False after the last segment.
    is_open: bool,
    /// The number of bytes that are opened in all.
    pub(super) len: u64,
}

impl Opener {
    /// Returns the bytes of the next segment; `None` after the last.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if !self.is_open {
            return Ok(None);
        }
        fill(&mut self.bytes, &mut self.buffer, SEGMENT + TAG + 1).await?;
        let is_last = self.buffer.len() <= SEGMENT + TAG;
        let mut segment = self.buffer.split_to(self.buffer.len().min(SEGMENT + TAG));
        let aad = Aad::from(self.associated_data.as_slice());
        let opened = self.key.open_in_place(nonce(self.number, is_last), aad, &mut segment);
        let opened = opened.map_err(|_| does_not_fit(&self.key_id, &self.subject))?.len();
        segment.truncate(opened);
        (self.number, self.is_open) = (self.number + 1, !is_last);
        Ok(Some(segment.freeze()))
    }

    /// Returns the rest of the bytes, after `first`.
    pub(super) fn into_stream(self, first: Bytes) -> ByteStream<'static> {
        let rest = stream::try_unfold(self, |mut opener| async move {
            Ok::<_, StoreError>(opener.next().await?.map(|bytes| (bytes, opener)))
        });
        let all = stream::iter([Ok(first)]).chain(rest);
        all.try_filter(|bytes| std::future::ready(!bytes.is_empty())).boxed()
    }
}

/// Receives bytes until this many are available, or the input ends.
async fn fill(bytes: &mut ByteStream<'static>, buffer: &mut BytesMut, count: usize) -> Result<(), StoreError> {
    while buffer.len() < count {
        let Some(chunk) = bytes.try_next().await? else { return Ok(()) };
        buffer.extend_from_slice(&chunk);
    }
    Ok(())
}
