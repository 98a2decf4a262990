//! Signatures in the format of minisign, and whom to trust.
//!
//! What is signed are the bytes of the component, so that `minisign -V` verifies a pulled file with the signature beside it, and the trusted
//! comment with the file's name and version: `file:dice.wasm`, `version:1.0`. A signature counts for a component of that name only.
//! Signatures of the format before 2020, which are not over a hash, are not accepted.

mod binding;
mod comment;

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
pub use binding::Binding;
use comment::Comment;

/// The variable with the password of an encrypted signing key.
pub const PASSWORD_VARIABLE: &str = "HATCHERY_SIGNING_PASSWORD";

/// Which of two key pairs, as minisign writes it: 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct KeyId(u64);

impl KeyId {
    /// Both a public key and a signature begin with an algorithm of two bytes and the id.
    fn in_base64(text: &str) -> Option<Self> {
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
        let id = (text.len() == 16).then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| format!("`{text}` is no key id; one has 16 hexadecimal digits"))
    }
}

/// A public key whose signatures count.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TrustedKey {
    id: KeyId,
    key: PublicKey,
}

impl TrustedKey {
    /// Which one it is.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

impl FromStr for TrustedKey {
    type Err = RegistryError;

    /// Reads the line of base64 in a minisign public key, or the whole text of such a file.
    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        let found = KeyId::in_base64(line).zip(PublicKey::from_base64(line).ok());
        found.map(|(id, key)| Self { id, key }).ok_or_else(|| RegistryError::Key {
            what: line.to_owned(),
            reason: "not a minisign public key; it is the line of `minisign.pub` that begins with RW".to_owned(),
        })
    }
}

impl TryFrom<String> for TrustedKey {
    type Error = RegistryError;

    fn try_from(text: String) -> Result<Self, RegistryError> {
        text.parse()
    }
}

/// What happens to a component whose signature does not count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignaturePolicy {
    /// Signatures are kept, and nobody looks at them.
    Off,
    /// It is used, with a warning. A signature of a trusted key that is wrong is an error all the same.
    #[default]
    Warn,
    /// It is refused.
    Require,
}

impl FromStr for SignaturePolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "warn" => Ok(Self::Warn),
            "require" => Ok(Self::Require),
            _ => Err(format!("`{text}` is neither `off` nor `warn` nor `require`")),
        }
    }
}

/// Whom to trust, and what happens to the others.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    policy: SignaturePolicy,
    keys: Vec<TrustedKey>,
    bindings: BTreeMap<String, Binding>,
}

/// The component that a signature is to be for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The component's name: that of its file without `.wasm`.
    pub(crate) name: &'a str,
    /// The version that it was asked for by, if it was.
    pub(crate) version: Option<&'a str>,
}

/// What a signature says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A trusted key has signed these bytes.
    Signed(KeyId),
    /// No trusted key has, and why.
    Unproven(String),
    /// Nobody has looked.
    Unchecked,
}

impl Verdict {
    /// Who has signed.
    pub(crate) fn signer(&self) -> Option<KeyId> {
        match self {
            Self::Signed(id) => Some(*id),
            Self::Unproven(_) | Self::Unchecked => None,
        }
    }
}

impl Trust {
    /// These keys, and this for what they have not signed.
    pub fn new(policy: SignaturePolicy, keys: Vec<TrustedKey>) -> Self {
        Self { policy, keys, bindings: BTreeMap::new() }
    }

    /// Adds what single components must be, by name.
    #[must_use]
    pub fn with_bindings(self, bindings: BTreeMap<String, Binding>) -> Self {
        Self { bindings, ..self }
    }

    /// Checks that somebody can fulfil what is required.
    ///
    /// # Errors
    /// When signatures are required of nobody, or a component's of a key that is not trusted.
    pub fn check(&self) -> Result<(), RegistryError> {
        let is_trusted = |id: &KeyId| self.keys.iter().any(|key| key.id == *id);
        for (name, binding) in &self.bindings {
            if let Some(id) = binding.signed_by.filter(|id| !is_trusted(id)) {
                return Err(RegistryError::SignerNotTrusted { name: name.clone(), id });
            }
        }
        match self.policy {
            SignaturePolicy::Require if self.keys.is_empty() => Err(RegistryError::NobodyTrusted),
            _ => Ok(()),
        }
    }

