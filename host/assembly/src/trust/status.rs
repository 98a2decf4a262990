//! Trust status of a configuration, with the reason if it is not trusted.

use std::fmt;
use std::path::PathBuf;

/// Trust in a configuration that requests access outside of its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustStatus {
    /// It requests none.
    NotRequired,
    /// Yes: the user trusts this text in this folder.
    Trusted,
    /// Yes: the operator has named the file.
    Named,
    /// No.
    Untrusted(UntrustedReason),
}

/// Reasons why a configuration is not trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UntrustedReason {
    /// The folder is not in the list of trusted folders.
    Undecided,
    /// The list has another hash of the file.
    Changed,
    /// Every user of the machine can write to this file or folder.
    WritableByAll { path: PathBuf },
    /// The list of trusted folders cannot be used.
    NoList(String),
}

impl fmt::Display for UntrustedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided => f.write_str("it is not trusted"),
            Self::Changed => f.write_str("it has changed since it was trusted"),
            Self::WritableByAll { .. } => f.write_str("every user of this machine can write to it"),
            Self::NoList(_) => f.write_str("the list of trusted folders cannot be used"),
        }
    }
}
