//! Settings of HTTP APIs whose operations are tools: `openapi`.

mod user;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_openapi::{
    ApiConfig as ApiSettings, ClientCredentials, ClientPlacement, Confirmation, Credentials, DocumentSource,
    KeyLocation, KeySource, Limits, Selection, ServiceAccount,
};
use hatchery_wasm::limits::units;
use hatchery_wasm::policy::{HostPattern, OutboundPolicy, PrivateEntry, entries_for};
use serde::Deserialize;

pub use self::user::{OpenIdConnectConfig, UserApiKeyConfig, UserAuthConfig, UserHttpScheme, UserOAuth2Config};

use super::a2a::is_url;
use super::value::{ValueConfig, settings};
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;

/// Token endpoint of Google Cloud, unless a credentials file names another one.
pub(super) const GOOGLE_TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// The scope of tokens for all of Google Cloud.
const GOOGLE_SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

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
    /// Base URL of requests, such as `https://api.example/v1`. Default: the first server of the document.
    pub base_url: Option<String>,
    /// Values of the variables in the URLs of the document's servers.
    pub server_variables: BTreeMap<String, String>,
    /// The credentials that the host adds to requests.
    pub auth: AuthConfig,
    /// Headers of every request.
    pub headers: BTreeMap<String, ValueConfig>,
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
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub connect_timeout: Option<Duration>,
    /// Timeout of a call. Default: 60 s.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub call_timeout: Option<Duration>,
    /// Maximum size of the body of a request. Default: 16 MiB.
    pub max_request: Option<ByteSize>,
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
    pub api_key: Option<ApiKeyConfig>,
    /// A token in the header `Authorization`.
    pub bearer: Option<ValueConfig>,
    /// A user name and a password in the header `Authorization`.
    pub basic: Option<BasicConfig>,
    /// Access tokens that a server grants to the host itself (client credentials).
    pub oauth2: Option<OAuth2Config>,
    /// Access tokens of Google Cloud.
    pub service_account: Option<ServiceAccountConfig>,
    /// Credentials of users, which are requested when an agent calls the API for a user first.
    pub user: Option<UserAuthConfig>,
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The location of the key in requests.
    #[serde(rename = "in")]
    pub location: ApiKeyLocation,
    /// The name of the header, of the parameter or of the cookie.
    pub name: String,
    /// The key.
    pub value: ValueConfig,
}

/// Place of an API key in requests.
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
    pub username: ValueConfig,
    pub password: ValueConfig,
}

/// A client of an OAuth 2.0 token server.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth2Config {
    /// Token endpoint.
    pub token_url: String,
    pub client_id: ValueConfig,
    pub client_secret: ValueConfig,
    /// Scopes of the tokens.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The audience of the tokens, if the server requires one.
    #[serde(default)]
    pub audience: Option<String>,
    /// Place of the client id and secret in the request. Default: `header`.
    #[serde(default)]
    pub client_in: OAuth2ClientPlacement,
}

/// Place of the client credentials in a token request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuth2ClientPlacement {
    #[default]
    Header,
    Body,
}

/// A credentials file of Google Cloud: its path, or its text.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServiceAccountConfig {
    pub file: Option<PathBuf>,
    pub json: Option<ValueConfig>,
    /// Scopes of the tokens. Default: all of Google Cloud.
    pub scopes: Vec<String>,
}

/// All operations, no operations, the operations that write, or the operations with these names.
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
        for api in self.apis.values_mut() {
            if !is_url(&api.document) {
                api.document = folder.join(&api.document).display().to_string();
            }
            if let Some(file) = api.auth.service_account.as_mut().and_then(|account| account.file.as_mut()) {
                *file = folder.join(&*file);
            }
        }
    }
}

