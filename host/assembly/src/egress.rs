//! Egress policies of the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hatchery_egress::{Egress, Url};
use hatchery_wasm::policy::OutboundPolicy;

/// A policy of the configuration, which can be withdrawn while the host runs.
pub(crate) struct HostEgress {
    policy: OutboundPolicy,
    /// The key that refusals name.
    key: String,
    is_withdrawn: AtomicBool,
}

impl HostEgress {
    pub(crate) fn new(policy: OutboundPolicy, key: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { policy, key: key.into(), is_withdrawn: AtomicBool::new(false) })
    }

    /// Refuses all requests from now on.
    pub(crate) fn withdraw(&self) {
        self.is_withdrawn.store(true, Ordering::Release);
    }
}

impl Egress for HostEgress {
    fn check_url(&self, url: &Url) -> Result<(), String> {
        if self.is_withdrawn.load(Ordering::Acquire) {
            return Err(format!("`{}` is not trusted any more", self.key));
        }
        self.policy.check_url(url.as_str(), &self.key)
    }

    fn check_address(&self, url: &Url, address: IpAddr) -> Result<(), String> {
        self.policy.check_address(url.as_str(), address, &self.key)
    }
}

/// Policies by the names of the agents or APIs that they are for.
pub(crate) type Policies = BTreeMap<String, Arc<HostEgress>>;
