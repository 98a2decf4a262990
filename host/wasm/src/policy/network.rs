//! Egress policy for HTTP: `network` and `private_network`.
//!
//! A request passes two checks. `network`: may the component send to this scheme, host name and port?
//! `private_network`: may it connect to the address that the name resolves to, if the address is not public? A name
//! does not determine its address, so both checks are needed.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use serde::Deserialize;

use super::address::{Cidr, ReservedRange, reserved_range};

/// An entry of `network`: `host[:port]`. `*.` before a host matches all its subdomains, `*` any host or port, and
/// `http://` allows plain text. The default port is the scheme's.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPattern {
    is_plain: bool,
    host: Host,
    port: Port,
}

/// An entry of `private_network`: `host:port`, an address, or an address range such as `10.0.0.0/8`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PrivateEntry(PrivateTarget);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PrivateTarget {
    Range(Cidr),
    Named(Host, Port),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Any,
    /// Subdomains; the text begins with a dot.
    Subdomain(String),
    /// A name in lower case, or an address in Rust's notation.
    Exact(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Any,
    Is(u16),
}

/// The destination of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) is_plain: bool,
    /// A name in lower case without a trailing dot, or an address in Rust's notation.
    pub(crate) host: String,
    /// The address, if the host is one.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Target {
    /// Returns the destination of a request with this URL. `None` if the URL has no valid host and port.
    pub(crate) fn from_uri(uri: &Uri) -> Option<Self> {
        let authority = uri.authority()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        let host = normalize(authority.host())?;
        // `Authority::port` returns `None` for a number that is too large, as if there were no port.
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" | ":" => default_port(is_plain),
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        Some(Self { is_plain, address: host.parse().ok(), host, port })
    }

    /// Returns `host:port`, in the notation of `private_network`.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", url_host(&self.host), self.port)
    }

    /// Returns true if the host is known to be private without resolving it.
    pub(crate) fn is_known_private(&self) -> bool {
        let is_local_name = self.host == "localhost" || self.host.ends_with(".localhost");
        is_local_name || self.address.is_some_and(|address| reserved_range(address).is_some())
    }
}

/// In the notation of `network`.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_plain { "http://" } else { "" })?;
        self.host.fmt(f)?;
        if self.port == Port::Is(default_port(self.is_plain)) { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl fmt::Display for PrivateEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            PrivateTarget::Range(range) => range.fmt(f),
            PrivateTarget::Named(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Subdomain(suffix) => write!(f, "*{suffix}"),
            Self::Exact(host) => f.write_str(&url_host(host)),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Is(port) => port.fmt(f),
        }
    }
}

/// In the notation of `network`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = url_host(&self.host);
        f.write_str(if self.is_plain { "http://" } else { "" })?;
        if self.port == default_port(self.is_plain) { f.write_str(&host) } else { write!(f, "{host}:{}", self.port) }
    }
}

impl HostPattern {
    /// Returns true if requests to `target` are allowed.
    pub(crate) fn allows(&self, target: &Target) -> bool {
        self.is_plain == target.is_plain && self.host.matches(target) && self.port.matches(target.port)
    }

    /// Returns true if this pattern matches every target that `other` matches.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (Host::Any, _) => true,
            (Host::Subdomain(suffix), Host::Subdomain(other)) => other.ends_with(suffix),
            (Host::Subdomain(suffix), Host::Exact(host)) => {
                !is_address(host) && host.len() > suffix.len() && host.ends_with(suffix)
            }
            (one, other) => one == other,
        };
        host && self.is_plain == other.is_plain && (self.port == Port::Any || self.port == other.port)
    }

    /// Returns true if the pattern matches exactly one host and one port.
    pub(crate) fn is_exact(&self) -> bool {
        matches!((&self.host, self.port), (Host::Exact(_), Port::Is(_)))
    }

    /// Returns the target of an exact plain-text entry.
    pub(crate) fn plain_target(&self) -> Option<Target> {
        match (self.is_plain, &self.host, self.port) {
            (true, Host::Exact(host), Port::Is(port)) => {
                Some(Target { is_plain: true, address: host.parse().ok(), host: host.clone(), port })
            }
            _ => None,
        }
    }
}

impl PrivateEntry {
    /// Returns true if requests to `target` may use an address that is not public. `address` is the resolved address,
    /// if known.
    pub(crate) fn allows(&self, target: &Target, address: Option<IpAddr>) -> bool {
        match &self.0 {
            PrivateTarget::Range(range) => address.is_some_and(|address| range.covers(address)),
            PrivateTarget::Named(host, port) => host.matches(target) && port.matches(target.port),
        }
    }
}

