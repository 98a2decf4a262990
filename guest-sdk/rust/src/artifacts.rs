//! [`Artifacts`]: named, versioned files of the session; of the user, when the name starts with `user:`.

use std::marker::PhantomData;

use crate::content::Part;
use crate::context::Context;
use crate::error::Error;
use crate::host::artifacts;

/// The session's files. Every method fails when the component may not use them, or the service fails.
#[derive(Debug)]
pub struct Artifacts<'a>(PhantomData<&'a Context>);

impl<'a> Artifacts<'a> {
    pub(crate) fn of(_call: &'a Context) -> Self {
        Self(PhantomData)
    }

    /// Saves a new version and gives its number, from 0.
    ///
    /// # Errors
    /// Also when the name cannot be used.
    pub async fn save(&self, name: &str, part: impl Into<Part>) -> Result<u64, Error> {
        Ok(artifacts::save(name.to_owned(), part.into().into()).await?)
    }

    /// Loads the newest version; nothing when there is none.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn load(&self, name: &str) -> Result<Option<Part>, Error> {
        artifacts::load(name.to_owned(), None).await?.map(Part::try_from).transpose()
    }

    /// Loads one version; nothing when it does not exist.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn load_version(&self, name: &str, version: u64) -> Result<Option<Part>, Error> {
        artifacts::load(name.to_owned(), Some(version)).await?.map(Part::try_from).transpose()
    }

    /// The names, sorted.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn list(&self) -> Result<Vec<String>, Error> {
        Ok(artifacts::list().await?)
    }

    /// The versions of one, ascending.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn versions(&self, name: &str) -> Result<Vec<u64>, Error> {
        Ok(artifacts::versions(name.to_owned()).await?)
    }

    /// Deletes all versions of one.
    ///
    /// # Errors
    /// See [`Artifacts`].
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        Ok(artifacts::delete(name.to_owned()).await?)
    }
}
