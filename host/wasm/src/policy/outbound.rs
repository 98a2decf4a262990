//! The egress policy of the host's own requests to addresses that others choose, in the notation of grants.

use std::net::IpAddr;

use http::Uri;

use super::network::{HostPattern, PrivateEntry, Target, blocked_range};

/// Hosts that requests may be sent to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutboundPolicy {
    /// Hosts, as in the grant `network`.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses that may be outside of the public internet, as in the grant `private_network`.
    pub private_network: Vec<PrivateEntry>,
}

impl OutboundPolicy {
    /// Checks the scheme, the host and the port of a URL. `key` is the setting that the refusal names.
    ///
    /// # Errors
    /// The refusal with the lines that would allow it.
    pub fn check_url(&self, url: &str, key: &str) -> Result<(), String> {
        let target = target(url)?;
        if self.network.iter().any(|pattern| pattern.allows(&target)) {
            return Ok(());
        }
        let scheme = if target.is_plain { "" } else { "https://" };
        Err(format!("requests to `{scheme}{target}` are not allowed; allow them by `{key}.network: [\"{target}\"]`"))
    }

    /// Checks an address that the host of a URL has. `key` is the setting that the refusal names.
    ///
    /// # Errors
    /// The refusal with the lines that would allow it.
    pub fn check_address(&self, url: &str, address: IpAddr, key: &str) -> Result<(), String> {
        let target = target(url)?;
        match blocked_range(&self.private_network, &target, address) {
            None => Ok(()),
            Some(range) => {
                let host = target.host_and_port();
                Err(format!("`{host}` is at {address}, {range}; allow it by `{key}.private_network: [\"{host}\"]`"))
            }
        }
    }
}

fn target(url: &str) -> Result<Target, String> {
    let uri: Uri = url.parse().map_err(|error| format!("the URL is invalid: {error}"))?;
    Target::from_uri(&uri).ok_or_else(|| "the URL has no valid host and port, or has credentials".into())
}

/// Returns the entries that allow requests to the host of a URL, which an operator has written down. A name that is not
/// known to be private gets no entry for private addresses.
///
/// # Errors
/// If the URL has no host.
pub fn entries_for(url: &str) -> Result<(HostPattern, Option<PrivateEntry>), String> {
    let target = target(url)?;
    let scheme = if target.is_plain { "http://" } else { "" };
    let pattern = format!("{scheme}{}", target.host_and_port()).parse()?;
    let private = target.is_known_private().then(|| target.host_and_port().parse()).transpose()?;
    Ok((pattern, private))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(network: &[&str], private: &[&str]) -> OutboundPolicy {
        OutboundPolicy {
            network: network.iter().map(|entry| entry.parse().unwrap()).collect(),
            private_network: private.iter().map(|entry| entry.parse().unwrap()).collect(),
        }
    }

    #[test]
    fn hosts_and_private_addresses_need_an_entry_each() {
        let hooks = policy(&["*", "http://127.0.0.1:9"], &["127.0.0.1:9"]);
        hooks.check_url("https://hooks.example/a", "push").unwrap();
        hooks.check_url("http://127.0.0.1:9/a", "push").unwrap();
        assert_eq!(
            hooks.check_url("http://hooks.example", "push").unwrap_err(),
            "requests to `http://hooks.example` are not allowed; allow them by `push.network: [\"http://hooks.example\"]`"
        );
        hooks.check_address("http://127.0.0.1:9", "127.0.0.1".parse().unwrap(), "push").unwrap();
        assert_eq!(
            hooks.check_address("https://hooks.example", "10.0.0.1".parse().unwrap(), "push").unwrap_err(),
            "`hooks.example:443` is at 10.0.0.1, a private address; allow it by `push.private_network: [\"hooks.example:443\"]`"
        );
        assert!(hooks.check_url("https://me:secret@hooks.example", "push").is_err());
    }

    #[test]
    fn a_configured_url_allows_its_own_host() {
        let (pattern, private) = entries_for("http://127.0.0.1:9/card").unwrap();
        assert_eq!(
            (pattern.to_string(), private.unwrap().to_string()),
            ("http://127.0.0.1:9".into(), "127.0.0.1:9".into())
        );
        let (pattern, private) = entries_for("https://agents.example/card").unwrap();
        assert_eq!((pattern.to_string(), private), ("agents.example".into(), None));
    }
}
