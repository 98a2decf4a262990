//! The endpoints of OAuth servers and OpenID providers.

use std::sync::Arc;

use hatchery_core::{AuthScheme, OAuthFlow};
use reqwest::Url;
use serde::Deserialize;

use super::{AuthError, TIMEOUTS, server_url, within_time};
use crate::{Egress, client, describe, read_body, refusal};

/// Maximum size of the answer of a server in bytes.
pub(super) const MAX_ANSWER: usize = 64 << 10;

/// URLs of the authorization endpoint, where users log in, and of the token endpoint.
#[derive(Debug)]
pub(super) struct Endpoints {
    pub(super) authorization: Url,
    pub(super) token: Url,
    pub(super) scopes: Vec<String>,
}

/// The part of a provider's configuration that is used.
#[derive(Deserialize)]
struct ProviderConfiguration {
    authorization_endpoint: String,
    token_endpoint: String,
}

impl Endpoints {
    /// Returns the endpoints of a scheme. The configuration of a provider is requested if it is needed.
    pub(super) async fn discover(scheme: &AuthScheme, egress: &Arc<dyn Egress>) -> Result<Self, AuthError> {
        let (authorization, token, scopes) = match scheme {
            AuthScheme::OAuth2 { flows } => {
                let unset = AuthError::Setting { setting: "flows", reason: "it has no `authorizationCode`" };
                let OAuthFlow { authorization_url, token_url, scopes } =
                    flows.authorization_code.as_ref().ok_or(unset)?;
                let authorization = authorization_url.clone().unwrap_or_default();
                (authorization, token_url.clone(), scopes.keys().cloned().collect())
            }
            AuthScheme::OpenIdConnect { configuration_url, authorization_endpoint, token_endpoint, scopes } => {
                let (authorization, token) = match (authorization_endpoint, token_endpoint, configuration_url) {
                    (Some(authorization), Some(token), _) => (authorization.clone(), token.clone()),
                    (_, _, Some(url)) => {
                        let url = server_url("openIdConnectUrl", url)?;
                        let found = within_time(&url, discover(&url, egress)).await?;
                        (found.authorization_endpoint, found.token_endpoint)
                    }
                    (_, _, None) => {
                        let reason = "it is missing, and so is one of the endpoints";
                        return Err(AuthError::Setting { setting: "openIdConnectUrl", reason });
                    }
                };
                (authorization, token, scopes.clone())
            }
            AuthScheme::ApiKey { .. } | AuthScheme::Http { .. } => {
                return Err(AuthError::Setting { setting: "authScheme", reason: "it has no OAuth server" });
            }
        };
        Ok(Self {
            authorization: server_url("authorizationUrl", &authorization)?,
            token: server_url("tokenUrl", &token)?,
            scopes,
        })
    }
}

async fn discover(url: &Url, egress: &Arc<dyn Egress>) -> Result<ProviderConfiguration, AuthError> {
    let failed = |reason: String| AuthError::Server { host: host(url), reason };
    let request = client(egress, url, TIMEOUTS).map_err(AuthError::Egress)?.get(url.clone());
    let response = request.send().await.map_err(|error| match refusal(&error) {
        Some(reason) => AuthError::Egress(reason),
        None => failed(describe(error)),
    })?;
    if !response.status().is_success() {
        return Err(failed(format!("its configuration has the status {}", response.status())));
    }
    let body = read_body(response, MAX_ANSWER).await.map_err(|error| failed(error.to_string()))?;
    serde_json::from_slice(&body).map_err(|error| failed(format!("its configuration is not usable: {error}")))
}

pub(super) fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}