    /// True when loaded components are judged: with `warn` only where somebody is trusted, since otherwise nobody signs for anybody.
    pub fn judges_what_is_loaded(&self) -> bool {
        !self.bindings.is_empty() || self.policy_judges()
    }

    fn policy_judges(&self) -> bool {
        match self.policy {
            SignaturePolicy::Off => false,
            SignaturePolicy::Warn => !self.keys.is_empty(),
            SignaturePolicy::Require => true,
        }
    }

    /// Judges a component that is about to be loaded by the signature beside its file, which this reads, and returns what the operator
    /// should be warned of. Hashes all bytes: not for async threads.
    ///
    /// # Errors
    /// When signatures are required and this has none that counts, or when it is not what a trusted key has signed.
    pub fn admit(&self, path: &Path, bytes: &[u8]) -> Result<Option<String>, RegistryError> {
        if !self.judges_what_is_loaded() {
            return Ok(None);
        }
        let beside = signature_of(path);
        let signature = match std::fs::read_to_string(&beside) {
            Ok(signature) => Some(signature),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(RegistryError::Read { path: beside, source }),
        };
        self.admit_signed(path, bytes, signature.as_deref())
    }

    /// As [`Trust::admit`], with a signature that is not beside the file yet.
    ///
    /// # Errors
    /// As [`Trust::admit`].
    pub fn admit_signed(
        &self,
        path: &Path,
        bytes: &[u8],
        signature: Option<&str>,
    ) -> Result<Option<String>, RegistryError> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !self.policy_judges() && !self.bindings.contains_key(&*name) {
            return Ok(None);
        }
        let subject = Subject { name: &name, version: None };
        Ok(match self.judge(&path.display().to_string(), subject, bytes, signature)? {
            Verdict::Unproven(warning) => Some(warning),
            Verdict::Signed(_) | Verdict::Unchecked => None,
        })
    }

    /// Judges the bytes of `what`, which are to be the component `subject`.
    pub(crate) fn judge(
        &self,
        what: &str,
        subject: Subject<'_>,
        bytes: &[u8],
        signature: Option<&str>,
    ) -> Result<Verdict, RegistryError> {
        let binding = self.bindings.get(subject.name).cloned().unwrap_or_default();
        binding.check_bytes(what, subject.name, bytes)?;
        let unproven = |problem| self.unproven(&binding, what, problem);
        if self.policy == SignaturePolicy::Off && binding.signed_by.is_none() {
            return Ok(Verdict::Unchecked);
        }
        let Some(text) = signature else { return unproven(Problem::unsigned()) };
        let id = text.lines().nth(1).and_then(KeyId::in_base64);
        let Some((id, signature)) = id.zip(Signature::decode(text).ok()) else {
            return Err(wrong(what, "a minisign signature", "something else"));
        };
        let Some(trusted) = self.keys.iter().find(|trusted| trusted.id == id) else {
            return unproven(Problem::stranger(id));
        };
        if trusted.key.verify(bytes, &signature, false).is_err() {
            return Err(wrong(what, &format!("what the key {id} has signed"), "other bytes or a forged signature"));
        }
        let problem = binding.problem_of_signer(subject.name, id).or_else(|| {
            // An operator who pinned the bytes has decided what they are for.
            let is_bound = binding.sha256.is_some();
            let comment = Comment::parse(signature.trusted_comment());
            if is_bound { None } else { comment.problem(subject, binding.signed_as.as_deref()) }
        });
        problem.map_or(Ok(Verdict::Signed(id)), unproven)
    }

    fn unproven(&self, binding: &Binding, what: &str, problem: Problem) -> Result<Verdict, RegistryError> {
        let Problem { problem, advice } = problem;
        if self.policy == SignaturePolicy::Require || binding.signed_by.is_some() {
            return Err(RegistryError::Untrusted { what: what.to_owned(), problem, advice });
        }
        Ok(Verdict::Unproven(format!("{what} {problem}")))
    }
}

