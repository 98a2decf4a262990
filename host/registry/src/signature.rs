//! Signatures in the format of minisign, and whom to trust.
//!
//! What is signed are the bytes of the component, so that `minisign -V` verifies a pulled file with the signature beside it. Signatures of
//! the format before 2020, which are not over a hash, are not accepted.

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
        Self { policy, keys }
    }

    /// Checks that somebody can fulfil what is required.
    ///
    /// # Errors
    /// When signatures are required of nobody.
    pub fn check(&self) -> Result<(), RegistryError> {
        match self.policy {
            SignaturePolicy::Require if self.keys.is_empty() => Err(RegistryError::NobodyTrusted),
            _ => Ok(()),
        }
    }

    /// True when loaded components are judged: with `warn` only where somebody is trusted, since otherwise nobody signs for anybody.
    pub fn judges_what_is_loaded(&self) -> bool {
        match self.policy {
            SignaturePolicy::Off => false,
            SignaturePolicy::Warn => !self.keys.is_empty(),
            SignaturePolicy::Require => true,
        }
    }

    /// Judges a component that is about to be loaded by the signature beside its file, which this reads, and gives what the operator
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
        Ok(match self.judge(&path.display().to_string(), bytes, signature.as_deref())? {
            Verdict::Unproven(warning) => Some(warning),
            Verdict::Signed(_) | Verdict::Unchecked => None,
        })
    }

    /// Judges the bytes of `what`.
    pub(crate) fn judge(&self, what: &str, bytes: &[u8], signature: Option<&str>) -> Result<Verdict, RegistryError> {
        if self.policy == SignaturePolicy::Off {
            return Ok(Verdict::Unchecked);
        }
        let Some(text) = signature else { return self.unproven(what, "is not signed".to_owned()) };
        let id = text.lines().nth(1).and_then(KeyId::in_base64);
        let Some((id, signature)) = id.zip(Signature::decode(text).ok()) else {
            return Err(wrong(what, "a minisign signature", "something else"));
        };
        let Some(trusted) = self.keys.iter().find(|trusted| trusted.id == id) else {
            return self.unproven(what, format!("is signed by the key {id}, which is not trusted"));
        };
        match trusted.key.verify(bytes, &signature, false) {
            Ok(()) => Ok(Verdict::Signed(id)),
            Err(_) => Err(wrong(what, &format!("what the key {id} has signed"), "other bytes or a forged signature")),
        }
    }

    fn unproven(&self, what: &str, problem: String) -> Result<Verdict, RegistryError> {
        match self.policy {
            SignaturePolicy::Require => Err(RegistryError::Untrusted {
                what: what.to_owned(),
                problem,
                advice: "have it signed with `hatchery push --sign-with`, or trust its key with --trust or `registry.trusted_keys` of \
                         hatchery.yaml",
            }),
            SignaturePolicy::Warn | SignaturePolicy::Off => Ok(Verdict::Unproven(format!("{what} {problem}"))),
        }
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
    pub(crate) fn sign(&self, name: &str, bytes: &[u8]) -> Result<String, RegistryError> {
        let comment = format!("signature of {name} by the key {}", self.id);
        let signed = minisign::sign(None, &self.key, bytes, Some(&format!("file:{name}")), Some(&comment));
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
mod tests {
    use minisign::KeyPair;

    use super::*;

    /// A secret key in a file, and its public key.
    async fn pair(folder: &Path) -> (SigningKey, TrustedKey) {
        let pair = KeyPair::generate_unencrypted_keypair().unwrap();
        let path = folder.join("key");
        std::fs::write(&path, pair.sk.to_box(None).unwrap().into_string()).unwrap();
        let key = SigningKey::read(&path, None).await.unwrap();
        (key, pair.pk.to_box().unwrap().into_string().parse().unwrap())
    }

    fn trust(policy: SignaturePolicy, key: &TrustedKey) -> Trust {
        Trust::new(policy, vec![key.clone()])
    }

    #[tokio::test]
    async fn a_signature_of_a_trusted_key_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, public) = pair(folder.path()).await;
        assert_eq!(secret.id(), public.id());
        let signature = secret.sign("x.wasm", b"bytes").unwrap();
        let trust = trust(SignaturePolicy::Require, &public);
        assert_eq!(trust.judge("x", b"bytes", Some(&signature)).unwrap(), Verdict::Signed(secret.id()));
    }

    #[tokio::test]
    async fn other_bytes_are_refused_even_where_no_signature_is_required() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, public) = pair(folder.path()).await;
        let signature = secret.sign("x.wasm", b"bytes").unwrap();
        let judge = |policy| trust(policy, &public).judge("x.wasm", b"other", Some(&signature));
        let error = judge(SignaturePolicy::Warn).unwrap_err().to_string();
        let id = secret.id();
        assert!(
            error.starts_with(&format!("x.wasm: expected what the key {id} has signed, found other bytes")),
            "{error}"
        );
        assert_eq!(judge(SignaturePolicy::Off).unwrap(), Verdict::Unchecked);
        let error = trust(SignaturePolicy::Warn, &public).judge("x.wasm", b"", Some("nonsense")).unwrap_err();
        assert!(error.to_string().contains("expected a minisign signature, found something else"), "{error}");
    }

    #[tokio::test]
    async fn who_is_not_trusted_and_who_has_not_signed_is_warned_of_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (stranger, _) = pair(folder.path()).await;
        let (_, public) = pair(folder.path()).await;
        let signature = stranger.sign("x.wasm", b"bytes").unwrap();
        for (signature, problem) in [
            (Some(signature.as_str()), format!("x.wasm is signed by the key {}, which is not trusted", stranger.id())),
            (None, "x.wasm is not signed".to_owned()),
        ] {
            let judge = |policy| trust(policy, &public).judge("x.wasm", b"bytes", signature);
            assert_eq!(judge(SignaturePolicy::Warn).unwrap(), Verdict::Unproven(problem.clone()));
            let error = judge(SignaturePolicy::Require).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{problem}, and signatures are required; ")), "{error}");
        }
    }

    #[test]
    fn signatures_cannot_be_required_of_nobody() {
        let error = Trust::new(SignaturePolicy::Require, Vec::new()).check().unwrap_err().to_string();
        assert!(error.contains("no key is trusted; name one in `registry.trusted_keys`"), "{error}");
    }

    #[tokio::test]
    async fn what_is_loaded_needs_a_signature_beside_it_only_where_one_is_required() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, public) = pair(folder.path()).await;
        let path = folder.path().join("x.wasm");
        let admit = |policy| trust(policy, &public).admit(&path, b"bytes").map_err(|error| error.to_string());
        assert_eq!(admit(SignaturePolicy::Off), Ok(None));
        assert_eq!(admit(SignaturePolicy::Warn), Ok(Some(format!("{} is not signed", path.display()))));
        assert!(!Trust::new(SignaturePolicy::Warn, Vec::new()).judges_what_is_loaded(), "nobody signs for nobody");
        let error = admit(SignaturePolicy::Require).unwrap_err();
        assert!(
            error.starts_with(&format!("{} is not signed, and signatures are required", path.display())),
            "{error}"
        );
        let signature = folder.path().join("x.wasm.minisig");
        std::fs::write(&signature, secret.sign("x.wasm", b"bytes").unwrap()).unwrap();
        assert_eq!(admit(SignaturePolicy::Require), Ok(None));
        std::fs::write(&signature, secret.sign("x.wasm", b"other").unwrap()).unwrap();
        assert!(admit(SignaturePolicy::Warn).unwrap_err().contains("found other bytes or a forged signature"));
    }

    #[test]
    fn key_ids_and_policies_are_written_as_they_are_read() {
        let id = KeyId::try_from("00E7620F1842B4E8".to_owned()).unwrap();
        assert_eq!(id.to_string(), "00E7620F1842B4E8");
        assert!(KeyId::try_from("E7".to_owned()).unwrap_err().contains("`E7` is no key id"));
        assert_eq!("require".parse(), Ok(SignaturePolicy::Require));
        assert!(
            "on".parse::<SignaturePolicy>().unwrap_err().contains("`on` is neither `off` nor `warn` nor `require`")
        );
    }

    #[test]
    fn what_is_no_public_key_is_named() {
        let error = "RWnonsense".parse::<TrustedKey>().unwrap_err().to_string();
        assert!(error.starts_with("RWnonsense: not a minisign public key"), "{error}");
    }

    #[tokio::test]
    async fn what_is_no_secret_key_says_what_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let read = async || SigningKey::read(&path, None).await.map(|_| ()).unwrap_err().to_string();
        assert!(read().await.ends_with("key: there is no such file; `minisign -G` makes a key"));
        std::fs::write(&path, "untrusted comment: x\nRWnonsense\n").unwrap();
        assert!(read().await.contains("key: not a minisign secret key: "));
        let plain = KeyPair::generate_unencrypted_keypair().unwrap().sk.to_bytes();
        let encrypted = STANDARD.encode([plain.get(..2).unwrap(), b"Sc", plain.get(4..).unwrap()].concat());
        std::fs::write(&path, format!("untrusted comment: x\n{encrypted}\n")).unwrap();
        assert!(read().await.ends_with("key: the key has a password; set HATCHERY_SIGNING_PASSWORD"));
    }
}
