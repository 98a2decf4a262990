//! Why a component does not come from a registry or does not go to one.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::signature::KeyId;

/// Why something about registries fails. Each message names the file, the reference or the key, and the next step.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// Not a reference.
    #[error("`{reference}` is no reference to a component: {reason}; write it as `registry.example/team/name:1.0`")]
    Reference {
        /// What was given.
        reference: String,
        /// What is wrong.
        reason: String,
    },
    /// Not a component's name.
    #[error(
        "`{name}` cannot name a component: a name has letters, digits, `_`, `-` and `.`, and does not begin with `.`"
    )]
    Name {
        /// What was given.
        name: String,
    },
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// More bytes than a component may have.
    #[error(
        "{what} has {size} bytes, and a component may have {most}; build it with `hatchery build`, which strips it"
    )]
    TooLarge {
        /// The file or the reference.
        what: String,
        /// Its bytes.
        size: u64,
        /// How many there may be.
        most: u64,
    },
    /// Not a component.
    #[error("{what} is no component: {reason}; `hatchery build` makes one")]
    NotComponent {
        /// The file or the reference.
        what: String,
        /// What is wrong.
        reason: String,
    },
    /// The registry cannot be reached.
    #[error("the registry {registry} cannot be reached: {reason}{}", plain_http_advice(*is_https))]
    Unreachable {
        /// Its host and port.
        registry: String,
        /// Why.
        reason: String,
        /// Whether HTTPS was spoken.
        is_https: bool,
    },
    /// The registry wants other credentials.
    #[error(
        "the registry does not let {who} use {reference}: log in with `docker login {registry}`, or set HATCHERY_REGISTRY={registry}, HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD"
    )]
    Unauthorized {
        /// Who asked.
        who: String,
        /// For what.
        reference: String,
        /// Its host and port.
        registry: String,
    },
    /// The registry has no such thing.
    #[error("the registry has no {reference}; check its name and tag, or push it with `hatchery push`")]
    NotFound {
        /// What was asked for.
        reference: String,
    },
    /// The registry says something else than expected.
    #[error("the registry does not serve {reference}: {reason}")]
    Refused {
        /// What was asked for.
        reference: String,
        /// What it says.
        reason: String,
    },
    /// Something is not what it was or what it claims to be.
    #[error("{what}: expected {expected}, found {found}; {advice}")]
    Differs {
        /// The file, or the part of a reference.
        what: String,
        /// What it should be.
        expected: String,
        /// What it is.
        found: String,
        /// How to accept it, or to restore what was.
        advice: String,
    },
    /// The file's place is taken.
    #[error("{}: there already, and not from a registry; give the component another name with --name, or replace the file with --update", path.display())]
    Occupied {
        /// The file.
        path: PathBuf,
    },
    /// A component of this name is from elsewhere.
    #[error(
        "component `{name}` is locked to {locked}, not {asked}; replace it with --update, or give the new one another name with --name"
    )]
    LockedElsewhere {
        /// The component.
        name: String,
        /// What the lock file says.
        locked: String,
        /// What was asked for.
        asked: String,
    },
    /// Only what is locked may be pulled, and this is not.
    #[error("{}: component `{name}` is not locked there; pull it without --locked, and keep the file with the others", path.display())]
    NotLocked {
        /// The component.
        name: String,
        /// The lock file.
        path: PathBuf,
    },
    /// A locked component is not in its folder.
    #[error("{}: it is locked, but there is no such file; `hatchery pull {}` restores it", path.display(), path.parent().unwrap_or(path).display())]
    FileMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// The lock file does not say what it should.
    #[error("{}{}: {message}", path.display(), position(location))]
    Lock {
        /// The file.
        path: PathBuf,
        /// Line and column, from 1.
        location: Option<(usize, usize)>,
        /// What is wrong.
        message: String,
    },
    /// There is nothing to restore.
    #[error("{}: nothing has been pulled into this folder; name what to pull, as in `hatchery pull {} registry.example/team/name:1.0`", path.display(), path.parent().unwrap_or(path).display())]
    NothingLocked {
        /// The lock file.
        path: PathBuf,
    },
    /// Docker's file of credentials does not say what it should.
    #[error("{}: {reason}; `docker login` writes it anew", path.display())]
    Credentials {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Half of the credentials.
    #[error("{missing} is not set, but {set} is; set both or none")]
    HalfCredentials {
        /// The variable that is set.
        set: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// A key cannot be used.
    #[error("{what}: {reason}")]
    Key {
        /// The file, or the key as it was given.
        what: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// Signatures are required, and no key is trusted.
    #[error(
        "signatures are required, but no key is trusted; name one in `registry.trusted_keys` of hatchery.yaml or with --trust"
    )]
    NobodyTrusted,
    /// A signature is required.
    #[error("{what} {problem}, and signatures are required; {advice}")]
    Untrusted {
        /// The file or the reference.
        what: String,
        /// That it has no signature, or whose it is.
        problem: String,
        /// What to do.
        advice: String,
    },
    /// A component is to be signed by a key that is not trusted.
    #[error(
        "components.{name}.signed_by: the key {id} is not trusted; add its public key to `registry.trusted_keys` of hatchery.yaml"
    )]
    SignerNotTrusted {
        /// The component.
        name: String,
        /// The key.
        id: KeyId,
    },
    /// A manifest is larger than any needs to be.
    #[error("the manifest of {reference} has more than {most} bytes; it is none of a component, check the name")]
    ManifestTooLarge {
        /// What was asked for.
        reference: String,
        /// How many there may be.
        most: u64,
    },
    /// The registry wants a login to be sent where it is not sent.
    #[error(
        "the registry {registry} wants its login sent to {realm}, over plain HTTP: nothing is sent there; ask its operator for a \
         token service over HTTPS"
    )]
    Realm {
        /// Its host and port.
        registry: String,
        /// Where to.
        realm: String,
    },
    /// Credentials that nobody says the registry of.
    #[error(
        "HATCHERY_REGISTRY is not set, but {password} is: a password is sent to one registry only; set HATCHERY_REGISTRY to its \
         host and port, as in `registry.example:5000`"
    )]
    RegistryNotNamed {
        /// The variable that is set.
        password: &'static str,
    },
}

fn plain_http_advice(is_https: bool) -> &'static str {
    if is_https { "; if it speaks only plain HTTP and you trust the network in between, add --plain-http" } else { "" }
}

fn position(location: &Option<(usize, usize)>) -> String {
    location.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default()
}
