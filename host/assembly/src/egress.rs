//! Egress policies of the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, RwLock};

use hatchery_core::sync::RwLockExt;
use hatchery_egress::{Egress, Url};
use hatchery_wasm::policy::OutboundPolicy;

/// A policy of the configuration, which can be restricted while the host runs.
pub(crate) struct HostEgress {
    policy: OutboundPolicy,
    /// The key that refusals name.
    key: String,
    restriction: RwLock<Restriction>,
}

/// Restriction of a policy since the start.
enum Restriction {
    /// Only access that this policy allows too.
    To(OutboundPolicy),
    /// Everything.
    Withdrawn,
}

impl HostEgress {
    pub(crate) fn new(policy: OutboundPolicy, key: impl Into<String>) -> Arc<Self> {
        let restriction = RwLock::new(Restriction::To(policy.clone()));
        Arc::new(Self { policy, key: key.into(), restriction })
    }

    /// Refuses from now on all access that `now` does not allow; all access for good if it is `None`. The initial
    /// policy still applies. Returns true if all access is withdrawn by this call.
    pub(crate) fn restrict(&self, now: Option<OutboundPolicy>) -> bool {
        let mut restriction = self.restriction.write_unpoisoned();
        if matches!(*restriction, Restriction::Withdrawn) {
            return false;
        }
        let is_withdrawn = now.is_none();
        *restriction = now.map_or(Restriction::Withdrawn, Restriction::To);
        is_withdrawn
    }

    fn check(&self, check: impl Fn(&OutboundPolicy) -> Result<(), String>) -> Result<(), String> {
        match &*self.restriction.read_unpoisoned() {
            Restriction::To(now) => check(&self.policy).and_then(|()| check(now)),
            Restriction::Withdrawn => {
                Err(format!("`{}` was removed from hatchery.yaml or is not trusted any more", self.key))
            }
        }
    }
}

impl Egress for HostEgress {
    fn check_url(&self, url: &Url) -> Result<(), String> {
        self.check(|policy| policy.check_url(url.as_str(), &self.key))
    }

    fn check_address(&self, url: &Url, address: IpAddr) -> Result<(), String> {
        self.check(|policy| policy.check_address(url.as_str(), address, &self.key))
    }
}

/// Policies by the names of the agents or APIs that they are for.
pub(crate) type Policies = BTreeMap<String, Arc<HostEgress>>;
