//! `audit` in `hatchery.yaml`: where security-relevant decisions are kept.

use std::path::PathBuf;

use serde::Deserialize;

use crate::byte_size::ByteSize;

/// The target of the events that go into the audit log.
pub const TARGET: &str = "hatchery::audit";

/// The audit log: JSON lines in a file, which is replaced when it is full. Read at the start only.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuditConfig {
    /// Whether one is kept. Events go to the host's own log in any case.
    pub enabled: bool,
    /// The file; `audit/audit.log` in the data directory when left out. Nothing is kept when neither is there.
    pub file: Option<PathBuf>,
    /// The size at which the file is put aside as `audit.log.1` and a new one begins; at least [`AuditConfig::SMALLEST`].
    pub max_size: ByteSize,
    /// How many files that were put aside are kept.
    pub keep: usize,
}

impl AuditConfig {
    /// The least `max_size`.
    pub const SMALLEST: ByteSize = ByteSize(4096);
}

impl Default for AuditConfig {
    fn default() -> Self {
        Self { enabled: true, file: None, max_size: ByteSize(16 << 20), keep: 8 }
    }
}
