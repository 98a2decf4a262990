//! The connection limit per peer.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hatchery_core::sync::MutexExt;

/// Counts the connections of each peer.
#[derive(Clone)]
pub(super) struct Peers {
    max: Arc<AtomicUsize>,
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A permit for one connection. It is released when it is dropped.
pub(super) struct PeerPermit {
    peers: Peers,
    key: IpAddr,
}

impl Peers {
    /// Allows each peer `max` connections, at least one.
    pub(super) fn new(max: usize) -> Self {
        Self { max: Arc::new(AtomicUsize::new(max.max(1))), open: Arc::default() }
    }

    /// Changes the number of connections of each peer. Open ones stay.
    pub(super) fn set_max(&self, max: usize) {
        self.max.store(max.max(1), Ordering::Relaxed);
    }

    /// Counts a new connection of a peer. `None` if the peer has the maximum number of connections.
    pub(super) fn acquire(&self, address: IpAddr) -> Option<PeerPermit> {
        let key = key(address);
        let mut open = self.open();
        let count = open.entry(key).or_default();
        if *count >= self.max.load(Ordering::Relaxed) {
            return None;
        }
        *count += 1;
        Some(PeerPermit { peers: self.clone(), key })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock_unpoisoned()
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut open = self.peers.open();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

/// Returns the key of a peer: the address, or the /64 network of an IPv6 address, since one machine can use all of its
/// addresses.
fn key(address: IpAddr) -> IpAddr {
    const NETWORK: u128 = u128::MAX << 64;
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_peer_has_its_own_limit() {
        let peers = Peers::new(2);
        let first = peers.acquire(ip("10.0.0.1")).unwrap();
        let _second = peers.acquire(ip("10.0.0.1")).unwrap();
        assert!(peers.acquire(ip("10.0.0.1")).is_none());
        assert!(peers.acquire(ip("10.0.0.2")).is_some());
        drop(first);
        assert!(peers.acquire(ip("10.0.0.1")).is_some());
        assert_eq!(peers.open().len(), 1, "peers without connections are removed");
    }

    #[test]
    fn one_machine_is_one_peer() {
        assert_eq!(key(ip("2001:db8:1:2:3::4")), key(ip("2001:db8:1:2:ffff::")));
        assert_ne!(key(ip("2001:db8:1:2::1")), key(ip("2001:db8:1:3::1")));
        assert_eq!(key(ip("::ffff:10.0.0.1")), key(ip("10.0.0.1")));
    }
}
