//! Settings of HTTP APIs whose operations are tools: `openapi`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_openapi::{
    ApiConfig as ApiSettings, Confirmation, Credentials, DocumentSource, KeyLocation, Limits, Selection,
};
use hatchery_wasm::limits::units;
use hatchery_wasm::policy::{HostPattern, OutboundPolicy, PrivateEntry, entries_for};
use serde::Deserialize;

use super::a2a::is_url;
use super::value::{ConfigValue, settings};
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;

/// HTTP APIs with an OpenAPI document.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenApiConfig {
    /// APIs by name. Agents refer to them by these names.
    pub apis: BTreeMap<String, ApiConfig>,
}

/// An API whose operations agents use.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApiConfig {
    /// Its OpenAPI document, version 3.0 or 3.1: a URL, or a file in JSON or YAML.
    pub document: String,
    /// What all requests begin with, such as `https://api.example/v1`. Default: the first server of the document.
    pub base_url: Option<String>,
    /// Values of the variables in the URLs of the document's servers.
    pub server_variables: BTreeMap<String, String>,
    /// The credentials that the host adds to requests.
    pub auth: AuthConfig,
    /// Headers of every request.
    pub headers: BTreeMap<String, ConfigValue>,
    /// The operations that agents may use, by name. Default: all.
    pub tools: Option<BTreeSet<String>>,
    /// The operations that agents may use, by tag. Default: all.
    pub tags: Option<BTreeSet<String>>,
    /// The operations whose calls a person must confirm: `true`, `writes`, or their names.
    pub require_confirmation: ApiConfirmation,
    /// Other hosts that the document may name, as in the grant `network`.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses outside of the public internet, as in the grant `private_network`.
    pub private_network: Vec<PrivateEntry>,
    /// Timeout of connecting. Default: 10 s.
    #[serde(deserialize_with = "units::duration")]
    pub connect_timeout: Option<Duration>,
    /// Timeout of a call. Default: 60 s.
    #[serde(deserialize_with = "units::duration")]
    pub call_timeout: Option<Duration>,
    /// Maximum size of the document. Default: 8 MiB.
    pub max_document: Option<ByteSize>,
    /// Maximum size of an answer. Default: 1 MiB.
    pub max_answer: Option<ByteSize>,
    /// Maximum number of tools of one toolset. Default: 128.
    pub max_tools: Option<usize>,
    /// The reason why the API is not used. It cannot be set in the file.
    #[serde(skip)]
    pub refusal: Option<String>,
}

/// Credentials: at most one of these.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthConfig {
    /// A key.
    pub api_key: Option<ApiKeyConfig>,
    /// A token in the header `Authorization`.
    pub bearer: Option<ConfigValue>,
    /// A user name and a password in the header `Authorization`.
    pub basic: Option<BasicConfig>,
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// Where it is in requests.
    #[serde(rename = "in")]
    pub location: ApiKeyLocation,
    /// The name of the header, of the parameter or of the cookie.
    pub name: String,
    /// The key.
    pub value: ConfigValue,
}

/// Where an API key is in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiKeyLocation {
    Header,
    Query,
    Cookie,
}

/// A user name and a password.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    pub username: ConfigValue,
    pub password: ConfigValue,
}

/// All operations or none, those that write, or those of these names.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum ApiConfirmation {
    All(bool),
    Kind(ApiConfirmationKind),
    Operations(BTreeSet<String>),
}

/// A kind of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiConfirmationKind {
    /// Those with other methods than GET, HEAD and OPTIONS.
    Writes,
}

impl Default for ApiConfirmation {
    fn default() -> Self {
        Self::All(false)
    }
}

impl From<&ApiConfirmation> for Confirmation {
    fn from(config: &ApiConfirmation) -> Self {
        match config {
            ApiConfirmation::All(false) => Self::None,
            ApiConfirmation::All(true) => Self::All,
            ApiConfirmation::Kind(ApiConfirmationKind::Writes) => Self::Writes,
            ApiConfirmation::Operations(names) => Self::Operations(names.clone()),
        }
    }
}