/// Returns the reserved range of `address`, unless `grants` allow connections to it for `target`.
pub(crate) fn blocked_range(grants: &[PrivateEntry], target: &Target, address: IpAddr) -> Option<ReservedRange> {
    reserved_range(address).filter(|_| !grants.iter().any(|entry| entry.allows(target, Some(address))))
}

impl Host {
    fn matches(&self, target: &Target) -> bool {
        match self {
            Self::Any => true,
            Self::Subdomain(suffix) => {
                target.address.is_none() && target.host.len() > suffix.len() && target.host.ends_with(suffix)
            }
            Self::Exact(host) => *host == target.host,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        match text.strip_prefix("*.") {
            Some(parent) => normalize(parent)
                .filter(|parent| !is_address(parent))
                .map(|parent| Self::Subdomain(format!(".{parent}"))),
            None => normalize(text).map(Self::Exact),
        }
    }
}

impl Port {
    fn matches(self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Is(only) => only == port,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" { Some(Self::Any) } else { text.parse().ok().filter(|port| *port != 0).map(Self::Is) }
    }
}

impl FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (is_plain, rest) = match text.split_once("://") {
            Some(("http", rest)) => (true, rest),
            Some(("https", rest)) => (false, rest),
            Some(_) => (false, ""),
            None => (false, text),
        };
        let parsed = split_port(rest).and_then(|(host, port)| {
            let port = port.map_or(Some(Port::Is(default_port(is_plain))), Port::parse)?;
            Some(Self { is_plain, host: Host::parse(host)?, port })
        });
        parsed.ok_or_else(|| {
            format!(
                "`{text}` is not a host; write it as `api.example.com`, `*.example.com:8443` or, for plain text, `http://localhost:9000`"
            )
        })
    }
}

impl FromStr for PrivateEntry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(range) = text.parse() {
            return Ok(Self(PrivateTarget::Range(range)));
        }
        let named = split_port(text).and_then(|(host, port)| {
            let host = Host::parse(host).filter(|host| *host != Host::Any)?;
            Some(Self(PrivateTarget::Named(host, Port::parse(port?)?)))
        });
        named.ok_or_else(|| {
            format!("`{text}` is not a private host; write it as `localhost:9000`, `localhost:*`, `127.0.0.1` or `10.0.0.0/8`")
        })
    }
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl TryFrom<String> for PrivateEntry {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

fn default_port(is_plain: bool) -> u16 {
    if is_plain { 80 } else { 443 }
}

/// Splits a text into the host, in brackets if it is an IPv6 address, and the port.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some((_, after)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let host = text.get(..text.len() - after.len())?;
        return if after.is_empty() { Some((host, None)) } else { Some((host, Some(after.strip_prefix(':')?))) };
    }
    match text.split_once(':') {
        Some((host, port)) => Some((host, Some(port))),
        None => Some((text, None)),
    }
}

/// Normalizes a host for comparison: an address in Rust's notation, or a name in lower case without a trailing dot.
fn normalize(host: &str) -> Option<String> {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().ok().map(|address| address.to_string());
    }
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    host.split('.').all(is_label).then(|| host.to_ascii_lowercase())
}

fn is_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
        || host.rsplit('.').next().is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit()))
}

