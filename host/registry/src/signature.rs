//! Minisign signatures of components, and the policy for verifying them.
//!
//! The bytes of the component are signed, so `minisign -V` verifies a pulled file with its signature file. The
//! trusted comment has the file name and the version: `file:dice.wasm`, `version:1.0`. A signature is only valid for a
//! component of that name. The legacy format of minisign before 2020, which does not sign a hash, is not accepted.

mod comment;
mod expected_identity;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign::{SecretKey, SecretKeyBox};
use minisign_verify::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

use crate::error::RegistryError;
use crate::file;
use comment::Comment;
pub use expected_identity::ExpectedIdentity;

/// The environment variable with the password of an encrypted signing key.
pub const PASSWORD_VARIABLE: &str = "HATCHERY_SIGNING_PASSWORD";

/// The id of a key pair in the format of minisign: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId(u64);

impl KeyId {
    /// Decodes the id of a public key or a signature. Both start with two bytes for the algorithm, followed by the id.
    fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim()).ok()?;
        Some(Self(u64::from_le_bytes(bytes.get(2..10)?.try_into().ok()?)))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016X}", self.0)
    }
}

impl From<KeyId> for String {
    fn from(id: KeyId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for KeyId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // The parser of numbers would accept a sign.
        let is_id = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = is_id.then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| format!("`{text}` is not a key id; a key id has 16 hexadecimal digits"))
    }
}

/// A public key whose signatures are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TrustedKey {
    id: KeyId,
    key: PublicKey,
}

impl TrustedKey {
    /// Returns the id of the key pair.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

impl FromStr for TrustedKey {
    type Err = RegistryError;

    /// Parses the base64 line of a minisign public key, or the complete text of a key file.
    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        let key = KeyId::from_base64(line).zip(PublicKey::from_base64(line).ok());
        key.map(|(id, key)| Self { id, key }).ok_or_else(|| RegistryError::InvalidKey {
            origin: line.to_owned(),
            reason: "not a minisign public key; use the line of `minisign.pub` that starts with RW".to_owned(),
        })
    }
}

impl TryFrom<String> for TrustedKey {
    type Error = RegistryError;

    fn try_from(text: String) -> Result<Self, RegistryError> {
        text.parse()
    }
}

/// The treatment of a component without an accepted signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignaturePolicy {
    /// Signatures are stored, but not checked.
    Off,
    /// The component is used with a warning. An invalid signature of a trusted key is an error nevertheless.
    #[default]
    Warn,
    /// The component is rejected.
    Require,
}

impl FromStr for SignaturePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "warn" => Ok(Self::Warn),
            "require" => Ok(Self::Require),
            _ => Err(format!("`{text}` is not `off`, `warn` or `require`")),
        }
    }
}

/// Verifies signatures by a policy, trusted keys and the expected identities of single components.
#[derive(Debug, Clone, Default)]
pub struct SignatureVerifier {
    policy: SignaturePolicy,
    keys: Vec<TrustedKey>,
    identities: BTreeMap<String, ExpectedIdentity>,
}

/// The component that a signature must name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignatureSubject<'a> {
    /// The name of the component, which is the file name without `.wasm`.
    pub(crate) name: &'a str,
    /// The requested version; `None` if any version is accepted.
    pub(crate) version: Option<&'a str>,
}

/// The result of verifying a signature.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SignatureStatus {
    /// A trusted key has signed the bytes.
    Verified(KeyId),
    /// There is no accepted signature, for this reason.
    Unverified(String),
    /// The policy does not require a check.
    NotChecked,
}

impl SignatureStatus {
    /// Returns the key of a verified signature.
    pub(crate) fn signer(&self) -> Option<KeyId> {
        match self {
            Self::Verified(id) => Some(*id),
            Self::Unverified(_) | Self::NotChecked => None,
        }
    }
}

impl SignatureVerifier {
    /// Creates a verifier with a policy and trusted keys.
    pub fn new(policy: SignaturePolicy, keys: Vec<TrustedKey>) -> Self {
        Self { policy, keys, identities: BTreeMap::new() }
    }

    /// Sets the expected identities of components by name.
    #[must_use]
    pub fn with_identities(self, identities: BTreeMap<String, ExpectedIdentity>) -> Self {
        Self { identities, ..self }
    }

