//! Secrets (`secrets`): values that the host writes into a header of requests to one host. The guest never sees the
//! value: it is read when the component is loaded, added after the request has left the guest, and never shown.
//!
//! The guest can use a secret for any request to its host. A host that echoes requests discloses the secret to the
//! guest.

use std::path::{Path, PathBuf};

use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::Grants;
use super::network::{HostPattern, Target};

const PLACEHOLDER: &str = "{secret}";

/// An entry of `secrets`: the source and the destination of a secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "SecretConfig")]
pub struct Secret {
    name: String,
    source: Source,
    host: HostPattern,
    host_text: String,
    header: HeaderName,
    format: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Source {
    Variable(String),
    File(PathBuf),
}

/// The entry as config in `hatchery.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretConfig {
    /// Name of the secret in messages.
    name: String,
    /// Environment variable with the value.
    from: Option<String>,
    /// File with the value, relative to the host's working directory. A trailing line break is removed.
    file: Option<PathBuf>,
    /// Destination host, as in `network`, but exactly one host and one port.
    host: String,
    /// The header to write.
    header: String,
    /// The header's value, with `{secret}` as the placeholder.
    #[serde(default = "default_format")]
    format: String,
}

fn default_format() -> String {
    PLACEHOLDER.into()
}

impl TryFrom<SecretConfig> for Secret {
    type Error = String;

    fn try_from(config: SecretConfig) -> Result<Self, String> {
        let SecretConfig { name, from, file, host: host_text, header, format } = config;
        let wrong = |reason: String| format!("the secret `{name}`: {reason}");
        let source = match (from, file) {
            (Some(variable), None) => Source::Variable(variable),
            (None, Some(file)) => Source::File(file),
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong("set either `from:`, an environment variable, or `file:`".into()));
            }
        };
        let host: HostPattern = host_text.parse().map_err(wrong)?;
        if !host.is_exact() {
            return Err(wrong(format!(
                "`host: {host_text}` is more than one host; a secret goes to one host and port"
            )));
        }
        let header = HeaderName::try_from(&header).map_err(|_| wrong(format!("`{header}` is not a header")))?;
        if !format.contains(PLACEHOLDER) {
            return Err(wrong(format!("`format: {format}` has no `{PLACEHOLDER}`")));
        }
        Ok(Self { name, source, host, host_text, header, format })
    }
}

/// A secret with its value. The value is marked as sensitive, so that it is not printed.
pub(crate) struct ResolvedSecret {
    host: HostPattern,
    header: HeaderName,
    value: HeaderValue,
}

impl ResolvedSecret {
    /// Writes the secret into a request, if `target` is its host. Replaces the header if the guest has set it.
    pub(crate) fn apply(&self, target: &Target, headers: &mut http::HeaderMap) {
        if self.host.allows(target) {
            headers.insert(self.header.clone(), self.value.clone());
        }
    }
}

impl Secret {
    /// Returns the name of the secret in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the destination host as config.
    pub fn host(&self) -> &str {
        &self.host_text
    }

