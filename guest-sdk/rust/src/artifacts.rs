//! Artifacts: named, versioned files of the session, or of the user if the name starts with `user:`.

use std::marker::PhantomData;

use crate::content::Part;
use crate::context::Context;
use crate::error::Error;
use crate::host::artifacts;

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
    /// Also if the name is invalid.
    pub async fn save(&self, name: &str, part: impl Into<Part>) -> Result<u64, Error> {
        Ok(artifacts::save(name.to_owned(), part.into().into()).await?)
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

    /// Deletes all versions of an artifact.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        Ok(artifacts::delete(name.to_owned()).await?)
    }
}
