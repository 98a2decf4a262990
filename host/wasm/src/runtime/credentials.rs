//! Credentials of users that a component requests: their names, and the requests to token servers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AuthConfig, AuthCredential, AuthScheme, OAuth2Auth};
use hatchery_egress::{Egress, ToolAuthenticator, Url};

use crate::policy::{Grants, OutboundPolicy};
use crate::runtime::cache::sha256;

/// Maximum number of configurations of one component whose token servers are remembered.
const MAX_CONFIGS: usize = 32;

/// Gets the credentials of users for one component.
pub(crate) struct CredentialAccess {
    component: Arc<str>,
    egress: Arc<dyn Egress>,
    /// By the JSON of their configurations. Concurrent calls share one, which refreshes a token once.
    authenticators: Mutex<HashMap<String, Arc<ToolAuthenticator>>>,
}

impl CredentialAccess {
    /// Requests to token servers need the same grants as the component's requests. With `is_recorded` there are none.
    pub(crate) fn new(component: Arc<str>, grants: &Grants, is_recorded: bool) -> Self {
        let policy = if is_recorded {
            OutboundPolicy::default()
        } else {
            OutboundPolicy { network: grants.network.clone(), private_network: grants.private_network.clone() }
        };
        let egress = Arc::new(GrantedEgress { policy, key: format!("components.{component}.grants") });
        Self { component, egress, authenticators: Mutex::default() }
    }

    /// Returns the authenticator for a configuration, with the credentials of this component.
    ///
    /// # Errors
    /// If the configuration has an account of the host's machine, which a component cannot use.
    pub(crate) fn authenticator(&self, config: AuthConfig) -> Result<(String, Arc<ToolAuthenticator>), &'static str> {
        if config.raw_auth_credential.as_ref().is_some_and(|raw| raw.service_account.is_some()) {
            return Err("`rawAuthCredential.serviceAccount` is for tools of the host only");
        }
        // No component gets a credential that was granted to another one, or to an API of the operator.
        let mut key = format!("component:{}/{}", self.component, config.key());
        if let Some(servers) = oauth_servers(&config.auth_scheme) {
            key.push_str(&format!("/{servers}"));
        }
        let config = AuthConfig { credential_key: Some(key.clone()), exchanged_auth_credential: None, ..config };
        let json = serde_json::to_string(&config).map_err(|_| "it cannot be written as JSON")?;
        let mut authenticators = self.authenticators.lock_unpoisoned();
        if authenticators.len() >= MAX_CONFIGS && !authenticators.contains_key(&json) {
            authenticators.clear();
        }
        let created = || Arc::new(ToolAuthenticator::new(config, self.egress.clone()));
        Ok((key, authenticators.entry(json).or_insert_with(created).clone()))
    }
}

/// Returns a hash of the servers of an OAuth scheme, for the names of credentials: the code and the refresh token of a
/// user go to the servers that the user was asked for, even if a component names others later.
fn oauth_servers(scheme: &AuthScheme) -> Option<String> {
    let servers = match scheme {
        AuthScheme::OAuth2 { flows } => {
            let flow = flows.authorization_code.as_ref();
            [flow.and_then(|flow| flow.authorization_url.clone()), flow.map(|flow| flow.token_url.clone()), None]
        }
        AuthScheme::OpenIdConnect { configuration_url, authorization_endpoint, token_endpoint, .. } => {
            [authorization_endpoint.clone(), token_endpoint.clone(), configuration_url.clone()]
        }
        AuthScheme::ApiKey { .. } | AuthScheme::Http { .. } => return None,
    };
    Some(sha256(serde_json::json!(servers).to_string().as_bytes()))
}

/// Returns the part of a credential that requests of the component need. The refresh token and the client stay with the
/// host.
pub(crate) fn for_guest(credential: AuthCredential) -> AuthCredential {
    let oauth2 = credential.oauth2.map(|oauth2| OAuth2Auth {
        access_token: oauth2.access_token,
        expires_at: oauth2.expires_at,
        ..OAuth2Auth::default()
    });
    AuthCredential { oauth2, service_account: None, ..credential }
}

/// The grants of a component, for requests of the host on its behalf.
struct GrantedEgress {
    policy: OutboundPolicy,
    /// The settings that refusals name.
    key: String,
}