    /// Checks the configuration.
    ///
    /// # Errors
    /// If signatures are required but no key is trusted, or a component requires a signature by a key that is not
    /// trusted.
    pub fn check(&self) -> Result<(), RegistryError> {
        let is_trusted = |id: &KeyId| self.keys.iter().any(|key| key.id == *id);
        for (name, identity) in &self.identities {
            if let Some(id) = identity.signed_by.filter(|id| !is_trusted(id)) {
                return Err(RegistryError::UntrustedSigner { name: name.clone(), id });
            }
        }
        match self.policy {
            SignaturePolicy::Require if self.keys.is_empty() => Err(RegistryError::NoTrustedKeys),
            _ => Ok(()),
        }
    }

    /// Returns true if components are checked when they are loaded. With the policy `warn`, they are only checked if a
    /// key is trusted.
    pub fn checks_loaded_components(&self) -> bool {
        !self.identities.is_empty() || self.policy_requires_check()
    }

    fn policy_requires_check(&self) -> bool {
        match self.policy {
            SignaturePolicy::Off => false,
            SignaturePolicy::Warn => !self.keys.is_empty(),
            SignaturePolicy::Require => true,
        }
    }

    /// Checks a component before it is loaded, with the signature file next to it. Returns a warning for the operator,
    /// if any. Hashes all bytes and reads a file, so it must not be called on async threads.
    ///
    /// # Errors
    /// If a required signature is missing or not accepted, or a signature of a trusted key is invalid.
    pub fn check_file(&self, path: &Path, bytes: &[u8]) -> Result<Option<String>, RegistryError> {
        if !self.checks_loaded_components() {
            return Ok(None);
        }
        let signature_path = signature_path(path);
        let signature = match std::fs::read_to_string(&signature_path) {
            Ok(signature) => Some(signature),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RegistryError::Read { path: signature_path, source }),
        };
        self.check_signed(path, bytes, signature.as_deref())
    }

    /// Checks a file as [`SignatureVerifier::check_file`] does, with the signature as an argument.
    ///
    /// # Errors
    /// See [`SignatureVerifier::check_file`].
    pub fn check_signed(
        &self,
        path: &Path,
        bytes: &[u8],
        signature: Option<&str>,
    ) -> Result<Option<String>, RegistryError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !self.policy_requires_check() && !self.identities.contains_key(&*name) {
            return Ok(None);
        }
        let subject = SignatureSubject { name: &name, version: None };
        Ok(match self.verify(&path.display().to_string(), subject, bytes, signature)? {
            SignatureStatus::Unverified(warning) => Some(warning),
            SignatureStatus::Verified(_) | SignatureStatus::NotChecked => None,
        })
    }

    /// Verifies that the bytes of `origin` are the component `subject`.
    pub(crate) fn verify(
        &self,
        origin: &str,
        subject: SignatureSubject<'_>,
        bytes: &[u8],
        signature: Option<&str>,
    ) -> Result<SignatureStatus, RegistryError> {
        let identity = self.identities.get(subject.name).cloned().unwrap_or_default();
        identity.check_bytes(origin, subject.name, bytes)?;
        let unverified = |problem| self.reject_or_warn(&identity, origin, problem);
        if self.policy == SignaturePolicy::Off && identity.signed_by.is_none() {
            return Ok(SignatureStatus::NotChecked);
        }
        let Some(text) = signature else { return unverified(SignatureProblem::unsigned()) };
        let id = text.lines().nth(1).and_then(KeyId::from_base64);
        let Some((id, signature)) = id.zip(Signature::decode(text).ok()) else {
            return Err(mismatch(origin, "a minisign signature", "something else"));
        };
        let Some(trusted) = self.keys.iter().find(|trusted| trusted.id == id) else {
            return unverified(SignatureProblem::unknown_key(id));
        };
        if trusted.key.verify(bytes, &signature, false).is_err() {
            return Err(mismatch(
                origin,
                &format!("the content signed by the key {id}"),
                "other bytes or a forged signature",
            ));
        }
        let problem = identity.check_signer(subject.name, id).or_else(|| {
            // With a pinned digest, the operator has already decided the name of these bytes.
            let is_pinned = identity.sha256.is_some();
            let comment = Comment::parse(signature.trusted_comment());
            if is_pinned { None } else { comment.check(subject, identity.signed_as.as_deref()) }
        });
        problem.map_or(Ok(SignatureStatus::Verified(id)), unverified)
    }

    fn reject_or_warn(
        &self,
        identity: &ExpectedIdentity,
        origin: &str,
        problem: SignatureProblem,
    ) -> Result<SignatureStatus, RegistryError> {
        let SignatureProblem { problem, advice } = problem;
        if self.policy == SignaturePolicy::Require || identity.signed_by.is_some() {
            return Err(RegistryError::SignatureRequired { origin: origin.to_owned(), problem, advice });
        }
        Ok(SignatureStatus::Unverified(format!("{origin} {problem}")))
    }
}

