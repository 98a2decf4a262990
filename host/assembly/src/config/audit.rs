//! Settings of the audit log: `audit`.

use std::path::PathBuf;

use serde::Deserialize;

use crate::byte_size::ByteSize;
use crate::storage::Storage;

/// The audit log: a file of JSON lines that is rotated by size. Read at start only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// True if the log is written. Audit events go to the host's own log in any case.
    pub enabled: bool,
    /// The log file. Default: `audit/audit.log` in the data folder. Without a data folder no log is written.
    pub file: Option<PathBuf>,
    /// Size at which the file is renamed to `audit.log.1` and a new one is started; at least [`AuditConfig::MIN_SIZE`].
    pub max_size: ByteSize,
    /// Number of rotated files to keep: `audit.log.1` and so on.
    pub max_backups: usize,
}

impl AuditConfig {
    /// The minimum of `max_size`.
    pub const MIN_SIZE: ByteSize = ByteSize(4096);

    pub(super) fn check(&self) -> Result<(), String> {
        if self.max_size < Self::MIN_SIZE {
            Err(format!("audit.max_size is {}; it must be at least {}", self.max_size, Self::MIN_SIZE))
        } else {
            Ok(())
        }
    }

    /// Returns the path of the log of a host with this storage. `None` if no log is written.
    pub fn path(&self, storage: &Storage) -> Option<PathBuf> {
        let in_storage = || match storage {
            Storage::Directory(folder) => Some(folder.join("audit").join("audit.log")),
            Storage::InMemory => None,
        };
        self.file.clone().or_else(in_storage).filter(|_| self.enabled)
    }
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { enabled: true, file: None, max_size: ByteSize(16 << 20), max_backups: 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_in_the_data_folder_by_default() {
        let data = Storage::Directory("/data".into());
        let config = AuditConfig::default();
        assert_eq!(config.path(&data), Some("/data/audit/audit.log".into()));
        assert_eq!(config.path(&Storage::InMemory), None);
        let elsewhere = AuditConfig { file: Some("/var/log/audit.log".into()), ..config };
        assert_eq!(elsewhere.path(&Storage::InMemory), elsewhere.file);
        assert_eq!(AuditConfig { enabled: false, ..elsewhere }.path(&data), None);
    }
}