impl Egress for GrantedEgress {
    fn check_url(&self, url: &Url) -> Result<(), String> {
        self.policy.check_url(url.as_str(), &self.key)
    }

    fn check_address(&self, url: &Url, address: IpAddr) -> Result<(), String> {
        self.policy.check_address(url.as_str(), address, &self.key)
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{AuthKeyLocation, OAuthFlow, OAuthFlows, ServiceAccountAuth};

    use super::*;

    fn access() -> CredentialAccess {
        CredentialAccess::new("shop".into(), &Grants::default(), false)
    }

    fn config(name: &str) -> AuthConfig {
        let scheme = AuthScheme::ApiKey { location: AuthKeyLocation::Header, name: "X-Key".into() };
        AuthConfig { credential_key: Some(name.into()), ..AuthConfig::new(scheme, None) }
    }

    #[test]
    fn names_belong_to_the_component_and_equal_configurations_share_an_authenticator() {
        let access = access();
        let (key, first) = access.authenticator(config("key")).unwrap();
        assert_eq!(key, "component:shop/key");
        assert!(Arc::ptr_eq(&first, &access.authenticator(config("key")).unwrap().1));
        assert!(!Arc::ptr_eq(&first, &access.authenticator(config("other")).unwrap().1));
        for index in 0..2 * MAX_CONFIGS {
            access.authenticator(config(&index.to_string())).unwrap();
        }
        assert!(access.authenticators.lock_unpoisoned().len() <= MAX_CONFIGS);
    }

    #[test]
    fn the_tokens_of_one_server_are_not_those_of_another() {
        let (access, login) = (access(), "https://login.example");
        let oauth2 = |token_url: String| {
            let authorization_url = Some(format!("{login}/authorize"));
            let flow = OAuthFlow { authorization_url, token_url, ..OAuthFlow::default() };
            AuthScheme::OAuth2 { flows: OAuthFlows { authorization_code: Some(flow), ..OAuthFlows::default() } }
        };
        let open_id = |server: &str| AuthScheme::OpenIdConnect {
            configuration_url: Some(format!("{server}/configuration")),
            authorization_endpoint: None,
            token_endpoint: None,
            scopes: Vec::new(),
        };
        let key = |auth_scheme| access.authenticator(AuthConfig { auth_scheme, ..config("key") }).unwrap().0;
        let own = key(oauth2(format!("{login}/token")));
        assert!(own.starts_with("component:shop/key/"), "{own}");
        assert_eq!(key(oauth2(format!("{login}/token"))), own);
        assert_ne!(key(oauth2("https://evil.example/token".into())), own);
        assert_ne!(key(open_id(login)), key(open_id("https://evil.example")));
    }

    #[test]
    fn the_account_of_the_machine_is_refused_and_refresh_tokens_stay_with_the_host() {
        let account = ServiceAccountAuth { use_default_credential: true, ..ServiceAccountAuth::default() };
        let raw = AuthCredential { service_account: Some(account), ..AuthCredential::default() };
        let refused = AuthConfig { raw_auth_credential: Some(raw), ..config("key") };
        let reason = access().authenticator(refused).unwrap_err();
        assert_eq!(reason, "`rawAuthCredential.serviceAccount` is for tools of the host only");
        let granted = AuthCredential::oauth2(OAuth2Auth {
            client_secret: Some("secret".into()),
            access_token: Some("token".into()),
            refresh_token: Some("refresh".into()),
            expires_at: Some(9),
            ..OAuth2Auth::default()
        });
        let shown = serde_json::json!(for_guest(granted));
        assert_eq!(
            shown,
            serde_json::json!({"authType": "oauth2", "oauth2": {"accessToken": "token", "expiresAt": 9}})
        );
    }

    #[test]
    fn token_servers_need_the_grant_network() {
        let url = Url::parse("https://login.example/token").unwrap();
        let refusal = access().egress.check_url(&url).unwrap_err();
        assert!(refusal.contains("allow them by `components.shop.grants.network: [\"login.example\"]`"), "{refusal}");
        let grants = Grants { network: vec!["login.example".parse().unwrap()], ..Grants::default() };
        CredentialAccess::new("shop".into(), &grants, false).egress.check_url(&url).unwrap();
        CredentialAccess::new("shop".into(), &grants, true).egress.check_url(&url).unwrap_err();
    }
}
