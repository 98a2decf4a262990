//! Settings of APIs that agents use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::ConfigValue;
use hatchery_egress::Egress;

use crate::credentials::Credentials;
use crate::integration::Integration;

/// An API whose operations agents use.
#[derive(Clone)]
pub struct ApiConfig {
    /// Where its OpenAPI document is.
    pub document: DocumentSource,
    /// What all requests begin with, such as `https://api.example/v1`. `None` means the servers of the document.
    pub base_url: Option<String>,
    /// Values of the variables in the URLs of servers. Others have their default.
    pub server_variables: BTreeMap<String, String>,
    /// What the host adds to requests.
    pub credentials: Credentials,
    /// Headers of every request.
    pub headers: BTreeMap<String, ConfigValue>,
    /// The operations that agents may use.
    pub selection: Selection,
    /// The operations whose calls a person must confirm.
    pub confirmation: Confirmation,
    /// Where requests may go.
    pub egress: Arc<dyn Egress>,
    /// Limits of the document and of answers.
    pub limits: Limits,
}

impl ApiConfig {
    /// Creates the settings of an API with all of its operations, without credentials and confirmation.
    pub fn new(document: DocumentSource, egress: Arc<dyn Egress>) -> Self {
        Self {
            document,
            base_url: None,
            server_variables: BTreeMap::new(),
            credentials: Credentials::None,
            headers: BTreeMap::new(),
            selection: Selection::default(),
            confirmation: Confirmation::None,
            egress,
            limits: Limits::default(),
        }
    }
}

/// Where a document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentSource {
    /// At a URL. It is requested without credentials.
    Url(String),
    /// In a file.
    File(PathBuf),
    /// Made from what Google Cloud says of an integration or a connection.
    Integration(Box<Integration>),
}

/// Operations of a document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those with these names. `None` means all.
    pub names: Option<BTreeSet<String>>,
    /// Those with one of these tags. `None` means all.
    pub tags: Option<BTreeSet<String>>,
}

impl Selection {
    /// Returns true if the operation with this name and these tags is one of them.
    pub(crate) fn includes(&self, name: &str, tags: &[String]) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(name))
            && self.tags.as_ref().is_none_or(|selected| tags.iter().any(|tag| selected.contains(tag)))
    }
}

/// The operations whose calls a person must confirm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Confirmation {
    /// None of them.
    #[default]
    None,
    /// Those with other methods than GET, HEAD and OPTIONS.
    Writes,
    /// All of them.
    All,
    /// Those with these names.
    Operations(BTreeSet<String>),
}

impl Confirmation {
    /// Returns the first listed name that is not one of `known`.
    pub(crate) fn unknown_name(&self, known: &BTreeSet<String>) -> Option<&str> {
        match self {
            Self::Operations(names) => names.iter().find(|name| !known.contains(*name)).map(String::as_str),
            Self::None | Self::Writes | Self::All => None,
        }
    }

    /// Returns true if the calls of this operation must be confirmed.
    pub(crate) fn is_required(&self, name: &str, is_write: bool) -> bool {
        match self {
            Self::None => false,
            Self::Writes => is_write,
            Self::All => true,
            Self::Operations(names) => names.contains(name),
        }
    }
}

/// Limits of an API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a call may take in all, with reading the files that it sends.
    pub call_timeout: Duration,
    /// Maximum size of the body of a request in bytes.
    pub max_request: usize,
    /// Maximum size of the document in bytes.
    pub max_document: usize,
    /// Maximum size of an answer in bytes.
    pub max_answer: usize,
    /// Maximum number of tools of one toolset.
    pub max_tools: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            call_timeout: Duration::from_secs(60),
            max_request: 16 << 20,
            max_document: 8 << 20,
            max_answer: 1 << 20,
            max_tools: 128,
        }
    }
}
