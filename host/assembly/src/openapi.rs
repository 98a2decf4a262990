//! The HTTP APIs of the configuration, for agents.

use std::collections::BTreeMap;

use hatchery_openapi::Apis;

use crate::config::{IntegrationConfig, OpenApiConfig};
use crate::egress::{HostEgress, Policies};

/// Returns the configured APIs, and the policies of their requests.
pub(crate) fn apis(config: &OpenApiConfig) -> (Apis, Policies) {
    // URLs are checked when the configuration is read.
    let used = config.apis.iter().filter(|(_, api)| api.refusal.is_none());
    let policies = used.clone().filter_map(|(name, api)| {
        Some((name.clone(), HostEgress::new(api.policy().ok()?, format!("openapi.apis.{name}"))))
    });
    let policies: Policies = policies.collect();
    let used = used.filter_map(|(name, api)| Some((name.clone(), api.settings(policies.get(name)?.clone())?)));
    let refused = config.apis.iter().filter_map(|(name, api)| Some((name.clone(), api.refusal.clone()?)));
    (Apis::new(used).with_refused(refused), policies)
}

/// Returns the configured integrations and connections, and the policies of their requests.
pub(crate) fn integrations(config: &BTreeMap<String, IntegrationConfig>) -> (Apis, Policies) {
    let used = config.iter().filter(|(_, integration)| integration.refusal.is_none());
    let policies = used.clone().filter_map(|(name, integration)| {
        Some((name.clone(), HostEgress::new(integration.policy().ok()?, format!("integrations.{name}"))))
    });
    let policies: Policies = policies.collect();
    let used =
        used.filter_map(|(name, integration)| Some((name.clone(), integration.settings(policies.get(name)?.clone())?)));
    let refused = config.iter().filter_map(|(name, integration)| Some((name.clone(), integration.refusal.clone()?)));
    (Apis::integrations(used).with_refused(refused), policies)
}
