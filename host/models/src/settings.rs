//! Where providers are and how to get in.

use std::fmt;
use std::path::PathBuf;

/// A key. Shown as `[hidden]`, never as it is.
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

/// Where providers are and how to get in. The default has no keys, the providers' own URLs, and scripts in the current directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// Gemini's base URL without the version, default `https://generativelanguage.googleapis.com`.
    pub gemini_base_url: Option<String>,
    /// Gemini's key.
    pub gemini_api_key: Option<Secret>,
    /// The base URL of chat completions, version included, default `https://api.openai.com/v1`.
    pub openai_base_url: Option<String>,
    /// OpenAI's key; not needed when a base URL is set.
    pub openai_api_key: Option<Secret>,
    /// Where relative names of `scripted:<file>` start; empty for the current directory.
    pub scripts_dir: PathBuf,
}

impl Settings {
    /// From `GOOGLE_GEMINI_BASE_URL`, `GOOGLE_API_KEY` or else `GEMINI_API_KEY`, `OPENAI_BASE_URL` and `OPENAI_API_KEY`. An empty
    /// variable counts as missing.
    #[must_use]
    pub fn from_env() -> Self {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same from any source of variables.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let value = |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        Self {
            gemini_base_url: value("GOOGLE_GEMINI_BASE_URL"),
            gemini_api_key: value("GOOGLE_API_KEY").or_else(|| value("GEMINI_API_KEY")).map(Secret),
            openai_base_url: value("OPENAI_BASE_URL"),
            openai_api_key: value("OPENAI_API_KEY").map(Secret),
            scripts_dir: PathBuf::new(),
        }
    }
}