/// The reason why a signature is not accepted.
#[derive(Debug)]
struct SignatureProblem {
    /// A predicate, which follows the name of the file or the reference in messages.
    problem: String,
    advice: String,
}

impl SignatureProblem {
    const HOW_TO_SIGN: &str = "sign it, or add its key to `registry.trusted_keys` of hatchery.yaml";

    fn unsigned() -> Self {
        Self { problem: "is not signed".into(), advice: Self::HOW_TO_SIGN.into() }
    }

    fn unknown_key(id: KeyId) -> Self {
        let problem = format!("is signed by the key {id}, which is not trusted");
        Self { problem, advice: Self::HOW_TO_SIGN.into() }
    }
}

/// Returns the path of the signature file, which is `x.wasm.minisig` for `x.wasm`.
pub(crate) fn signature_path(path: &Path) -> PathBuf {
    path.with_extension("wasm.minisig")
}

fn mismatch(origin: &str, expected: &str, found: &str) -> RegistryError {
    RegistryError::Mismatch {
        origin: origin.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        advice: "do not use it; ask the signer".to_owned(),
    }
}

/// A secret key. It does not implement `Debug`.
pub struct SigningKey {
    id: KeyId,
    key: SecretKey,
}

impl SigningKey {
    /// Reads a minisign secret key. Decryption of a key with a password takes about a second.
    ///
    /// # Errors
    /// If the file does not exist, or the password is missing or wrong.
    pub async fn read(path: &Path, password: Option<String>) -> Result<Self, RegistryError> {
        let invalid_key = |reason: String| RegistryError::InvalidKey { origin: path.display().to_string(), reason };
        let text = file::read_text(path).await?;
        let text =
            text.ok_or_else(|| invalid_key("the file does not exist; create a key with `minisign -G`".into()))?;
        let unencrypted = SecretKeyBox::from(text.clone()).into_unencrypted_secret_key();
        let key = match (unencrypted, password) {
            (Ok(key), _) => key,
            (Err(error), None) if is_encrypted(&text) => {
                tracing::debug!("{}: {error}", path.display());
                return Err(invalid_key(format!("the key has a password; set {PASSWORD_VARIABLE}")));
            }
            (Err(_), Some(password)) if is_encrypted(&text) => SecretKeyBox::from(text)
                .into_secret_key(Some(password))
                .map_err(|error| invalid_key(format!("{error}; {PASSWORD_VARIABLE} must be its password")))?,
            (Err(error), _) => return Err(invalid_key(format!("not a minisign secret key: {error}"))),
        };
        let id: Option<[u8; 8]> = key.keynum().try_into().ok();
        let id = id.ok_or_else(|| invalid_key("its key id does not have 8 bytes".into()))?;
        Ok(Self { id: KeyId(u64::from_le_bytes(id)), key })
    }

    /// Returns the id of the key pair.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// Signs a component and returns the text of the signature file.
    pub(crate) fn sign(&self, subject: SignatureSubject<'_>, bytes: &[u8]) -> Result<String, RegistryError> {
        let comment = format!("signature of {}.wasm by the key {}", subject.name, self.id);
        let trusted = Comment::new(subject).to_string();
        let signature = minisign::sign(None, &self.key, bytes, Some(&trusted), Some(&comment));
        let failed =
            |error| RegistryError::InvalidKey { origin: format!("the key {}", self.id), reason: format!("{error}") };
        Ok(signature.map_err(failed)?.into_string())
    }
}

/// Returns true if a secret key has a password. Its bytes start with the algorithms of the signature and of the
/// encryption, which is `Sc` or zeros.
fn is_encrypted(text: &str) -> bool {
    let bytes = text.lines().nth(1).and_then(|line| STANDARD.decode(line.trim()).ok());
    bytes.is_some_and(|bytes| bytes.get(2..4) == Some(b"Sc"))
}

#[cfg(test)]
mod tests;
