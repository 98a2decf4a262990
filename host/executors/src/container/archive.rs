//! Archives of files in the format of tar (ustar), which engines unpack into containers.

use thiserror::Error;

const BLOCK: usize = 512;

/// Maximum length of a file name in the header of an entry, in bytes.
const MAX_NAME: usize = 100;

/// A file name that cannot be in an archive.
#[derive(Debug, PartialEq, Eq, Error)]
#[error("the file name `{}` cannot be used for code: it has a folder, or more than {MAX_NAME} bytes", .0.escape_debug())]
pub(super) struct BadName(String);

/// An archive while it is written.
#[derive(Default)]
pub(super) struct Archive(Vec<u8>);

impl Archive {
    /// Adds a file of root that everyone may read.
    ///
    /// # Errors
    /// If the name is not one of a plain file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> Result<(), BadName> {
        let is_plain = !name.is_empty() && name.len() <= MAX_NAME && !name.contains(['/', '\0']);
        if !is_plain || matches!(name, "." | "..") {
            return Err(BadName(name.into()));
        }
        let mut header = [0; BLOCK];
        let mut put = |offset: usize, bytes: &[u8]| {
            header.iter_mut().skip(offset).zip(bytes).for_each(|(place, byte)| *place = *byte);
        };
        put(0, name.as_bytes());
        put(100, b"0000644\0");
        put(108, b"0000000\0");
        put(116, b"0000000\0");
        put(124, format!("{:011o}\0", content.len()).as_bytes());
        put(136, b"00000000000\0");
        // The checksum counts itself as spaces.
        put(148, b"        ");
        put(156, b"0");
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        let checksum = format!("{sum:06o}\0 ");
        header.iter_mut().skip(148).zip(checksum.as_bytes()).for_each(|(place, byte)| *place = *byte);
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK), 0);
        Ok(())
    }

    /// Returns the archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}
