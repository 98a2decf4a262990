//! Artifacts: named, versioned files of the session, or of the user if the name starts with `user:`.

use std::marker::PhantomData;

use serde::Serialize;

use crate::content::{JsonMap, Part};
use crate::context::Context;
use crate::error::Error;
use crate::host::artifacts;

/// A version of an artifact without its content.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactVersion {
    /// From 0.
    pub version: u64,
    /// IANA media type; `None` for text.
    pub mime_type: Option<String>,
    /// The number of bytes that the host stores: 0 for a file elsewhere.
    pub size: u64,
    /// When it was saved, in microseconds since 1970; `None` if the artifact service does not know it.
    pub created_micros: Option<i64>,
    /// The metadata that it was saved with.
    pub custom_metadata: JsonMap,
}

/// Access to the session's artifacts. Every method fails if the component is not allowed to use them, or if the service
/// fails.
#[derive(Debug)]
pub struct Artifacts<'a>(PhantomData<&'a Context>);

impl<'a> Artifacts<'a> {
    pub(crate) fn new(_context: &'a Context) -> Self {
        Self(PhantomData)
    }

    /// Saves a new version and returns its number, starting at 0.
    ///
    /// # Errors
    /// See [`Artifacts`]. Also if the name is invalid.
    pub async fn save(&self, name: &str, part: impl Into<Part>) -> Result<u64, Error> {
        Ok(artifacts::save(name.to_owned(), part.into().into()).await?)
    }

    /// Saves a new version with metadata for other programs, a JSON object such as `json!({"author": "ada"})`.
    ///
    /// # Errors
    /// See [`Artifacts`]. Also if the metadata is not an object, or has more than 64 KiB.
    pub async fn save_with(
        &self,
        name: &str,
        part: impl Into<Part>,
        custom_metadata: impl Serialize,
    ) -> Result<u64, Error> {
        let custom_metadata = serde_json::to_string(&custom_metadata)?;
        Ok(artifacts::save_with(name.to_owned(), part.into().into(), custom_metadata).await?)
    }

    /// Loads the latest version. `None` if the artifact does not exist.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn load(&self, name: &str) -> Result<Option<Part>, Error> {
        artifacts::load(name.to_owned(), None).await?.map(Part::try_from).transpose()
    }

    /// Loads one version. `None` if it does not exist.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn load_version(&self, name: &str, version: u64) -> Result<Option<Part>, Error> {
        artifacts::load(name.to_owned(), Some(version)).await?.map(Part::try_from).transpose()
    }

    /// Returns the names of all artifacts, sorted.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn list(&self) -> Result<Vec<String>, Error> {
        Ok(artifacts::list().await?)
    }

    /// Returns the versions of an artifact, ascending.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn versions(&self, name: &str) -> Result<Vec<u64>, Error> {
        Ok(artifacts::versions(name.to_owned()).await?)
    }

    /// Returns the metadata of a version (of the latest if `version` is `None`) without its content. `None` if it does
    /// not exist.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn version(&self, name: &str, version: Option<u64>) -> Result<Option<ArtifactVersion>, Error> {
        artifacts::get_version(name.to_owned(), version).await?.map(ArtifactVersion::try_from).transpose()
    }

    /// Deletes all versions of an artifact.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        Ok(artifacts::delete(name.to_owned()).await?)
    }
}
