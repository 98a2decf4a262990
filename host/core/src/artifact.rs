//! Artifacts: named, versioned parts that belong to a session or, when the name starts with `user:`, to a user.

use async_trait::async_trait;

use crate::content::Part;
use crate::error::StoreError;
use crate::session::SessionKey;
use crate::usage::ArtifactUsage;

/// Keeps artifacts. Every implementation passes the same suite of tests.
#[async_trait]
pub trait ArtifactService: Send + Sync {
    /// Saves a new version and gives its number; the first is 0.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`] for an empty name or one that leaves its folder (`..`, a leading `/`).
    async fn save(&self, session: &SessionKey, name: &str, part: &Part) -> Result<u64, StoreError>;

    /// One version, or the newest; `None` when there is none.
    async fn load(&self, session: &SessionKey, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError>;

    /// Names of the session's and its user's artifacts, sorted.
    async fn list(&self, session: &SessionKey) -> Result<Vec<String>, StoreError>;

    /// Version numbers, ascending; empty when there is no such artifact.
    async fn versions(&self, session: &SessionKey, name: &str) -> Result<Vec<u64>, StoreError>;

    /// Deletes all versions; no error when there are none.
    async fn delete(&self, session: &SessionKey, name: &str) -> Result<(), StoreError>;

    /// How much the artifacts of the session and of its user take. The provided method reads every version that the session sees, and
    /// does not count those of the user's other sessions.
    async fn usage(&self, session: &SessionKey) -> Result<ArtifactUsage, StoreError> {
        let mut usage = ArtifactUsage::default();
        for name in self.list(session).await? {
            for version in self.versions(session, &name).await? {
                let Some(part) = self.load(session, &name, Some(version)).await? else { continue };
                let bytes = part.stored_bytes();
                if !name.starts_with("user:") {
                    usage.session_versions += 1;
                    usage.session_bytes += bytes;
                }
                usage.user_versions += 1;
                usage.user_bytes += bytes;
            }
        }
        Ok(usage)
    }
}
