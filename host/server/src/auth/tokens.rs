//! Tokens (JSON Web Tokens) of an issuer.

use std::sync::Arc;
use std::time::Duration;

use hatchery::{OidcConfig, Role, TokenAlgorithm};
use hatchery_core::{ClientScope, IdKind};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode_header, get_current_timestamp};
use serde_json::{Map, Value};

use super::IdentifiedSender;
use super::jwks::{Jwks, KeyError};
use super::logins::LoginCredential;
use super::principal::{Client, ClientLimits, Principal};
use super::refusal::Refusal;

/// Longest token. Longer ones are not parsed.
const MAX_BYTES: usize = 16 << 10;

/// Verifies the tokens of an issuer.
pub(super) struct Tokens {
    keys: Jwks,
    config: OidcConfig,
    algorithms: Vec<Algorithm>,
    apps: Arc<[String]>,
    limits: ClientLimits,
}

type Claims = Map<String, Value>;

/// Returns true if a text has the three parts of a token.
pub(super) fn is_token(text: &str) -> bool {
    text.len() <= MAX_BYTES && text.matches('.').count() == 2
}

impl Tokens {
    /// Verifies tokens of clients with these limits.
    pub(super) fn new(config: &OidcConfig, limits: ClientLimits) -> Result<Self, String> {
        let algorithms = config.algorithms.iter().map(|algorithm| match algorithm {
            TokenAlgorithm::Rs256 => Algorithm::RS256,
            TokenAlgorithm::Es256 => Algorithm::ES256,
            TokenAlgorithm::EdDsa => Algorithm::EdDSA,
        });
        let (algorithms, apps) = (algorithms.collect(), config.apps.clone().into());
        let keys = Jwks::new(&config.jwks_url)?;
        Ok(Self { keys, config: config.clone(), algorithms, apps, limits })
    }

    /// Returns true if these are its settings.
    pub(super) fn has_settings(&self, config: &OidcConfig, limits: ClientLimits) -> bool {
        self.config == *config && self.limits == limits
    }

    /// Returns the owner of a token after verifying it.
    pub(super) async fn verify(self: &Arc<Self>, token: &str) -> Result<IdentifiedSender, Refusal> {
        let claims = self.claims(token).await?;
        let user = claims.get(&self.config.user_claim).and_then(Value::as_str).filter(|user| !user.trim().is_empty());
        let user = user.ok_or(Refusal::InvalidToken("it names no user"))?;
        let invalid = |_| Refusal::InvalidToken("the name of its user is too long, or has control characters");
        IdKind::User.check(user).map_err(invalid)?;
        if !self.config.users.is_empty() && !self.config.users.iter().any(|known| known == user) {
            return Err(Refusal::InvalidToken("its user is not in `server.auth.oidc.users`"));
        }
        if hatchery_a2a::is_reserved_user(user) || hatchery_mcp::is_reserved_user(user) {
            return Err(Refusal::InvalidToken("the name of its user is reserved for clients without credentials"));
        }
        let principal = match self.role(&claims)? {
            Role::Operate => Principal::Operator(format!("user {user}").into()),
            Role::Use => {
                let scope = ClientScope { user: Some(user.into()), apps: self.apps.clone() };
                Principal::Client(Arc::new(Client { name: format!("user {user}"), scope, limits: self.limits }))
            }
        };
        let expiry = claims.get("exp").and_then(Value::as_f64).unwrap_or_default() as u64;
        let expires_in = Some(Duration::from_secs(expiry.saturating_sub(get_current_timestamp())));
        let credential = LoginCredential::Token(principal.clone(), Arc::downgrade(self));
        Ok(IdentifiedSender { credential, principal, expires_in })
    }

    /// Returns the claims of a token, after a check of its signature, issuer, audience and times.
    async fn claims(&self, token: &str) -> Result<Claims, Refusal> {
        let header = decode_header(token).map_err(|_| Refusal::InvalidToken("its header or algorithm is unknown"))?;
        if !self.algorithms.contains(&header.alg) {
            return Err(Refusal::InvalidToken("its algorithm is not allowed"));
        }
        if header.crit.is_some() {
            return Err(Refusal::InvalidToken("it has critical extensions"));
        }
        let key = self.keys.find(header.kid.as_deref(), header.alg).await.map_err(|error| match error {
            KeyError::Unknown => Refusal::InvalidToken("its issuer has no such key"),
            KeyError::Unavailable => Refusal::IssuerUnavailable,
        })?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = self.config.clock_skew.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(&self.config.audience);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // The signature is checked first, so that the other reasons are about a token of the issuer.
        let token = jsonwebtoken::decode::<Claims>(token, &key, &validation).map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => Refusal::ExpiredToken,
            ErrorKind::InvalidSignature => Refusal::InvalidToken("its signature is wrong"),
            ErrorKind::InvalidIssuer => Refusal::InvalidToken("it is of another issuer"),
            ErrorKind::InvalidAudience => Refusal::InvalidToken("it is for another audience"),
            ErrorKind::ImmatureSignature => Refusal::InvalidToken("it is not valid yet"),
            ErrorKind::MissingRequiredClaim(_) => Refusal::InvalidToken("it lacks `exp`, `iss` or `aud`"),
            _ => Refusal::InvalidToken("it is malformed"),
        })?;
        Ok(token.claims)
    }

    fn role(&self, claims: &Claims) -> Result<Role, Refusal> {
        let Some(name) = &self.config.role_claim else { return Ok(Role::Use) };
        let claim = match name.strip_prefix('/') {
            None => claims.get(name),
            Some(path) => {
                let (first, rest) =
                    path.split_once('/').map_or((path, String::new()), |(first, rest)| (first, format!("/{rest}")));
                claims.get(first).and_then(|claim| claim.pointer(&rest))
            }
        };
        let has = |role: &str| match claim {
            Some(Value::String(text)) => text == role,
            Some(Value::Array(list)) => list.iter().any(|item| item == role),
            _ => false,
        };
        match (has("operate"), has("use")) {
            (true, _) => Ok(Role::Operate),
            (false, true) => Ok(Role::Use),
            (false, false) => Err(Refusal::NoRole),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_the_role() {
        let role = |claim: Option<&str>, claims: Value| {
            let config = OidcConfig { role_claim: claim.map(Into::into), ..OidcConfig::default() };
            let tokens = Tokens {
                keys: Jwks::new("http://localhost").unwrap(),
                config,
                algorithms: Vec::new(),
                apps: Vec::new().into(),
                limits: ClientLimits::default(),
            };
            tokens.role(claims.as_object().unwrap())
        };
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        assert_eq!(role(None, json!({"role": "operate"})), Ok(Role::Use));
        assert_eq!(role(Some("role"), json!({"role": "operate"})), Ok(Role::Operate));
        assert_eq!(role(Some("role"), json!({"role": "use"})), Ok(Role::Use));
        assert_eq!(role(Some("role"), json!({"role": ["a", "use", "operate"]})), Ok(Role::Operate));
        assert_eq!(role(Some("https://a.example/role"), json!({"https://a.example/role": "use"})), Ok(Role::Use));
        let nested = json!({"realm_access": {"roles": ["operate"]}});
        assert_eq!(role(Some("/realm_access/roles"), nested), Ok(Role::Operate));
        assert_eq!(role(Some("/role"), json!({"role": "use"})), Ok(Role::Use));
        for claims in [json!({}), json!({"role": "operator"}), json!({"role": true}), json!({"role": {"operate": 1}})] {
            assert_eq!(role(Some("role"), claims.clone()), Err(Refusal::NoRole), "{claims}");
        }
    }
}
