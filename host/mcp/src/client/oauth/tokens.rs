//! Where the tokens of servers are kept: in a file that only the owner of the host can read, or in memory.

use std::io;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, InMemoryCredentialStore, StoredCredentials};

/// The tokens of one server.
pub(super) struct TokenStore {
    /// `None` keeps them in memory.
    pub(super) file: Option<PathBuf>,
    pub(super) memory: InMemoryCredentialStore,
}

#[async_trait]
impl CredentialStore for TokenStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let Some(file) = self.file.clone() else { return self.memory.load().await };
        let read = blocking(move || std::fs::read(file)).await;
        match read {
            Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|error| failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&error)),
        }
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let Some(file) = self.file.clone() else { return self.memory.save(credentials).await };
        let json = serde_json::to_vec(&credentials).map_err(|error| failed(&error))?;
        blocking(move || replace(&file, &json)).await.map_err(|error| failed(&error))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let Some(file) = self.file.clone() else { return self.memory.clear().await };
        match blocking(move || std::fs::remove_file(file)).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Replaces a file at once, so that another process reads the old tokens or the new ones.
fn replace(file: &Path, json: &[u8]) -> io::Result<()> {
    use std::io::Write;
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut written = options.open(&new)?;
    written.write_all(json)?;
    written.sync_all()?;
    std::fs::rename(new, file)
}

fn failed(error: &dyn std::error::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}
