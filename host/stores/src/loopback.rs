//! Servers on this machine, which need no encryption.

use std::net::IpAddr;

use reqwest::Url;

/// Returns true if the host of a URL is this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        let is = |url: &str| is_loopback(&Url::parse(url).unwrap());
        for url in ["http://127.0.0.1:1/x", "http://127.9.9.9", "http://[::1]:1", "http://LOCALHOST"] {
            assert!(is(url), "{url}");
        }
        for url in ["http://10.0.0.1", "http://localhost.evil.example", "http://0.0.0.0", "http://[::]"] {
            assert!(!is(url), "{url}");
        }
    }
}
