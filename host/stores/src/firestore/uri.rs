//! URIs of Firestore services: `firestore://PROJECT[/DATABASE][?root=COLLECTION][&properties=FILE]`.

use std::path::PathBuf;

use hatchery_core::StoreError;

use super::client::{FirestoreBuilder, FirestoreClient};
use super::properties::{FirestoreProperties, check_collection};

const SCHEME: &str = "firestore://";
const VALID: &str = "a Firestore service is `firestore://PROJECT`, `firestore://PROJECT/DATABASE`, either of them with \
                     `?properties=FILE` or `?root=COLLECTION` (or both, joined by `&`)";

/// A database, and where sessions and memory are in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FirestoreUri {
    /// The id of the Google Cloud project.
    pub project: String,
    /// The id of the database; `None` for the default database of the project.
    pub database: Option<String>,
    /// A properties file.
    pub properties: Option<PathBuf>,
    /// The root collection, which takes precedence over the root collection of the file.
    pub root: Option<String>,
}

impl FirestoreUri {
    /// Parses a URI.
    ///
    /// # Errors
    /// [`StoreError::InvalidName`], which lists the valid forms.
    pub fn parse(uri: &str) -> Result<Self, StoreError> {
        Self::try_parse(uri).ok_or_else(|| StoreError::InvalidName { name: uri.to_owned(), reason: VALID })
    }

    fn try_parse(uri: &str) -> Option<Self> {
        let rest = uri.strip_prefix(SCHEME)?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (project, database) = match path.split_once('/') {
            Some((project, database)) => (project, Some(database)),
            None => (path, None),
        };
        if project.is_empty() || database.is_some_and(|database| database.is_empty() || database.contains('/')) {
            return None;
        }
        let (project, database) = (project.to_owned(), database.map(ToOwned::to_owned));
        let mut parsed = Self { project, database, properties: None, root: None };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=')? {
                ("properties", file) if !file.is_empty() => parsed.properties = Some(file.into()),
                ("root", root) if check_collection(root).is_ok() => parsed.root = Some(root.to_owned()),
                _ => return None,
            }
        }
        Some(parsed)
    }

    /// Returns the settings of a client for the database, or for the emulator of `FIRESTORE_EMULATOR_HOST`.
    pub fn client(&self) -> FirestoreBuilder {
        let builder = FirestoreClient::builder(&self.project).emulator_from_env();
        match &self.database {
            Some(database) => builder.database(database),
            None => builder,
        }
    }

    /// Reads the properties file, if the URI names one.
    ///
    /// # Errors
    /// As [`FirestoreProperties::read`].
    pub async fn properties(&self) -> Result<FirestoreProperties, StoreError> {
        let mut properties = match &self.properties {
            Some(file) => FirestoreProperties::read(file).await?,
            None => FirestoreProperties::default(),
        };
        if let Some(root) = &self.root {
            properties.root_collection.clone_from(root);
        }
        Ok(properties)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_project_database_and_collection() {
        let plain = FirestoreUri { project: "p".into(), database: None, properties: None, root: None };
        assert_eq!(FirestoreUri::parse("firestore://p").unwrap(), plain);
        let full = FirestoreUri {
            project: "p".into(),
            database: Some("d".into()),
            properties: Some("/etc/a.properties".into()),
            root: Some("chats".into()),
        };
        assert_eq!(FirestoreUri::parse("firestore://p/d?root=chats&properties=/etc/a.properties").unwrap(), full);
    }

    #[test]
    fn an_invalid_uri_lists_the_valid_forms() {
        for uri in [
            "firestore:",
            "firestore://",
            "firestore:///d",
            "firestore://p/",
            "firestore://p/d/e",
            "firestore://p?x=1",
            "firestore://p?root=a/b",
            "firestore://p?properties",
        ] {
            let error = FirestoreUri::parse(uri).unwrap_err().to_string();
            assert_eq!(error, format!("invalid name `{uri}`: {VALID}"));
        }
    }
}
