//! Lockfile `hatchery.lock`: the source, the digests and the signer of each pulled component. It is human-readable and
//! meant to be committed with the other files of the folder. Only the `hatchery` command writes it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::component::{Digest, check_name};
use crate::error::RegistryError;
use crate::file;
use crate::reference::Reference;
use crate::signature::{KeyId, SignatureSubject};

/// The name of the file in the served folder.
pub const LOCK_FILE: &str = "hatchery.lock";

const HEADER: &str = "# Components that `hatchery pull` has added to this folder. Keep this file with them.\n";
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lockfile {
    version: u32,
    pub(crate) components: BTreeMap<String, LockEntry>,
}

/// The entry of one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LockEntry {
    /// The reference that was pulled, which `--update` pulls again.
    pub(crate) reference: Reference,
    /// The digest of the manifest. The component is restored by this digest.
    pub(crate) manifest: Digest,
    /// The digest of the component's bytes.
    pub(crate) file: Digest,
    /// The trusted key of the signature; `None` if it was unsigned or not verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signer: Option<KeyId>,
}

impl LockEntry {
    /// Returns the subject that the signature must name.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> SignatureSubject<'a> {
        SignatureSubject { name, version: self.reference.version() }
    }
}

impl Lockfile {
    /// Returns the path of the lockfile of a folder.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join(LOCK_FILE)
    }

    /// Reads the lockfile of a folder. Returns an empty one if the file does not exist.
    pub(crate) async fn read(folder: &Path) -> Result<Self, RegistryError> {
        let path = Self::path(folder);
        match file::read_text(&path).await? {
            Some(text) => Self::parse(&text, &path),
            None => Ok(Self { version: VERSION, components: BTreeMap::new() }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, RegistryError> {
        let invalid = |location, message| RegistryError::InvalidLockfile { path: path.to_owned(), location, message };
        let lock: Self = serde_yaml::from_str(text).map_err(|error| {
            let location = error.location().map(|location| (location.line(), location.column()));
            let suffix = location.map(|(line, column)| format!(" at line {line} column {column}")).unwrap_or_default();
            invalid(location, error.to_string().replace(&suffix, ""))
        })?;
        if lock.version != VERSION {
            let found = lock.version;
            return Err(invalid(
                None,
                format!("it has version {found}, but this version of hatchery reads version {VERSION}"),
            ));
        }
        lock.components
            .keys()
            .try_for_each(|name| check_name(name))
            .map_err(|error| invalid(None, error.to_string()))?;
        Ok(lock)
    }

    /// Writes the lockfile of a folder.
    pub(crate) async fn write(&self, folder: &Path) -> Result<(), RegistryError> {
        let path = Self::path(folder);
        let text = serde_yaml::to_string(self).map_err(|error| RegistryError::InvalidLockfile {
            path: path.clone(),
            location: None,
            message: error.to_string(),
        })?;
        file::write(&path, format!("{HEADER}{text}").into_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(signer: Option<&str>) -> LockEntry {
        LockEntry {
            reference: "localhost:5000/team/x:1.2".parse().unwrap(),
            manifest: Digest::compute(b"manifest"),
            file: Digest::compute(b"file"),
            signer: signer.map(|signer| signer.to_owned().try_into().unwrap()),
        }
    }

    #[tokio::test]
    async fn a_lockfile_is_sorted_and_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        // The second key id looks like a number.
        let components =
            [("b", locked(None)), ("a", locked(Some("12E4567890123456"))), ("c", locked(Some("1234567890123456")))];
        let components = components.map(|(name, locked)| (name.to_owned(), locked));
        let lock = Lockfile { version: VERSION, components: components.into() };
        lock.write(folder.path()).await.unwrap();
        assert_eq!(Lockfile::read(folder.path()).await.unwrap(), lock);
        let text = std::fs::read_to_string(folder.path().join("hatchery.lock")).unwrap();
        let expected = format!(
            "{HEADER}version: 1\ncomponents:\n  a:\n    reference: localhost:5000/team/x:1.2\n    manifest: {}\n    file: {}\n    signer: ",
            Digest::compute(b"manifest"),
            Digest::compute(b"file"),
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.find("\n  b:") < text.find("\n  c:"), "{text}");
    }

    #[tokio::test]
    async fn a_folder_without_a_lockfile_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Lockfile::read(folder.path()).await.unwrap().components.is_empty());
    }

    #[test]
    fn errors_have_their_location() {
        let digest = Digest::compute(b"");
        let entry = |name: &str, manifest: &str| {
            format!(
                "version: 1\ncomponents:\n  {name}:\n    reference: localhost/x:1\n    manifest: {manifest}\n    file: {digest}\n"
            )
        };
        for (text, location, message) in [
            (entry("x", "sha256:12"), "hatchery.lock:4:", "components.x: `sha256:12` is not a digest"),
            (entry("../x", digest.as_str()), "hatchery.lock: ", "`../x` is not a valid component name"),
            (
                "version: 2\ncomponents: {}\n".into(),
                "hatchery.lock: ",
                "version 2, but this version of hatchery reads version 1",
            ),
            ("version: 1\ncomponents: {}\nmore: 1\n".into(), "hatchery.lock:3:1: ", "unknown field `more`"),
        ] {
            let error = Lockfile::parse(&text, Path::new("hatchery.lock")).unwrap_err().to_string();
            assert!(error.starts_with(location) && error.contains(message), "{error}");
        }
    }
}
