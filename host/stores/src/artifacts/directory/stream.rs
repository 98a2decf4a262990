//! Files of artifacts that are written and read in chunks.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::PathBuf;

use bytes::BytesMut;
use futures::{StreamExt, TryStreamExt, stream};
use hatchery_core::{ArtifactStream, ByteStream, PartData, StoreError, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufWriter};

use super::{NewPart, StoredPart, blocking, creation_time, encode_head, failure, no_head};
use crate::permissions;

/// The number of bytes that are read or written at a time.
const CHUNK: usize = 256 << 10;

/// The bytes of a stream in memory: the chunk being collected and the chunk being written, or the chunk being read and
/// the chunk being sent.
pub(super) const BUFFER: usize = 2 * CHUNK;

/// A file that is removed unless another link to it exists.
pub(super) struct UnfinishedFile(pub(super) PathBuf);

impl Drop for UnfinishedFile {
    fn drop(&mut self) {
        // A file that cannot be removed now is removed when it is old.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a new file with the part's JSON and the bytes of a stream, and syncs it to disk.
pub(super) async fn write(
    file: &UnfinishedFile,
    part: NewPart<'_>,
    mut bytes: ByteStream<'_>,
) -> Result<(), StoreError> {
    let failed = |error| failure("save", &file.0, error);
    let path = file.0.clone();
    let created = blocking("save", path.clone(), move || permissions::create_file(&path)).await?;
    let mut writer = BufWriter::with_capacity(CHUNK, tokio::fs::File::from_std(created));
    writer.write_all(&encode_head(part).map_err(failed)?).await.map_err(failed)?;
    while let Some(chunk) = bytes.try_next().await? {
        writer.write_all(&chunk).await.map_err(failed)?;
    }
    writer.flush().await.map_err(failed)?;
    writer.get_ref().sync_all().await.map_err(failed)
}

/// A file whose next byte is the first one of its inline data.
pub(super) struct OpenedFile {
    part: StoredPart,
    created: Timestamp,
    len: u64,
    file: File,
}

/// Reads the first line of a file.
pub(super) fn read_head(file: File) -> io::Result<OpenedFile> {
    let metadata = file.metadata()?;
    let (size, created) = (metadata.len(), creation_time(&metadata)?);
    let mut reader = BufReader::new(file);
    let mut head = Vec::new();
    reader.read_until(b'\n', &mut head)?;
    let json = head.strip_suffix(b"\n").ok_or_else(no_head)?;
    let part: StoredPart = serde_json::from_slice(json)?;
    let start = head.len() as u64;
    reader.seek(SeekFrom::Start(start))?;
    Ok(OpenedFile { part, created, len: size.saturating_sub(start), file: reader.into_inner() })
}

impl OpenedFile {
    /// Returns the bytes as a stream; `path` is for errors.
    pub(super) fn into_stream(self, path: PathBuf) -> ArtifactStream {
        let Self { part: StoredPart { part, custom_metadata }, created, len, file } = self;
        let created = Some(created);
        if !matches!(part.data, PartData::InlineData(_)) {
            return ArtifactStream { created, custom_metadata, ..part.into() };
        }
        let bytes = stream::try_unfold(tokio::fs::File::from_std(file), |mut file| async move {
            let mut chunk = BytesMut::with_capacity(CHUNK);
            let read = file.read_buf(&mut chunk).await?;
            Ok::<_, io::Error>((read > 0).then(|| (chunk.freeze(), file)))
        });
        let bytes = bytes.map_err(move |error| failure("load", &path, error)).boxed();
        ArtifactStream { part, created, custom_metadata, len, bytes }
    }
}
