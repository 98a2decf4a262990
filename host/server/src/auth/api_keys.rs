//! API keys. Only their hashes are kept in memory.

use std::sync::Arc;

use hatchery::{ClientKeyConfig, Role, ServerAuthConfig};
use hatchery_core::ClientScope;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::principal::{Client, ClientLimits, Principal};

pub(super) type Hash = [u8; 32];

pub(super) struct ApiKeys(Vec<(Hash, Principal)>);

impl ApiKeys {
    /// Reads the keys. `default` is for those without their own limits.
    ///
    /// # Errors
    /// The problem, without the text of a key.
    pub(super) fn open(config: &ServerAuthConfig, default: ClientLimits) -> Result<Self, String> {
        let mut opened: Vec<(Hash, Principal)> = Vec::new();
        for key in &config.keys {
            let hash = key.digest()?;
            if opened.iter().any(|(other, _)| *other == hash) {
                return Err(format!(
                    "the API key `{}` is also the key of another name; each name needs its own key",
                    key.name
                ));
            }
            opened.push((hash, principal(key, default)));
        }
        Ok(Self(opened))
    }

    /// Returns the owner of the key with this hash. Takes a time that depends on neither the hash nor the keys.
    pub(super) fn find(&self, hash: &Hash) -> Option<Principal> {
        let mut found = None;
        for (known, principal) in &self.0 {
            if bool::from(known.ct_eq(hash)) {
                found = Some(principal);
            }
        }
        found.cloned()
    }
}

pub(super) fn hash(key: &str) -> Hash {
    Sha256::digest(key).into()
}

fn principal(key: &ClientKeyConfig, default: ClientLimits) -> Principal {
    let name = format!("key {}", key.name);
    match key.role {
        Role::Operate => Principal::Operator(name.into()),
        Role::Use => {
            let scope = ClientScope { user: key.user.clone().map(Into::into), apps: key.apps.clone().into() };
            let limits = ClientLimits {
                per_minute: key.requests_per_minute.unwrap_or(default.per_minute),
                concurrent: key.concurrent_requests.unwrap_or(default.concurrent),
            };
            Principal::Client(Arc::new(Client { name, scope, limits }))
        }
    }
}
