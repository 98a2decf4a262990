//! Logins of browsers: random ids in cookies, which only this process knows.

use std::collections::HashMap;
use std::sync::{Mutex, Weak};
use std::time::{Duration, Instant};

use axum::http::HeaderValue;
use hatchery::{BasePath, ServerConfig};
use hatchery_core::sync::MutexExt;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::api_keys::Hash;
use super::principal::Principal;
use super::tokens::Tokens;

/// The name of the cookie.
pub(crate) const COOKIE: &str = "hatchery_login";

/// Most logins at a time. The one that would end first makes room.
const MAX_LOGINS: usize = 256;

/// The browsers that are logged in. Ids are kept as hashes, so that looking one up takes the same time for all of them.
#[derive(Default)]
pub(super) struct Logins(Mutex<HashMap<Hash, Login>>);

struct Login {
    credential: LoginCredential,
    end: Instant,
}

/// The credential of a login.
#[derive(Debug, Clone)]
pub(super) enum LoginCredential {
    /// An API key, which may be withdrawn before the login ends.
    Key(Hash),
    /// A token, by its owner and its verifier. It becomes invalid once tokens are verified with other settings.
    Token(Principal, Weak<Tokens>),
}

impl Logins {
    /// Adds a login, and returns its id.
    pub(super) fn add(&self, credential: LoginCredential, end: Instant) -> String {
        let id = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut logins = self.0.lock_unpoisoned();
        let now = Instant::now();
        logins.retain(|_, login| login.end > now);
        if logins.len() >= MAX_LOGINS
            && let Some(first) = logins.iter().min_by_key(|(_, login)| login.end).map(|(hash, _)| *hash)
        {
            logins.remove(&first);
        }
        logins.insert(hash(&id), Login { credential, end });
        id
    }

    /// Returns the credential of a login. `None` if it has ended.
    pub(super) fn find(&self, id: &str) -> Option<LoginCredential> {
        let logins = self.0.lock_unpoisoned();
        logins.get(&hash(id)).filter(|login| login.end > Instant::now()).map(|login| login.credential.clone())
    }

    pub(super) fn remove(&self, id: &str) {
        self.0.lock_unpoisoned().remove(&hash(id));
    }
}

fn hash(id: &str) -> Hash {
    Sha256::digest(id).into()
}

/// Returns the cookie of a login. Scripts cannot read it, pages of other sites cannot send it, and servers below other
/// base paths do not receive it.
pub(crate) fn cookie(id: &str, lifetime: Duration, is_secure: bool, config: &ServerConfig) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let (seconds, path) = (lifetime.as_secs(), path(config));
    HeaderValue::try_from(format!("{COOKIE}={id}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}"))
        .ok()
}

/// Returns the cookie that replaces the cookie of a login that has ended.
pub(crate) fn cleared_cookie(config: &ServerConfig) -> Option<HeaderValue> {
    cookie("", Duration::ZERO, false, config)
}

fn path(config: &ServerConfig) -> &str {
    config.base_path.as_ref().map_or("/", BasePath::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operator(name: &str) -> LoginCredential {
        LoginCredential::Token(Principal::Operator(name.into()), Weak::new())
    }

    #[test]
    fn a_login_is_valid_until_its_end_or_its_removal() {
        let (logins, now) = (Logins::default(), Instant::now());
        let (id, ended) = (logins.add(operator("a"), now + MAX), logins.add(operator("b"), now));
        assert_eq!(id.len(), 64);
        assert!(matches!(logins.find(&id), Some(LoginCredential::Token(principal, _)) if principal.name() == "a"));
        assert!(logins.find(&ended).is_none() && logins.find("").is_none());
        logins.remove(&id);
        assert!(logins.find(&id).is_none());
    }

    #[test]
    fn the_login_that_would_end_first_makes_room() {
        let (logins, now) = (Logins::default(), Instant::now());
        let ids: Vec<_> =
            (0..=MAX_LOGINS as u64).map(|n| logins.add(operator("a"), now + MAX + Duration::from_secs(n))).collect();
        assert!(logins.find(&ids[0]).is_none() && logins.find(&ids[1]).is_some());
        assert_eq!(logins.0.lock_unpoisoned().len(), MAX_LOGINS);
    }

    const MAX: Duration = Duration::from_secs(3600);
}
