//! Errors of pushes, pulls and signatures.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::signature::KeyId;

/// An error of this crate. Each message names the file, the reference or the key, and the next step.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// The text is not a reference.
    #[error("`{reference}` is not a reference to a component: {reason}; write it as `registry.example/team/name:1.0`")]
    InvalidReference { reference: String, reason: String },
    /// The text is not a name of a component.
    #[error(
        "`{name}` is not a valid component name: a name has letters, digits, `_`, `-` and `.`, and does not start with `.`"
    )]
    InvalidName { name: String },
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// A component is too large.
    #[error(
        "{origin} has {size} bytes, but a component can have at most {max}; build it with `hatchery build`, which strips it"
    )]
    TooLarge {
        /// The file or the reference.
        origin: String,
        /// In bytes.
        size: u64,
        /// In bytes.
        max: u64,
    },
    /// A file or a manifest is not a component.
    #[error("{origin} is not a component: {reason}; create a component with `hatchery build`")]
    NotComponent {
        /// The file or the reference.
        origin: String,
        reason: String,
    },
    /// The registry cannot be reached.
    #[error("the registry {registry} cannot be reached: {reason}{}", plain_http_advice(*is_https))]
    Unreachable {
        /// Host and port.
        registry: String,
        reason: String,
        is_https: bool,
    },
    /// The registry requires other credentials.
    #[error(
        "the registry denies {user} access to {reference}: log in with `docker login {registry}`, or set HATCHERY_REGISTRY={registry}, HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD"
    )]
    Unauthorized {
        user: String,
        reference: String,
        /// Host and port.
        registry: String,
    },
    /// The registry does not have the component.
    #[error("the registry has no {reference}; check its name and tag, or push it with `hatchery push`")]
    NotFound { reference: String },
    /// The registry returned an error or an unexpected response.
    #[error("the registry does not serve {reference}: {reason}")]
    UnexpectedResponse { reference: String, reason: String },
    /// A digest or a signature is not the one that the registry or the signer promised.
    #[error("{origin}: expected {expected}, found {found}; {advice}")]
    Mismatch {
        /// The file or the reference.
        origin: String,
        expected: String,
        found: String,
        advice: String,
    },
    /// A digest or a signature is not the one in the lockfile. [`PullMode::Update`](crate::PullMode::Update) accepts
    /// the new one.
    #[error("{origin}: expected {expected}, found {found}; {advice}")]
    LockMismatch {
        /// The file or the reference.
        origin: String,
        expected: String,
        found: String,
        /// The commands that accept the change or restore the locked state.
        advice: &'static str,
    },
    /// The file of the component already exists.
    #[error("{}: the file exists, and is not from a registry; give the component another name, or update to replace the file", path.display())]
    FileExists { path: PathBuf },
    /// The lockfile has another reference for this name.
    #[error(
        "component `{name}` is locked to {locked}, not {requested}; update to replace it, or give the new one another name"
    )]
    ReferenceConflict {
        name: String,
        /// The reference in the lockfile.
        locked: String,
        requested: String,
    },
    /// Another pull has changed the component since this one began.
    #[error(
        "{}: another pull has changed component `{name}` at the same time, and its files are kept; pull again",
        path.display()
    )]
    ConcurrentPull {
        name: String,
        /// The path of the lockfile.
        path: PathBuf,
    },
    /// A component is not in the lockfile, which [`PullMode::Locked`](crate::PullMode::Locked) does not change.
    #[error("{}: component `{name}` is not in the lockfile; pull it once without locked mode, and keep the lockfile with the components", path.display())]
    NotLocked {
        name: String,
        /// The path of the lockfile.
        path: PathBuf,
    },
    /// The file of a locked component does not exist.
    #[error("{}: it is locked, but the file does not exist; `hatchery pull {}` restores it", path.display(), path.parent().unwrap_or(path).display())]
    FileMissing { path: PathBuf },
    #[error("{}{}: {message}", path.display(), position(location))]
    InvalidLockfile {
        path: PathBuf,
        /// Line and column, counted from 1.
        location: Option<(usize, usize)>,
        message: String,
    },
    /// The lockfile has no components.
    #[error("{}: nothing has been pulled into this folder; name a component, as in `hatchery pull {} registry.example/team/name:1.0`", path.display(), path.parent().unwrap_or(path).display())]
    EmptyLockfile { path: PathBuf },
    /// Docker's configuration file is invalid.
    #[error("{}: {reason}; `docker login` writes a new one", path.display())]
    InvalidCredentials { path: PathBuf, reason: String },
    /// Only one of the user name and the password is set.
    #[error("{missing} is not set, but {set} is; set both or none")]
    IncompleteCredentials {
        /// A name of a variable.
        set: &'static str,
        /// A name of a variable.
        missing: &'static str,
    },
    /// A key cannot be used.
    #[error("{origin}: {reason}")]
    InvalidKey {
        /// The file, or the text of the key.
        origin: String,
        /// The problem and the next step.
        reason: String,
    },
    /// Signatures are required, but no key is trusted.
    #[error(
        "signatures are required, but no key is trusted; add a public key to `registry.trusted_keys` of hatchery.yaml"
    )]
    NoTrustedKeys,
    /// A required signature is missing or not accepted.
    #[error("{origin} {problem}, and signatures are required; {advice}")]
    SignatureRequired {
        /// The file or the reference.
        origin: String,
        problem: String,
        advice: String,
    },
    /// A component must be signed by a key that is not trusted.
    #[error(
        "components.{name}.signed_by: the key {id} is not trusted; add its public key to `registry.trusted_keys` of hatchery.yaml"
    )]
    UntrustedSigner { name: String, id: KeyId },
    #[error(
        "the manifest of {reference} has more than {max} bytes; it is not the manifest of a component; check the name"
    )]
    ManifestTooLarge {
        reference: String,
        /// In bytes.
        max: u64,
    },
    /// The registry requests credentials for a token service over plain HTTP.
    #[error(
        "the registry {registry} requests its login at {realm}, over plain HTTP: the login is not sent; ask its operator for a \
         token service over HTTPS"
    )]
    InsecureTokenService {
        /// Host and port.
        registry: String,
        /// The URL of the token service.
        realm: String,
    },
    /// A password is set without the registry that it is for.
    #[error(
        "HATCHERY_REGISTRY is not set, but {password} is: a password is sent to one registry only; set HATCHERY_REGISTRY to its \
         host and port, as in `registry.example:5000`"
    )]
    MissingRegistry {
        /// The name of the variable with the password.
        password: &'static str,
    },
}

fn plain_http_advice(is_https: bool) -> &'static str {
    if is_https { "; if it speaks only plain HTTP and you trust the network in between, allow plain HTTP" } else { "" }
}

fn position(location: &Option<(usize, usize)>) -> String {
    location.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default()
}
