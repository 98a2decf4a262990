//! The address of a server: TCP, or a Unix socket.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use hatchery_server::{AppState, BindError, Server};

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    /// Binds a server. Returns it with where it listens: port 0 has become the one that was chosen.
    pub(super) async fn bind(self, state: AppState) -> anyhow::Result<(Server, Self)> {
        let server = match &self {
            Self::Tcp(address) => Server::bind(*address, state).await.map_err(name_flag)?,
            Self::Unix(path) => Server::bind_unix(path, state).await?,
        };
        let listen = server.local_addr().map_or(self, Self::Tcp);
        Ok((server, listen))
    }

    /// Checks that no other program uses the port. A Unix socket is only checked when it is bound.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        match self {
            Self::Tcp(address) => Server::check_address(*address).await.map_err(name_flag),
            Self::Unix(_) => Ok(()),
        }
    }

    /// Returns true if only programs on this machine can connect.
    pub(super) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Returns a URL that a client on this machine can connect to; over a socket, it has no address.
    pub(super) fn url(&self, is_tls: bool) -> String {
        let scheme = if is_tls { "https" } else { "http" };
        match self {
            Self::Tcp(address) => format!("{scheme}://{}", connectable(*address)),
            Self::Unix(_) => format!("{scheme}://localhost"),
        }
    }

    /// Returns the socket.
    pub(super) fn socket(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Adds the flag that chooses another port to the error of a port that cannot be used.
fn name_flag(error: BindError) -> anyhow::Error {
    if let BindError::Listen { hint, .. } = &error
        && !hint.is_empty()
    {
        return anyhow!("{error} (--port)");
    }
    error.into()
}

/// Parses the value of `--listen`.
///
/// # Errors
/// If it names no Unix socket.
pub(super) fn parse_socket(text: &str) -> Result<PathBuf, String> {
    match text.strip_prefix("unix:") {
        Some(path) if !path.is_empty() => Ok(path.into()),
        _ => Err("write unix:PATH; a TCP address is set with --host and --port".into()),
    }
}

pub(super) fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok((ip, port).into());
    }
    let mut addresses = (host, port).to_socket_addrs().with_context(|| format!("--host {host}"))?;
    addresses.next().ok_or_else(|| anyhow!("--host {host}: the host name does not resolve to an address"))
}

/// Returns an address that a client on this machine can connect to.
fn connectable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => ([127, 0, 0, 1], address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_addresses_or_names() {
        assert_eq!(resolve("::1", 80).unwrap(), "[::1]:80".parse().unwrap());
        assert!(resolve("localhost", 80).unwrap().ip().is_loopback());
        let error = format!("{:#}", resolve("no such host", 80).unwrap_err());
        assert!(error.starts_with("--host no such host: "), "{error}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_answered_with_the_flag_for_another_one() {
        let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let error = ListenAddress::Tcp(other.local_addr().unwrap()).check().await.unwrap_err().to_string();
        assert!(error.ends_with("choose another one, or 0 for any free port (--port)"), "{error}");
    }

    #[test]
    fn a_socket_is_named_by_its_path() {
        assert_eq!(parse_socket("unix:/run/h.sock"), Ok("/run/h.sock".into()));
        for text in ["/run/h.sock", "unix:", "127.0.0.1:80"] {
            assert!(parse_socket(text).is_err_and(|error| error.starts_with("write unix:PATH")), "{text}");
        }
        let listen = ListenAddress::Unix("/run/h.sock".into());
        assert!(listen.is_local());
        assert_eq!((listen.to_string().as_str(), listen.url(false).as_str()), ("unix:/run/h.sock", "http://localhost"));
    }

    #[test]
    fn unspecified_addresses_are_reached_on_loopback() {
        for (address, expected) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")]
        {
            let listen = ListenAddress::Tcp(address.parse().unwrap());
            assert_eq!(listen.url(true), format!("https://{expected}"));
        }
    }
}
