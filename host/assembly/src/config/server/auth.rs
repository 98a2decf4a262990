//! Authentication of the clients of the server: `server.auth`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hatchery_core::{IdKind, one_or_many};
use hatchery_wasm::limits::units;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// Minimum length of an API key in bytes. Shorter ones can be guessed.
const MIN_KEY_BYTES: usize = 16;

/// Maximum tolerance for clocks that differ.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The clients that may use the server.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerAuthConfig {
    /// API keys.
    pub keys: Vec<ClientKeyConfig>,
    /// Tokens of an issuer.
    pub oidc: Option<OidcConfig>,
    /// Maximum number of requests per minute of each key, and of each user with tokens; 0 means no limit. Operators
    /// have none.
    pub requests_per_minute: u32,
    /// Maximum number of concurrent requests of each key, and of each user with tokens; 0 means no limit. Operators
    /// have none.
    pub concurrent_requests: u32,
}

/// The rights of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Run apps, and read and change sessions, artifacts and memory of its users.
    #[default]
    Use,
    /// Everything: components, the developer UI, imports and evaluations too.
    Operate,
}

/// An API key: its hash, or the variable or file with its text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientKeyConfig {
    /// The name of the key in logs.
    pub name: String,
    /// The SHA-256 of the key, in hexadecimal.
    pub sha256: Option<String>,
    /// The environment variable with the key.
    pub from: Option<String>,
    /// The file with the key. A trailing line break is removed.
    pub file: Option<PathBuf>,
    /// The apps that it may use. In a pattern, `*` matches any text. Default: all.
    #[serde(deserialize_with = "one_or_many")]
    pub apps: Vec<String>,
    /// Default: `use`.
    pub role: Role,
    /// The user for whom it acts. Default: any.
    pub user: Option<String>,
    /// Maximum number of its requests per minute. Default: the number for all keys.
    pub requests_per_minute: Option<u32>,
    /// Maximum number of its concurrent requests. Default: the number for all keys.
    pub concurrent_requests: Option<u32>,
}

impl Default for ClientKeyConfig {
    fn default() -> Self {
        let apps = vec!["*".into()];
        let (name, role) = (String::new(), Role::Use);
        let (requests_per_minute, concurrent_requests) = (None, None);
        let (sha256, from, file, user) = (None, None, None, None);
        Self { name, sha256, from, file, apps, role, user, requests_per_minute, concurrent_requests }
    }
}

/// Tokens (JWT) of an issuer, such as an OpenID Connect provider. A token acts for one user.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OidcConfig {
    /// The claim `iss` of its tokens.
    pub issuer: String,
    /// Values of the claim `aud`, one of which a token must have.
    #[serde(deserialize_with = "one_or_many")]
    pub audience: Vec<String>,
    /// The URL of the issuer's public keys, a JSON Web Key Set.
    pub jwks_url: String,
    /// Default: all three.
    pub algorithms: Vec<TokenAlgorithm>,
    /// Tolerance for clocks that differ. Default: 1 min.
    #[serde(deserialize_with = "units::deserialize_duration")]
    pub clock_skew: Duration,
    /// The claim with the id of the user. Default: `sub`.
    pub user_claim: String,
    /// The users whose tokens are accepted, for issuers that issue tokens to everybody. Default: all.
    #[serde(deserialize_with = "one_or_many")]
    pub users: Vec<String>,
    /// The claim with the role, `use` or `operate`, or with a list that has one of them: its name, or a JSON pointer
    /// such as `/realm_access/roles`. Default: none, and all tokens have the role `use`.
    pub role_claim: Option<String>,
    /// The apps that tokens of the role `use` may use. Default: all.
    #[serde(deserialize_with = "one_or_many")]
    pub apps: Vec<String>,
}

impl Default for OidcConfig {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            audience: Vec::new(),
            jwks_url: String::new(),
            algorithms: vec![TokenAlgorithm::Rs256, TokenAlgorithm::Es256, TokenAlgorithm::EdDsa],
            clock_skew: Duration::from_secs(60),
            user_claim: "sub".into(),
            users: Vec::new(),
            role_claim: None,
            apps: vec!["*".into()],
        }
    }
}

/// A signature algorithm with public keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum TokenAlgorithm {
    #[serde(rename = "RS256")]
    Rs256,
    #[serde(rename = "ES256")]
    Es256,
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl ServerAuthConfig {
    /// Checks names, roles and URLs. Reads no key.
    ///
    /// # Errors
    /// The problem, with the key in the file.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.keys.is_empty() && self.oidc.is_none() {
            let message = "server.auth has neither `keys` nor `oidc`, so no client could use the server; add one of them, or leave it out";
            return Err(message.into());
        }
        let mut names = BTreeSet::new();
        for (index, key) in self.keys.iter().enumerate() {
            if key.name.trim().is_empty() || key.name.chars().any(char::is_control) {
                return Err(format!("server.auth.keys[{index}]: `name` is missing; it identifies the key in logs"));
            }
            key.check().map_err(|problem| format!("server.auth.keys[{index}] (`{}`): {problem}", key.name))?;
            if !names.insert(&key.name) {
                return Err(format!("server.auth.keys: two keys have the name `{}`", key.name));
            }
        }
        let oidc = self.oidc.as_ref().map_or(Ok(()), OidcConfig::check);
        oidc.map_err(|problem| format!("server.auth.oidc: {problem}"))
    }

    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for file in self.keys.iter_mut().filter_map(|key| key.file.as_mut()) {
            *file = folder.join(&*file);
        }
    }
}

