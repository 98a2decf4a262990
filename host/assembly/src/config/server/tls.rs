//! TLS: `server.tls`.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The files of the server's certificate. They are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate and those that lead to a root, in PEM.
    pub certificate: PathBuf,
    /// The private key, in PEM.
    pub key: PathBuf,
}

impl TlsConfig {
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for file in [&mut self.certificate, &mut self.key] {
            *file = folder.join(&*file);
        }
    }
}