impl OpenApiConfig {
    /// Checks the names, documents and credentials of APIs.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self) -> Result<(), String> {
        self.apis.iter().try_for_each(|(name, api)| {
            let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
                return Err(format!(
                    "openapi.apis: `{}` is not a valid name; use up to 64 letters, digits, `-` and `_`",
                    name.escape_debug()
                ));
            }
            if api.document.trim().is_empty() {
                return Err(format!(
                    "openapi.apis.{name}: `document` is missing: the URL of an OpenAPI document, or a file"
                ));
            }
            if api.base_url.as_deref().is_some_and(|url| !is_url(url)) {
                return Err(format!("openapi.apis.{name}.base_url must begin with http:// or https://"));
            }
            api.auth.credentials().map(drop).map_err(|reason| format!("openapi.apis.{name}.auth: {reason}"))?;
            api.policy().map(drop).map_err(|reason| format!("openapi.apis.{name}: {reason}"))
        })
    }

    /// Resolves the paths of documents against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for api in self.apis.values_mut().filter(|api| !is_url(&api.document)) {
            api.document = folder.join(&api.document).display().to_string();
        }
    }
}

impl ApiConfig {
    /// Returns the file with the document. `None` if it is at a URL.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        (!is_url(&self.document)).then(|| self.document.clone().into())
    }

    /// Returns where requests may go: to the hosts of the URLs that the operator has written down, and to those that are
    /// listed.
    ///
    /// # Errors
    /// If a URL has no host.
    pub(crate) fn policy(&self) -> Result<OutboundPolicy, String> {
        let (mut network, mut private_network) = (self.network.clone(), self.private_network.clone());
        let document = Some(&self.document).filter(|document| is_url(document));
        for url in document.into_iter().chain(&self.base_url) {
            let (own, private) = entries_for(url)?;
            network.push(own);
            private_network.extend(private);
        }
        Ok(OutboundPolicy { network, private_network })
    }

    /// Returns the settings of the API. `None` if they are invalid, which is an error when the file is read.
    pub(crate) fn settings(&self, egress: Arc<HostEgress>) -> Option<ApiSettings> {
        let default = Limits::default();
        Some(ApiSettings {
            document: self.file().map_or_else(|| DocumentSource::Url(self.document.clone()), DocumentSource::File),
            base_url: self.base_url.clone(),
            server_variables: self.server_variables.clone(),
            credentials: self.auth.credentials().ok()?,
            headers: settings(&self.headers),
            selection: Selection { names: self.tools.clone(), tags: self.tags.clone() },
            confirmation: (&self.require_confirmation).into(),
            egress,
            limits: Limits {
                connect_timeout: self.connect_timeout.unwrap_or(default.connect_timeout),
                call_timeout: self.call_timeout.unwrap_or(default.call_timeout),
                max_document: self.max_document.map_or(default.max_document, ByteSize::bytes),
                max_answer: self.max_answer.map_or(default.max_answer, ByteSize::bytes),
                max_tools: self.max_tools.unwrap_or(default.max_tools),
            },
        })
    }
}

impl AuthConfig {
    /// Returns the credentials.
    ///
    /// # Errors
    /// If there are several.
    pub(super) fn credentials(&self) -> Result<Credentials, String> {
        let api_key = self.api_key.as_ref().map(|key| Credentials::ApiKey {
            location: match key.location {
                ApiKeyLocation::Header => KeyLocation::Header,
                ApiKeyLocation::Query => KeyLocation::Query,
                ApiKeyLocation::Cookie => KeyLocation::Cookie,
            },
            name: key.name.clone(),
            value: (&key.value).into(),
        });
        let bearer = self.bearer.as_ref().map(|token| Credentials::Bearer(token.into()));
        let basic = self
            .basic
            .as_ref()
            .map(|basic| Credentials::Basic { username: (&basic.username).into(), password: (&basic.password).into() });
        let mut all = [api_key, bearer, basic].into_iter().flatten();
        match (all.next(), all.next()) {
            (Some(_), Some(_)) => Err("an API has one kind of credentials; remove the others".into()),
            (credentials, _) => Ok(credentials.unwrap_or_default()),
        }
    }

    /// Returns the variables of the environment that the credentials need, by key.
    pub(crate) fn variables(&self) -> Vec<(&'static str, &str)> {
        let values = [
            ("api_key", self.api_key.as_ref().map(|key| &key.value)),
            ("bearer", self.bearer.as_ref()),
            ("basic.username", self.basic.as_ref().map(|basic| &basic.username)),
            ("basic.password", self.basic.as_ref().map(|basic| &basic.password)),
        ];
        values.into_iter().filter_map(|(key, value)| Some((key, value?.variable()?))).collect()
    }
}
