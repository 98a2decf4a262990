//! Grants of host folders to components.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// An access level. `Write` includes `Read`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read only.
    #[default]
    Read,
    /// Read, change and delete.
    Write,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Access {
    /// Returns the word in `hatchery.yaml`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// A granted host folder with everything in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    pub host: PathBuf,
    /// Absolute path in the component.
    pub guest: GuestPath,
    #[serde(default)]
    pub access: Access,
    /// The folder that a relative `host` was resolved against. Links below it are not followed.
    #[serde(skip)]
    pub(crate) base: Option<PathBuf>,
}

/// An absolute path in a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GuestPath(String);

impl GuestPath {
    /// Returns the path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for GuestPath {
    type Error = String;

    fn try_from(path: String) -> Result<Self, String> {
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(format!("`{path}` is not an absolute path in the component, such as `/data`"));
        }
        Ok(Self(path))
    }
}

impl From<GuestPath> for String {
    fn from(path: GuestPath) -> Self {
        path.0
    }
}