impl ClientKeyConfig {
    fn check(&self) -> Result<(), String> {
        match [self.sha256.is_some(), self.from.is_some(), self.file.is_some()].iter().filter(|is_set| **is_set).count()
        {
            1 => {}
            _ => return Err("set one of `sha256`, `from` (an environment variable) and `file`".into()),
        }
        if self.sha256.as_ref().is_some_and(|hash| parse_sha256(hash).is_none()) {
            return Err(
                "`sha256` must have 64 hexadecimal digits, as `printf %s \"$KEY\" | sha256sum` prints them".into()
            );
        }
        if self.apps.is_empty() {
            return Err("`apps` is empty, so the key could use nothing; name apps, or leave it out".into());
        }
        if let Some(user) = &self.user {
            let message = "`user` is not the id of a user: it has 1 to 256 bytes and no control characters";
            IdKind::User.check(user).ok().filter(|()| !user.trim().is_empty()).ok_or(message)?;
        }
        if self.role == Role::Operate && (self.user.is_some() || !self.apps.iter().any(|app| app == "*")) {
            return Err(
                "a key of the role `operate` may use every app for every user; leave out `apps` and `user`".into()
            );
        }
        Ok(())
    }

    /// Returns the SHA-256 of the key, which it reads if the configuration does not have it.
    ///
    /// # Errors
    /// The problem, without the text of the key.
    pub fn digest(&self) -> Result<[u8; 32], String> {
        let name = &self.name;
        let (text, place) = match (&self.sha256, &self.from, &self.file) {
            (Some(hash), _, _) => {
                return parse_sha256(hash).ok_or_else(|| format!("the hash of the API key `{name}` is damaged"));
            }
            (None, Some(variable), _) => {
                let text = std::env::var(variable).map_err(|_| {
                    format!(
                        "the API key `{name}` is missing: the environment variable `{variable}` is not set, or is not \
                         valid UTF-8"
                    )
                })?;
                (text, format!("the environment variable `{variable}`"))
            }
            (None, None, file) => {
                let file = file.clone().unwrap_or_default();
                let text = fs::read_to_string(&file)
                    .map_err(|error| format!("the API key `{name}` cannot be read: {}: {error}", file.display()))?;
                (text, file.display().to_string())
            }
        };
        let key = text.trim_end_matches(['\r', '\n']);
        if key.len() < MIN_KEY_BYTES {
            return Err(format!(
                "the API key `{name}` in {place} has fewer than {MIN_KEY_BYTES} characters, so it could be guessed; make one with \
                 `openssl rand -hex 32`"
            ));
        }
        Ok(Sha256::digest(key).into())
    }

    /// Returns the rights of the key in one line.
    pub(crate) fn summary(&self) -> String {
        let role = match self.role {
            Role::Use => "use",
            Role::Operate => "operate",
        };
        let source = match (&self.from, &self.file) {
            (Some(variable), _) => format!(", from {variable}"),
            (None, Some(file)) => format!(", from {}", file.display()),
            (None, None) => String::new(),
        };
        let user = self.user.as_ref().map(|user| format!(" as the user {user}")).unwrap_or_default();
        format!("{role} {}{user}{source}", self.apps.join(", "))
    }
}

impl OidcConfig {
    fn check(&self) -> Result<(), String> {
        if self.issuer.is_empty() {
            return Err("`issuer` is missing: the claim `iss` of its tokens".into());
        }
        if self.audience.is_empty() || self.audience.iter().any(String::is_empty) {
            let message = "`audience` is missing, or has an empty entry: without it, tokens for any other service would be accepted";
            return Err(message.into());
        }
        if !is_confidential(&self.jwks_url) {
            return Err(
                "`jwks_url` must be an https:// URL without a user name, or an http:// one of this machine".into()
            );
        }
        if self.algorithms.is_empty() {
            return Err("`algorithms` is empty, so no token could be accepted".into());
        }
        if self.clock_skew > MAX_CLOCK_SKEW {
            return Err("`clock_skew` is at most 5 min".into());
        }
        if self.user_claim.is_empty() {
            return Err("`user_claim` is empty; leave it out for `sub`".into());
        }
        if self.apps.is_empty() {
            return Err("`apps` is empty, so tokens could use nothing; name apps, or leave it out".into());
        }
        Ok(())
    }
}

/// Returns true for a URL whose response cannot be replaced on the network.
fn is_confidential(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '\\', '?', '#']).next().unwrap_or_default();
    // In `http://localhost:80@host`, the host is the second one.
    if authority.is_empty() || authority.contains('@') {
        return false;
    }
    if scheme == "https" {
        return true;
    }
    if scheme != "http" {
        return false;
    }
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

fn parse_sha256(text: &str) -> Option<[u8; 32]> {
    // The parser of numbers would accept signs.
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(bytes)
}
