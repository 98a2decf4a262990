//! Artifacts of tools, callbacks and agents in code: their versions are part of the changes of a call.

use super::CallContext;
use crate::artifact::{MAX_LOADED_BYTES, check_custom_metadata};
use crate::content::Part;
use crate::error::StoreError;
use crate::invocation::Invocation;
use crate::json::JsonMap;

impl CallContext {
    /// Saves an artifact and records it in the changes. Returns the new version.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] in a read-only context, and the errors of the service.
    pub async fn save_artifact(&self, name: &str, part: &Part) -> Result<u64, StoreError> {
        self.save_artifact_with(name, part, &JsonMap::new()).await
    }

    /// Saves an artifact as [`CallContext::save_artifact`] does, with metadata for other programs.
    ///
    /// # Errors
    /// As [`CallContext::save_artifact`]; also if the metadata is too large, or the service keeps none.
    pub async fn save_artifact_with(
        &self,
        name: &str,
        part: &Part,
        custom_metadata: &JsonMap,
    ) -> Result<u64, StoreError> {
        self.check_writable().map_err(|error| StoreError::InvalidRequest(error.to_string()))?;
        check_custom_metadata(name, custom_metadata)?;
        let Invocation { services, session_key, .. } = self.invocation.as_ref();
        let version = services.artifacts.save_with(session_key, name, part, custom_metadata).await?;
        let mut actions = self.actions();
        actions.deleted_artifact_ids.remove(name);
        actions.artifact_delta.insert(name.into(), version);
        drop(actions);
        Ok(version)
    }

    /// Loads a version of an artifact; the newest if `version` is `None`.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] if it has more than [`MAX_LOADED_BYTES`](crate::MAX_LOADED_BYTES), and the errors
    /// of the service.
    pub async fn load_artifact(&self, name: &str, version: Option<u64>) -> Result<Option<Part>, StoreError> {
        let Invocation { services, session_key, .. } = self.invocation.as_ref();
        services.artifacts.load_within(session_key, name, version, MAX_LOADED_BYTES).await
    }

    /// Deletes all versions of an artifact and records that in the changes.
    ///
    /// # Errors
    /// [`StoreError::InvalidRequest`] in a read-only context, and the errors of the service.
    pub async fn delete_artifact(&self, name: &str) -> Result<(), StoreError> {
        self.check_writable().map_err(|error| StoreError::InvalidRequest(error.to_string()))?;
        self.invocation.services.artifacts.delete(&self.invocation.session_key, name).await?;
        let mut actions = self.actions();
        actions.artifact_delta.remove(name);
        actions.deleted_artifact_ids.insert(name.into());
        Ok(())
    }

    /// Returns the names of the artifacts of the session and its user, sorted.
    pub async fn list_artifacts(&self) -> Result<Vec<String>, StoreError> {
        self.invocation.services.artifacts.list(&self.invocation.session_key).await
    }
}
