//! `network` and `private_network`: where a component may send HTTP requests.
//!
//! Two questions, asked one after the other. `network`: may it send to this scheme, name and port? `private_network`: may it connect to
//! the address that the name has, when that is not one of the public internet? A name says nothing about the address behind it, so
//! neither answer stands for the other.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use http::Uri;
use http::uri::Scheme;
use serde::Deserialize;

use super::address::{Cidr, ReservedRange, reserved_range};

/// An entry of `network`: `host[:port]`, where `*.` before a host stands for all names below it, `*` for any host or port, and `http://`
/// for requests in plain text. Without a port it is the scheme's own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HostPattern {
    is_plain: bool,
    host: Host,
    port: Port,
}

/// An entry of `private_network`: `host:port`, an address, or a range of addresses such as `10.0.0.0/8`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PrivateEntry(Private);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Private {
    Range(Cidr),
    Named(Host, Port),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Any,
    /// Names that end so; it begins with a dot.
    Below(String),
    /// A name in lower case, or an address as Rust writes it.
    Exact(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Port {
    Any,
    Is(u16),
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) is_plain: bool,
    /// A name in lower case without a dot at its end, or an address as Rust writes it.
    pub(crate) host: String,
    /// The address when that is what the request names.
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Target {
    /// Where a request with this URL goes; nothing when that cannot be said.
    pub(crate) fn of(uri: &Uri) -> Option<Self> {
        let authority = uri.authority()?;
        if authority.as_str().contains('@') {
            return None;
        }
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        let host = normal(authority.host())?;
        // `Authority::port` has none for a number that is too large, as if it were not written.
        let port = match authority.as_str().strip_prefix(authority.host())? {
            "" | ":" => usual_port(is_plain),
            port => port.strip_prefix(':')?.parse().ok()?,
        };
        Some(Self { is_plain, address: host.parse().ok(), host, port })
    }

    /// `host:port`, as an entry of `private_network` says it.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", bracketed(&self.host), self.port)
    }

    /// True when the name alone says that its address is not public.
    pub(crate) fn is_known_private(&self) -> bool {
        let is_local_name = self.host == "localhost" || self.host.ends_with(".localhost");
        is_local_name || self.address.is_some_and(|address| reserved_range(address).is_some())
    }
}

/// As an entry of `network` says it.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_plain { "http://" } else { "" })?;
        self.host.fmt(f)?;
        if self.port == Port::Is(usual_port(self.is_plain)) { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl fmt::Display for PrivateEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Private::Range(range) => range.fmt(f),
            Private::Named(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Below(end) => write!(f, "*{end}"),
            Self::Exact(host) => f.write_str(&bracketed(host)),
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

/// As an entry of `network` says it.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = bracketed(&self.host);
        f.write_str(if self.is_plain { "http://" } else { "" })?;
        if self.port == usual_port(self.is_plain) { f.write_str(&host) } else { write!(f, "{host}:{}", self.port) }
    }
}

impl HostPattern {
    /// True when requests may go to `target`.
    pub(crate) fn allows(&self, target: &Target) -> bool {
        self.is_plain == target.is_plain && self.host.matches(target) && self.port.matches(target.port)
    }

    /// True when it stands for all that the other does.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (Host::Any, _) => true,
            (Host::Below(end), Host::Below(other)) => other.ends_with(end),
            (Host::Below(end), Host::Exact(host)) => !is_address(host) && host.len() > end.len() && host.ends_with(end),
            (one, other) => one == other,
        };
        host && self.is_plain == other.is_plain && (self.port == Port::Any || self.port == other.port)
    }

    /// True when it stands for one host and one port.
    pub(crate) fn is_exact(&self) -> bool {
        matches!((&self.host, self.port), (Host::Exact(_), Port::Is(_)))
    }

    /// The one host and port of an exact entry that is for plain text.
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
    /// True when requests to `target` may use an address that is not public. `address` is what its name has, once that is known.
    pub(crate) fn allows(&self, target: &Target, address: Option<IpAddr>) -> bool {
        match &self.0 {
            Private::Range(range) => address.is_some_and(|address| range.covers(address)),
            Private::Named(host, port) => host.matches(target) && port.matches(target.port),
        }
    }
}

/// What is reserved_range about an address that `target` has, unless `grants` allow it.
pub(crate) fn blocked_range(grants: &[PrivateEntry], target: &Target, address: IpAddr) -> Option<ReservedRange> {
    reserved_range(address).filter(|_| !grants.iter().any(|entry| entry.allows(target, Some(address))))
}

impl Host {
    fn matches(&self, target: &Target) -> bool {
        match self {
            Self::Any => true,
            Self::Below(end) => target.address.is_none() && target.host.len() > end.len() && target.host.ends_with(end),
            Self::Exact(host) => *host == target.host,
        }
    }

    fn parse(text: &str) -> Option<Self> {
        if text == "*" {
            return Some(Self::Any);
        }
        match text.strip_prefix("*.") {
            Some(parent) => {
                normal(parent).filter(|parent| !is_address(parent)).map(|parent| Self::Below(format!(".{parent}")))
            }
            None => normal(text).map(Self::Exact),
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
            let port = port.map_or(Some(Port::Is(usual_port(is_plain))), Port::parse)?;
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
            return Ok(Self(Private::Range(range)));
        }
        let named = split_port(text).and_then(|(host, port)| {
            let host = Host::parse(host).filter(|host| *host != Host::Any)?;
            Some(Self(Private::Named(host, Port::parse(port?)?)))
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

fn usual_port(is_plain: bool) -> u16 {
    if is_plain { 80 } else { 443 }
}

/// The host, in brackets when it is an IPv6 address, and the port.
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

/// A host as it is compared: an address as Rust writes it, a name in lower case and without a dot at its end.
fn normal(host: &str) -> Option<String> {
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

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(uri: &str) -> Target {
        Target::of(&uri.parse().unwrap()).unwrap()
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
    fn what_is_no_host_is_refused_with_examples() {
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
        assert_eq!(Target::of(&"https://user@a.com/".parse().unwrap()), None);
        assert_eq!(Target::of(&"/path".parse().unwrap()), None);
        for uri in ["https://a.com:65536/", "https://a.com:99999/", "http://[::1]:65616/"] {
            assert_eq!(uri.parse().ok().and_then(|uri| Target::of(&uri)), None, "{uri}");
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
