//! References to components in registries: `registry.example/team/name:1.0`, or `…@sha256:…` for an exact manifest.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::component::Digest;
use crate::error::RegistryError;

/// A reference with a tag, a digest or both. The registry is required: there is no default registry, so a path is never
/// a reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference(oci_client::Reference);

impl Reference {
    /// Returns the host of the registry, with its port if there is one.
    pub fn registry(&self) -> &str {
        self.0.resolve_registry()
    }

    /// Returns the default name of the component, which is the last segment of the repository.
    pub fn name(&self) -> &str {
        let repository = self.0.repository();
        repository.rsplit_once('/').map_or(repository, |(_, name)| name)
    }

    /// Returns true if the reference has a digest.
    pub fn is_pinned(&self) -> bool {
        self.0.digest().is_some()
    }

    /// Returns a reference to the same repository with this digest and without a tag.
    pub fn with_digest(&self, digest: &Digest) -> Self {
        let (registry, repository) = (self.0.registry().to_owned(), self.0.repository().to_owned());
        Self(oci_client::Reference::with_digest(registry, repository, digest.to_string()))
    }

    /// Returns true if the registry is on this machine. Plain HTTP is safe then, because the traffic does not leave the
    /// machine.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.registry().rsplit_once(':').map_or(self.registry(), |(host, _)| host))
    }

    /// Returns the tag if it is a version, which starts with a digit or with `v` and a digit. Other tags, such as
    /// `latest`, are moved between versions.
    pub(crate) fn version(&self) -> Option<&str> {
        let tag = self.0.tag()?;
        tag.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()).then_some(tag)
    }

    pub(crate) fn oci(&self) -> &oci_client::Reference {
        &self.0
    }
}

/// Returns true if a host is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    host == "localhost" || address.is_ok_and(|address: IpAddr| address.is_loopback())
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<Reference> for String {
    fn from(reference: Reference) -> Self {
        reference.to_string()
    }
}

impl TryFrom<String> for Reference {
    type Error = RegistryError;

    fn try_from(text: String) -> Result<Self, RegistryError> {
        text.parse()
    }
}

impl FromStr for Reference {
    type Err = RegistryError;

    fn from_str(text: &str) -> Result<Self, RegistryError> {
        let invalid =
            |reason: &str| RegistryError::InvalidReference { reference: text.to_owned(), reason: reason.to_owned() };
        if text.contains("://") {
            return Err(invalid("it has a scheme"));
        }
        let registry = text.split_once('/').map(|(registry, _)| registry).unwrap_or_default();
        if registry != "localhost" && !registry.contains(['.', ':']) {
            return Err(invalid("it does not start with the host of a registry"));
        }
        let reference: oci_client::Reference = text.parse().map_err(|error| invalid(&format!("{error}")))?;
        match reference.digest() {
            Some(digest) if !digest.starts_with("sha256:") => Err(invalid("its digest is not a SHA-256")),
            _ => Ok(Self(reference)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Reference, String> {
        text.parse().map_err(|error: RegistryError| error.to_string())
    }

    #[test]
    fn a_reference_names_a_registry_a_repository_and_a_tag() {
        let reference = parse("registry.example:5000/team/word-counter:1.2").unwrap();
        assert_eq!((reference.registry(), reference.name()), ("registry.example:5000", "word-counter"));
        assert_eq!(reference.to_string(), "registry.example:5000/team/word-counter:1.2");
        assert_eq!(parse("localhost/x").unwrap().to_string(), "localhost/x:latest");
    }

    #[test]
    fn a_pinned_reference_has_a_digest_and_no_tag() {
        let digest = Digest::compute(b"");
        let pinned = parse("localhost:1/team/x:1.2").unwrap().with_digest(&digest);
        assert_eq!(pinned.to_string(), format!("localhost:1/team/x@{digest}"));
        assert!(pinned.is_pinned() && parse(&pinned.to_string()) == Ok(pinned));
    }

    #[test]
    fn a_version_is_distinguished_from_a_moving_tag() {
        for (text, version) in [
            ("localhost/x:1.2", Some("1.2")),
            ("localhost/x:v3", Some("v3")),
            ("localhost/x", None),
            ("localhost/x:stable", None),
        ] {
            assert_eq!(parse(text).unwrap().version(), version, "{text}");
        }
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (registry, expected) in [
            ("localhost:5000", true),
            ("localhost", true),
            ("127.0.0.1:5000", true),
            ("127.8.0.1", true),
            ("0.0.0.0:5000", false),
            ("localhost.example:5000", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(parse(&format!("{registry}/x:1")).unwrap().is_loopback(), expected, "{registry}");
        }
    }

    #[test]
    fn invalid_references_are_rejected_with_an_example() {
        let digest = format!("localhost/x@sha512:{}", "a".repeat(128));
        for (text, reason) in [
            ("word-counter", "does not start with the host of a registry"),
            ("team/word-counter:1", "does not start with the host of a registry"),
            ("http://registry.example/x:1", "has a scheme"),
            ("registry.example/Team/x:1", "invalid reference"),
            ("registry.example/x:a:b", "invalid reference"),
            (digest.as_str(), "not a SHA-256"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("`{text}` is not a reference")) && error.contains(reason), "{error}");
            assert!(error.ends_with("write it as `registry.example/team/name:1.0`"), "{error}");
        }
    }
}