impl ApiConfig {
    /// Returns the file with the document. `None` if it is at a URL.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        (!is_url(&self.document)).then(|| self.document.clone().into())
    }

    /// Returns the egress policy: the hosts of the operator's URLs, and the listed ones.
    ///
    /// # Errors
    /// If a URL has no host.
    pub(crate) fn policy(&self) -> Result<OutboundPolicy, String> {
        let (mut network, mut private_network) = (self.network.clone(), self.private_network.clone());
        let document = Some(self.document.as_str()).filter(|document| is_url(document));
        let own = [document, self.base_url.as_deref()].into_iter().flatten();
        for url in own.chain(self.auth.token_urls()) {
            let (own, private) = entries_for(url)?;
            network.push(own);
            private_network.extend(private);
        }
        Ok(OutboundPolicy { network, private_network })
    }

    /// Returns the settings of the API. `None` if they are invalid: reading the file reports that error.
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
                max_request: self.max_request.map_or(default.max_request, ByteSize::bytes),
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
        let oauth2 = self.oauth2.as_ref().map(|client| {
            Credentials::OAuth2(ClientCredentials {
                token_url: client.token_url.clone(),
                client_id: (&client.client_id).into(),
                client_secret: (&client.client_secret).into(),
                scopes: client.scopes.clone(),
                audience: client.audience.clone(),
                placement: client.client_in.into(),
            })
        });
        let google = self.service_account.as_ref().map(ServiceAccountConfig::credentials).transpose()?;
        let user = self.user.as_ref().map(UserAuthConfig::credentials).transpose()?;
        let mut all = [api_key, bearer, basic, oauth2, google, user].into_iter().flatten();
        match (all.next(), all.next()) {
            (Some(_), Some(_)) => Err("an API has one kind of credentials; remove the others".into()),
            (credentials, _) => Ok(credentials.unwrap_or_default()),
        }
    }

    /// Returns the URLs that requests for tokens go to.
    fn token_urls(&self) -> Vec<&str> {
        let client = self.oauth2.as_ref().map(|client| client.token_url.as_str());
        let google = self.service_account.as_ref().map(|_| GOOGLE_TOKEN_URL);
        let user = self.user.iter().flat_map(|user| user.urls().into_iter().map(|(_, url)| url));
        client.into_iter().chain(google).chain(user).collect()
    }

    /// Returns the variables of the environment that the credentials need, by key.
    pub(crate) fn variables(&self) -> Vec<(&'static str, &str)> {
        let values = [
            ("api_key", self.api_key.as_ref().map(|key| &key.value)),
            ("bearer", self.bearer.as_ref()),
            ("basic.username", self.basic.as_ref().map(|basic| &basic.username)),
            ("basic.password", self.basic.as_ref().map(|basic| &basic.password)),
            ("oauth2.client_id", self.oauth2.as_ref().map(|client| &client.client_id)),
            ("oauth2.client_secret", self.oauth2.as_ref().map(|client| &client.client_secret)),
            ("service_account.json", self.service_account.as_ref().and_then(|account| account.json.as_ref())),
        ];
        let own = values.into_iter().filter_map(|(key, value)| Some((key, value?.variable()?)));
        own.chain(self.user.iter().flat_map(UserAuthConfig::variables)).collect()
    }
}

impl From<OAuth2ClientPlacement> for ClientPlacement {
    fn from(placement: OAuth2ClientPlacement) -> Self {
        match placement {
            OAuth2ClientPlacement::Header => Self::Header,
            OAuth2ClientPlacement::Body => Self::Body,
        }
    }
}

impl ServiceAccountConfig {
    /// Returns the credentials.
    ///
    /// # Errors
    /// If there is not exactly one of file and text.
    pub(super) fn credentials(&self) -> Result<Credentials, String> {
        let key = match (&self.file, &self.json) {
            (Some(file), None) => KeySource::File(file.clone()),
            (None, Some(json)) => KeySource::Json(json.into()),
            (None, None) | (Some(_), Some(_)) => {
                return Err("service_account has either a `file` or a `json` from a variable".into());
            }
        };
        let scopes = if self.scopes.is_empty() { vec![GOOGLE_SCOPE.into()] } else { self.scopes.clone() };
        Ok(Credentials::Google(ServiceAccount { key, scopes }))
    }
}