    /// Returns the file with the value, if it comes from one.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(file) => Some(file),
            Source::Variable(_) => None,
        }
    }

    /// Reads the value.
    ///
    /// # Errors
    /// If the value is missing, cannot be a header, or would be sent in plain text to a host that is not in
    /// `private_network`. The message names the secret and its source, and never quotes the value.
    pub(crate) fn read(&self, grants: &Grants) -> Result<ResolvedSecret, String> {
        let name = &self.name;
        if let Some(target) = self.host.plain_target()
            && !grants.private_network.iter().any(|entry| entry.allows(&target, target.address))
        {
            let (host, entry) = (&self.host_text, target.host_and_port());
            return Err(format!(
                "the secret `{name}` would be sent to `{host}` in plain text; use https, or add `private_network: [\"{entry}\"]`"
            ));
        }
        let secret = match &self.source {
            Source::Variable(variable) => {
                std::env::var(variable).ok().filter(|value| !value.is_empty()).ok_or_else(|| {
                    format!("the secret `{name}` is missing: set the environment variable `{variable}` for the host")
                })?
            }
            Source::File(file) => std::fs::read_to_string(file)
                .map_err(|error| format!("the secret `{name}` is missing: cannot read {}: {error}", file.display()))?,
        };
        let secret = secret.trim_end_matches(['\r', '\n']);
        let mut value = HeaderValue::try_from(self.format.replace(PLACEHOLDER, secret))
            .map_err(|_| format!("the secret `{name}` has characters that a header cannot contain"))?;
        value.set_sensitive(true);
        Ok(ResolvedSecret { host: self.host.clone(), header: self.header.clone(), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(yaml: serde_json::Value) -> Result<Secret, String> {
        serde_json::from_value(yaml).map_err(|error| error.to_string())
    }

    #[test]
    fn an_invalid_secret_is_refused() {
        let read = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut yaml = serde_json::json!({"name": "key", "from": "KEY", "host": "a.com", "header": "X-Key"});
            change(&mut yaml);
            secret(yaml).map(|_| ()).unwrap_err()
        };
        assert_eq!(
            read(&|yaml| yaml["file"] = "f".into()),
            "the secret `key`: set either `from:`, an environment variable, or `file:`"
        );
        assert_eq!(
            read(&|yaml| yaml["host"] = "*.a.com".into()),
            "the secret `key`: `host: *.a.com` is more than one host; a secret goes to one host and port"
        );
        assert_eq!(read(&|yaml| yaml["header"] = "a b".into()), "the secret `key`: `a b` is not a header");
        assert_eq!(
            read(&|yaml| yaml["format"] = "Bearer".into()),
            "the secret `key`: `format: Bearer` has no `{secret}`"
        );
    }

    #[test]
    fn a_secret_replaces_the_header_of_the_guest_and_is_not_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let yaml = serde_json::json!({
            "name": "key", "file": file.path(), "host": "a.com", "header": "Authorization", "format": "Bearer {secret}",
        });
        let resolved = secret(yaml).unwrap().read(&Grants::default()).ok().unwrap();
        let mut headers = http::HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("guest"));
        headers.append("authorization", HeaderValue::from_static("guest too"));
        let apply =
            |uri: &str, headers: &mut _| resolved.apply(&Target::from_uri(&uri.parse().unwrap()).unwrap(), headers);
        for other in ["https://b.com", "https://a.com:8443", "http://a.com", "https://x.a.com"] {
            apply(other, &mut headers);
            assert_eq!(headers["authorization"], "guest", "{other}");
        }
        apply("https://a.com/path", &mut headers);
        assert_eq!(headers.get_all("authorization").iter().collect::<Vec<_>>(), ["Bearer s3cret"]);
        assert!(!format!("{headers:?}").contains("s3cret"));
    }

    #[test]
    fn a_missing_secret_is_named_and_plain_text_needs_a_private_host() {
        let missing =
            serde_json::json!({"name": "key", "from": "HATCHERY_NO_SUCH", "host": "a.com", "header": "X-Key"});
        assert_eq!(
            secret(missing).unwrap().read(&Grants::default()).err().unwrap(),
            "the secret `key` is missing: set the environment variable `HATCHERY_NO_SUCH` for the host"
        );
        let plain = serde_json::json!({"name": "key", "from": "PATH", "host": "http://a.com", "header": "X-Key"});
        let plain = secret(plain).unwrap();
        assert_eq!(
            plain.read(&Grants::default()).err().unwrap(),
            "the secret `key` would be sent to `http://a.com` in plain text; use https, or add `private_network: [\"a.com:80\"]`"
        );
        let grants = Grants { private_network: vec!["a.com:80".parse().unwrap()], ..Grants::default() };
        assert!(plain.read(&grants).is_ok());
    }
}
