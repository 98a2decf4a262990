//! Credentials of users that a component requests: their names, and the requests to token servers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{AuthConfig, AuthCredential, OAuth2Auth};
use hatchery_egress::{Egress, ToolAuthenticator, Url};

use crate::policy::{Grants, OutboundPolicy};

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
        let key = format!("component:{}/{}", self.component, config.key());
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
    use hatchery_core::{AuthKeyLocation, AuthScheme, ServiceAccountAuth};

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
