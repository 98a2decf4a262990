//! Settings of providers: base URLs, API keys and the scripts folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

/// An API key. Its `Debug` output is `[hidden]`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self(secret.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// A provider's base URL with its origin. API keys are only sent to a URL that the operator chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseUrl {
    url: String,
    is_from_folder: bool,
}

impl BaseUrl {
    /// Creates a URL from the configuration of an untrusted folder. No key is sent to it.
    pub fn from_folder_config(url: impl Into<String>) -> Self {
        Self { url: url.into(), is_from_folder: true }
    }

    /// Returns the URL.
    pub fn as_str(&self) -> &str {
        &self.url
    }

    /// Returns true if API keys may be sent to this URL, because the operator chose it.
    pub fn allows_keys(&self) -> bool {
        !self.is_from_folder
    }
}

/// A URL that the operator chose, in the environment or in a trusted configuration.
impl From<String> for BaseUrl {
    fn from(url: String) -> Self {
        Self { url, is_from_folder: false }
    }
}

/// A URL that the operator chose, in the environment or in a trusted configuration.
impl From<&str> for BaseUrl {
    fn from(url: &str) -> Self {
        url.to_owned().into()
    }
}

/// Folders that components may write to. Files in them are not read as scripts. Clones share the list, which can change
/// at any time.
#[derive(Debug, Clone, Default)]
pub struct WritableFolders(Arc<ArcSwap<Vec<PathBuf>>>);

impl WritableFolders {
    /// Replaces the list. The paths are canonical.
    pub fn set(&self, folders: Vec<PathBuf>) {
        self.0.store(Arc::new(folders));
    }

    /// Returns true if `path`, with links resolved, is inside one of the folders. Accesses the file system unless the
    /// list is empty.
    pub fn contain(&self, path: &Path) -> bool {
        let folders = self.0.load();
        let is_inside = |path: PathBuf| folders.iter().any(|folder| path.starts_with(folder));
        !folders.is_empty() && path.canonicalize().is_ok_and(is_inside)
    }
}

impl PartialEq for WritableFolders {
    fn eq(&self, other: &Self) -> bool {
        *self.0.load() == *other.0.load()
    }
}

impl Eq for WritableFolders {}

/// Settings of all providers. The default has no keys, the providers' own URLs, and the current directory for scripts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Gemini's base URL without the version. Default: `https://generativelanguage.googleapis.com`.
    pub gemini_base_url: Option<BaseUrl>,
    /// Required by Gemini models.
    pub gemini_api_key: Option<Secret>,
    /// The base URL of chat completions with the version. Default: `https://api.openai.com/v1`.
    pub openai_base_url: Option<BaseUrl>,
    /// Not required if a base URL is set.
    pub openai_api_key: Option<Secret>,
    /// The folder of the files in `scripted:<file>`. Empty for the current directory.
    pub scripts_dir: PathBuf,
    /// Folders below `scripts_dir` whose files are not read as scripts.
    pub writable_folders: WritableFolders,
}

impl Settings {
    /// Reads `GOOGLE_GEMINI_BASE_URL`, `GOOGLE_API_KEY` (or `GEMINI_API_KEY`), `OPENAI_BASE_URL` and `OPENAI_API_KEY`
    /// from the environment. An empty variable counts as unset.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads the same variables from `variable`.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        Self {
            gemini_base_url: value("GOOGLE_GEMINI_BASE_URL").map(BaseUrl::from),
            gemini_api_key: value("GOOGLE_API_KEY").or_else(|| value("GEMINI_API_KEY")).map(Secret),
            openai_base_url: value("OPENAI_BASE_URL").map(BaseUrl::from),
            openai_api_key: value("OPENAI_API_KEY").map(Secret),
            scripts_dir: PathBuf::new(),
            writable_folders: WritableFolders::default(),
        }
    }
}
