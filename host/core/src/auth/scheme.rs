//! Security schemes, in the JSON of OpenAPI that ADK uses.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The authentication scheme of a service, as in OpenAPI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum AuthScheme {
    #[serde(rename = "apiKey")]
    ApiKey {
        /// The location of the key in requests.
        #[serde(rename = "in", alias = "in_")]
        location: AuthKeyLocation,
        /// The name of the header, of the parameter or of the cookie.
        name: String,
    },
    /// The header `Authorization`.
    #[serde(rename = "http")]
    Http {
        /// `basic` or `bearer`.
        scheme: String,
    },
    /// A token of an OAuth 2.0 server.
    #[serde(rename = "oauth2")]
    OAuth2 {
        /// The flows by which a token is granted.
        flows: OAuthFlows,
    },
    /// A token of an OpenID provider.
    #[serde(rename = "openIdConnect")]
    OpenIdConnect {
        /// The URL of the provider's configuration.
        #[serde(default, rename = "openIdConnectUrl", skip_serializing_if = "Option::is_none")]
        configuration_url: Option<String>,
        /// Authorization endpoint. `None` if it comes from the OpenID configuration.
        #[serde(default, alias = "authorizationEndpoint", skip_serializing_if = "Option::is_none")]
        authorization_endpoint: Option<String>,
        /// Token endpoint. `None` if it comes from the OpenID configuration.
        #[serde(default, alias = "tokenEndpoint", skip_serializing_if = "Option::is_none")]
        token_endpoint: Option<String>,
        /// The scopes to request.
        #[serde(default)]
        scopes: Vec<String>,
    },
}

/// Place of an API key in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AuthKeyLocation {
    Header,
    /// In the query of the URL.
    Query,
    Cookie,
}

/// The ways in which a server grants tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlows {
    /// A user logs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_code: Option<OAuthFlow>,
    /// The host uses its own id and secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_credentials: Option<OAuthFlow>,
}

/// Endpoints and scopes of one OAuth flow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlow {
    /// Authorization endpoint, where users log in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authorization_url: Option<String>,
    /// Token endpoint.
    pub token_url: String,
    /// The scopes of the tokens, with descriptions.
    #[serde(default)]
    pub scopes: BTreeMap<String, String>,
}

impl AuthScheme {
    /// Returns the `type` in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ApiKey { .. } => "apiKey",
            Self::Http { .. } => "http",
            Self::OAuth2 { .. } => "oauth2",
            Self::OpenIdConnect { .. } => "openIdConnect",
        }
    }
}