fn url_host(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> Target {
        Target::from_uri(&uri.parse().unwrap()).unwrap()
    }

    fn allows(pattern: &str, uri: &str) -> bool {
        pattern.parse::<HostPattern>().unwrap().allows(&target(uri))
    }

    #[test]
    fn a_host_is_allowed_with_its_scheme_and_port_only() {
        assert!(allows("api.example.com", "https://api.example.com/x"));
        assert!(allows("API.example.com", "https://Api.Example.com.:443/x"));
        assert!(!allows("api.example.com", "http://api.example.com/x"), "plain text has to be allowed");
        assert!(!allows("api.example.com", "https://api.example.com:8443/x"));
        assert!(!allows("api.example.com", "https://example.com/"));
        assert!(!allows("api.example.com", "https://xapi.example.com/"));
        assert!(allows("http://localhost:9000", "http://localhost:9000/"));
        assert!(!allows("http://localhost:9000", "https://localhost:9000/"));
        assert!(allows("example.com:*", "https://example.com:1/"));
        assert!(allows("http://[::1]:8080", "http://[0:0::1]:8080/"));
        assert!(!allows("localhost:9000", "https://127.0.0.1:9000"), "a name is not its address");
    }

    #[test]
    fn a_wildcard_is_for_the_names_below_a_host() {
        assert!(allows("*.example.org:8443", "https://a.example.org:8443/"));
        assert!(allows("*.example.org", "https://a.b.example.org/"));
        assert!(!allows("*.example.org", "https://example.org/"));
        assert!(!allows("*.example.org", "https://badexample.org/"));
        assert!(!allows("*.example.org", "https://example.org.evil.com/"));
        assert!(allows("*", "https://anything.com/") && !allows("*", "http://anything.com/"));
    }

    #[test]
    fn a_pattern_is_written_as_it_was_read_and_covers_narrower_ones() {
        let pattern = |text: &str| text.parse::<HostPattern>().unwrap();
        for text in ["api.example.com", "*.example.com:8443", "http://localhost:9000", "*", "example.com:*", "[::1]"] {
            assert_eq!(pattern(text).to_string(), text);
        }
        for text in ["localhost:9000", "localhost:*", "10.0.0.0/8"] {
            assert_eq!(text.parse::<PrivateEntry>().unwrap().to_string(), text);
        }
        for (wide, narrow) in [
            ("*", "*.a.com"),
            ("*.a.com", "b.a.com"),
            ("*.a.com", "*.b.a.com"),
            ("a.com:*", "a.com"),
            ("a.com", "A.com:443"),
        ] {
            assert!(pattern(wide).covers(&pattern(narrow)), "{wide} {narrow}");
        }
        for (one, other) in
            [("*.a.com", "a.com"), ("a.com", "*.a.com"), ("a.com", "http://a.com"), ("a.com", "a.com:*")]
        {
            assert!(!pattern(one).covers(&pattern(other)), "{one} {other}");
        }
    }

    #[test]
    fn an_invalid_host_is_refused_with_examples() {
        for text in [
            "",
            "https://",
            "ftp://a",
            "a/b",
            "a b",
            "user@host",
            "host:0",
            "host:99999",
            "host:",
            "*.1.2.3",
            "**",
            "a.*",
            "a..b",
            "::1",
            "[::1",
            "[x]",
            "[::1]x",
        ] {
            let error = text.parse::<HostPattern>().unwrap_err();
            assert!(error.contains(&format!("`{text}` is not a host; write it as `api.example.com`")), "{error}");
        }
        for text in ["localhost", "*:80", "http://localhost:80", "10.0.0.0/99", ""] {
            let error = text.parse::<PrivateEntry>().unwrap_err();
            assert!(
                error.contains(&format!("`{text}` is not a private host; write it as `localhost:9000`")),
                "{error}"
            );
        }
    }

    #[test]
    fn a_target_is_written_as_the_entry_that_allows_it() {
        for uri in [
            "https://a.com",
            "https://a.com:8443",
            "http://a.com",
            "http://a.com:81",
            "http://[::1]:81",
            "https://10.0.0.1",
        ] {
            let target = target(uri);
            assert_eq!(target.to_string(), uri.strip_prefix("https://").unwrap_or(uri));
            assert!(target.to_string().parse::<HostPattern>().unwrap().allows(&target));
            assert!(target.host_and_port().parse::<PrivateEntry>().unwrap().allows(&target, None));
        }
        assert_eq!(Target::from_uri(&"https://user@a.com/".parse().unwrap()), None);
        assert_eq!(Target::from_uri(&"/path".parse().unwrap()), None);
        for uri in ["https://a.com:65536/", "https://a.com:99999/", "http://[::1]:65616/"] {
            assert_eq!(uri.parse().ok().and_then(|uri| Target::from_uri(&uri)), None, "{uri}");
        }
        assert_eq!(target("https://a.com:/").port, 443);
    }

    #[test]
    fn entries_are_shown_as_they_can_be_written() {
        for text in ["a.com", "*.a.com:8443", "http://[::1]:*", "*", "http://a.com"] {
            assert_eq!(text.parse::<HostPattern>().unwrap().to_string(), text);
        }
        for text in ["localhost:*", "[::1]:80", "10.0.0.0/8", "127.0.0.1"] {
            assert_eq!(text.parse::<PrivateEntry>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_address_that_is_not_public_has_to_be_allowed() {
        let entries = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<PrivateEntry>>();
        let local = target("http://localhost:9000");
        let ip = |text: &str| text.parse().unwrap();
        assert_eq!(blocked_range(&[], &local, ip("127.0.0.1")), Some(ReservedRange::Loopback));
        assert_eq!(blocked_range(&[], &local, ip("1.1.1.1")), None);
        assert_eq!(blocked_range(&entries(&["localhost:9000"]), &local, ip("127.0.0.1")), None);
        assert_eq!(
            blocked_range(&entries(&["localhost:9001"]), &local, ip("127.0.0.1")),
            Some(ReservedRange::Loopback)
        );
        assert_eq!(blocked_range(&entries(&["127.0.0.0/8"]), &local, ip("127.0.0.1")), None);
        assert_eq!(blocked_range(&entries(&["127.0.0.0/8"]), &local, ip("::1")), Some(ReservedRange::Loopback));
        assert_eq!(blocked_range(&entries(&["*.localhost:*"]), &target("http://a.localhost:1"), ip("::1")), None);
    }
}