/// Why a signature does not count.
#[derive(Debug)]
struct Problem {
    /// Follows the name of the file or the reference.
    problem: String,
    /// What to do.
    advice: String,
}

impl Problem {
    const HOW_TO_SIGN: &str = "have it signed with `hatchery push --sign-with`, or trust its key with --trust or `registry.trusted_keys` of hatchery.yaml";

    fn unsigned() -> Self {
        Self { problem: "is not signed".into(), advice: Self::HOW_TO_SIGN.into() }
    }

    fn stranger(id: KeyId) -> Self {
        let problem = format!("is signed by the key {id}, which is not trusted");
        Self { problem, advice: Self::HOW_TO_SIGN.into() }
    }
}

/// The signature's file, `x.wasm.minisig` of `x.wasm`.
pub(crate) fn signature_of(path: &Path) -> PathBuf {
    path.with_extension("wasm.minisig")
}

fn wrong(what: &str, expected: &str, found: &str) -> RegistryError {
    RegistryError::Differs {
        what: what.to_owned(),
        expected: expected.to_owned(),
        found: found.to_owned(),
        advice: "do not use it; ask whoever has signed it".to_owned(),
    }
}

/// A secret key. It is never shown.
pub struct SigningKey {
    id: KeyId,
    key: SecretKey,
}

impl SigningKey {
    /// Reads a minisign secret key. One with a password takes a second to decrypt.
    ///
    /// # Errors
    /// When there is none, or the password is missing or wrong.
    pub async fn read(path: &Path, password: Option<String>) -> Result<Self, RegistryError> {
        let problem = |reason: String| RegistryError::Key { what: path.display().to_string(), reason };
        let text = file::read_text(path).await?;
        let text = text.ok_or_else(|| problem("there is no such file; `minisign -G` makes a key".into()))?;
        let plain = SecretKeyBox::from(text.clone()).into_unencrypted_secret_key();
        let key = match (plain, password) {
            (Ok(key), _) => key,
            (Err(error), None) if is_encrypted(&text) => {
                tracing::debug!("{}: {error}", path.display());
                return Err(problem(format!("the key has a password; set {PASSWORD_VARIABLE}")));
            }
            (Err(_), Some(password)) if is_encrypted(&text) => SecretKeyBox::from(text)
                .into_secret_key(Some(password))
                .map_err(|error| problem(format!("{error}; {PASSWORD_VARIABLE} must be its password")))?,
            (Err(error), _) => return Err(problem(format!("not a minisign secret key: {error}"))),
        };
        let id: Option<[u8; 8]> = key.keynum().try_into().ok();
        let id = id.ok_or_else(|| problem("its key id does not have 8 bytes".into()))?;
        Ok(Self { id: KeyId(u64::from_le_bytes(id)), key })
    }

    /// Which one it is.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The text of a signature of a component, for a file beside it.
    pub(crate) fn sign(&self, subject: Subject<'_>, bytes: &[u8]) -> Result<String, RegistryError> {
        let comment = format!("signature of {}.wasm by the key {}", subject.name, self.id);
        let trusted = Comment::of(subject).to_string();
        let signed = minisign::sign(None, &self.key, bytes, Some(&trusted), Some(&comment));
        let failed = |error| RegistryError::Key { what: format!("the key {}", self.id), reason: format!("{error}") };
        Ok(signed.map_err(failed)?.into_string())
    }
}

/// A secret key's bytes begin with the algorithm of the signature, then that of the encryption, `Sc` or zeros.
fn is_encrypted(text: &str) -> bool {
    let bytes = text.lines().nth(1).and_then(|line| STANDARD.decode(line.trim()).ok());
    bytes.is_some_and(|bytes| bytes.get(2..4) == Some(b"Sc"))
}

#[cfg(test)]
mod tests;
