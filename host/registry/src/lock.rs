//! `hatchery.lock`: what each component of a folder is and where it comes from. Made for people to read and to keep with the folder's other
//! files; written by the command only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::component::{Digest, check_name};
use crate::error::RegistryError;
use crate::file;
use crate::reference::Reference;
use crate::signature::{KeyId, Subject};

/// The file's name in the served directory.
pub const LOCK_FILE: &str = "hatchery.lock";

const HEAD: &str = "# What `hatchery pull` has put into this folder; keep it with the other files. `hatchery pull --update` renews it.\n";
const VERSION: u32 = 1;

/// What the file says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Lock {
    version: u32,
    /// By name.
    pub(crate) components: BTreeMap<String, Locked>,
}

/// One component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Locked {
    /// What it was pulled as, and what `--update` pulls again.
    pub(crate) reference: Reference,
    /// The digest of its manifest, by which it is pulled.
    pub(crate) manifest: Digest,
    /// The digest of its bytes.
    pub(crate) file: Digest,
    /// The trusted key that has signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) signer: Option<KeyId>,
}

impl Locked {
    /// What its signature is to be for.
    pub(crate) fn subject<'a>(&'a self, name: &'a str) -> Subject<'a> {
        Subject { name, version: self.reference.version() }
    }
}

impl Lock {
    /// Where it is in a folder.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join(LOCK_FILE)
    }

    /// Reads that of a folder; one that is not there locks nothing.
    pub(crate) async fn read(folder: &Path) -> Result<Self, RegistryError> {
        let path = Self::path(folder);
        match file::read_text(&path).await? {
            Some(text) => Self::parse(&text, &path),
            None => Ok(Self { version: VERSION, components: BTreeMap::new() }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, RegistryError> {
        let wrong = |location, message| RegistryError::Lock { path: path.to_owned(), location, message };
        let lock: Self = serde_yaml::from_str(text).map_err(|error| {
            let location = error.location().map(|location| (location.line(), location.column()));
            let said = location.map(|(line, column)| format!(" at line {line} column {column}")).unwrap_or_default();
            wrong(location, error.to_string().replace(&said, ""))
        })?;
        if lock.version != VERSION {
            let found = lock.version;
            return Err(wrong(None, format!("it is of version {found}, and this hatchery reads version {VERSION}")));
        }
        lock.components.keys().try_for_each(|name| check_name(name)).map_err(|error| wrong(None, error.to_string()))?;
        Ok(lock)
    }

    /// Writes that of a folder.
    pub(crate) async fn write(&self, folder: &Path) -> Result<(), RegistryError> {
        let path = Self::path(folder);
        let text = serde_yaml::to_string(self).map_err(|error| RegistryError::Lock {
            path: path.clone(),
            location: None,
            message: error.to_string(),
        })?;
        file::write(&path, format!("{HEAD}{text}").as_bytes()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(signer: Option<&str>) -> Locked {
        Locked {
            reference: "localhost:5000/team/x:1.2".parse().unwrap(),
            manifest: Digest::of(b"manifest"),
            file: Digest::of(b"file"),
            signer: signer.map(|signer| signer.to_owned().try_into().unwrap()),
        }
    }

    #[tokio::test]
    async fn it_is_sorted_and_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        // The second looks like a number.
        let components =
            [("b", locked(None)), ("a", locked(Some("12E4567890123456"))), ("c", locked(Some("1234567890123456")))];
        let components = components.map(|(name, locked)| (name.to_owned(), locked));
        let lock = Lock { version: VERSION, components: components.into() };
        lock.write(folder.path()).await.unwrap();
        assert_eq!(Lock::read(folder.path()).await.unwrap(), lock);
        let text = std::fs::read_to_string(folder.path().join("hatchery.lock")).unwrap();
        let expected = format!(
            "{HEAD}version: 1\ncomponents:\n  a:\n    reference: localhost:5000/team/x:1.2\n    manifest: {}\n    file: {}\n    signer: ",
            Digest::of(b"manifest"),
            Digest::of(b"file"),
        );
        assert!(text.starts_with(&expected), "{text}");
        assert!(text.find("\n  b:") < text.find("\n  c:"), "{text}");
    }

    #[tokio::test]
    async fn a_folder_without_one_locks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Lock::read(folder.path()).await.unwrap().components.is_empty());
    }

    #[test]
    fn what_it_may_not_say_is_named_with_its_place() {
        let digest = Digest::of(b"");
        let entry = |name: &str, manifest: &str| {
            format!(
                "version: 1\ncomponents:\n  {name}:\n    reference: localhost/x:1\n    manifest: {manifest}\n    file: {digest}\n"
            )
        };
        for (text, place, message) in [
            (entry("x", "sha256:12"), "hatchery.lock:4:", "components.x: `sha256:12` is no digest"),
            (entry("../x", digest.as_str()), "hatchery.lock: ", "`../x` cannot name a component"),
            ("version: 2\ncomponents: {}\n".into(), "hatchery.lock: ", "version 2, and this hatchery reads version 1"),
            ("version: 1\ncomponents: {}\nmore: 1\n".into(), "hatchery.lock:3:1: ", "unknown field `more`"),
        ] {
            let error = Lock::parse(&text, Path::new("hatchery.lock")).unwrap_err().to_string();
            assert!(error.starts_with(place) && error.contains(message), "{error}");
        }
    }
}
