//! `secrets`: what the host writes into a header of requests to one host. The guest never has it: it is read when the component is
//! loaded, put in after the request has left the guest, and shown nowhere.
//!
//! The guest can use a secret for any request to its host, and a host that sends back what it was sent tells the guest.

use std::path::{Path, PathBuf};

use http::{HeaderName, HeaderValue};
use serde::Deserialize;

use super::Grants;
use super::network::{HostPattern, Target};

const PLACE: &str = "{secret}";

/// An entry of `secrets`: where a secret is and where it goes. It does not hold the secret.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
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

/// As `hatchery.yaml` has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// What messages call it.
    name: String,
    /// The environment variable that holds it.
    from: Option<String>,
    /// The file that holds it, from the host's working directory; a line end at its end does not count.
    file: Option<PathBuf>,
    /// The host that it is for, as in `network`, but one host and one port.
    host: String,
    /// The header that carries it.
    header: String,
    /// The header's value, with `{secret}` where the secret goes.
    #[serde(default = "plainly")]
    format: String,
}

fn plainly() -> String {
    PLACE.into()
}

impl TryFrom<Written> for Secret {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        let Written { name, from, file, host: host_text, header, format } = written;
        let wrong = |reason: String| format!("the secret `{name}`: {reason}");
        let source = match (from, file) {
            (Some(variable), None) => Source::Variable(variable),
            (None, Some(file)) => Source::File(file),
            (Some(_), Some(_)) | (None, None) => {
                return Err(wrong("say either `from:`, an environment variable, or `file:`".into()));
            }
        };
        let host: HostPattern = host_text.parse().map_err(wrong)?;
        if !host.is_exact() {
            return Err(wrong(format!(
                "`host: {host_text}` is more than one host; a secret goes to one host and port"
            )));
        }
        let header = HeaderName::try_from(&header).map_err(|_| wrong(format!("`{header}` is not a header")))?;
        if !format.contains(PLACE) {
            return Err(wrong(format!("`format: {format}` has no `{PLACE}`")));
        }
        Ok(Self { name, source, host, host_text, header, format })
    }
}

/// A secret that is ready to be placed. The value is marked so that nothing shows it.
pub(crate) struct ResolvedSecret {
    host: HostPattern,
    header: HeaderName,
    value: HeaderValue,
}

impl ResolvedSecret {
    /// Puts the secret into a request to `target`, if it is for that. It takes the place of what the guest has put there.
    pub(crate) fn place(&self, target: &Target, headers: &mut http::HeaderMap) {
        if self.host.allows(target) {
            headers.insert(self.header.clone(), self.value.clone());
        }
    }
}

impl Secret {
    /// What messages call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The host that it is for, as it is written.
    pub fn host(&self) -> &str {
        &self.host_text
    }

    /// The file that holds it, if one does.
    pub fn file(&self) -> Option<&Path> {
        match &self.source {
            Source::File(file) => Some(file),
            Source::Variable(_) => None,
        }
    }

    /// Reads the secret.
    ///
    /// # Errors
    /// When it is missing, cannot be a header, or would be sent in plain text to a host that is not in `private_network`; the message names
    /// the secret and where it was looked for, and never quotes it.
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
        let mut value = HeaderValue::try_from(self.format.replace(PLACE, secret))
            .map_err(|_| format!("the secret `{name}` has characters that no header can have"))?;
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
    fn a_secret_that_makes_no_sense_is_refused() {
        let read = |change: &dyn Fn(&mut serde_json::Value)| {
            let mut yaml = serde_json::json!({"name": "key", "from": "KEY", "host": "a.com", "header": "X-Key"});
            change(&mut yaml);
            secret(yaml).map(|_| ()).unwrap_err()
        };
        assert_eq!(
            read(&|yaml| yaml["file"] = "f".into()),
            "the secret `key`: say either `from:`, an environment variable, or `file:`"
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
    fn a_secret_takes_the_place_of_what_the_guest_set_and_is_not_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let yaml = serde_json::json!({
            "name": "key", "file": file.path(), "host": "a.com", "header": "Authorization", "format": "Bearer {secret}",
        });
        let placed = secret(yaml).unwrap().read(&Grants::default()).ok().unwrap();
        let mut headers = http::HeaderMap::new();
        headers.append("authorization", HeaderValue::from_static("guest"));
        headers.append("authorization", HeaderValue::from_static("guest too"));
        let place = |uri: &str, headers: &mut _| placed.place(&Target::of(&uri.parse().unwrap()).unwrap(), headers);
        for other in ["https://b.com", "https://a.com:8443", "http://a.com", "https://x.a.com"] {
            place(other, &mut headers);
            assert_eq!(headers["authorization"], "guest", "{other}");
        }
        place("https://a.com/path", &mut headers);
        assert_eq!(headers.get_all("authorization").iter().collect::<Vec<_>>(), ["Bearer s3cret"]);
        assert!(!format!("{headers:?}").contains("s3cret"));
    }

    #[test]
    fn what_is_missing_is_named_and_plain_text_is_for_private_hosts() {
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
