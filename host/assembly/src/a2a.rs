//! The apps of the host for A2A clients, and the agents of other hosts.

use std::sync::Arc;

use hatchery_a2a::{A2aAgents, A2aService, Egress, ServerSettings};
use hatchery_engine::{App, AppDirectory};

use crate::config::{A2aConfig, Config};
use crate::egress::{HostEgress, Policies};
use crate::host::Host;
use crate::source::AppSource;

/// Returns the configured agents of other hosts, and the policies of their requests.
pub(crate) fn agents(config: &A2aConfig) -> (A2aAgents, Policies) {
    // Cards are checked when the configuration is read.
    let used = config.agents.iter().filter(|(_, agent)| agent.refusal.is_none());
    let policies = used.filter_map(|(name, agent)| {
        Some((name.clone(), HostEgress::new(agent.policy().ok()?, format!("a2a.agents.{name}"))))
    });
    let policies: Policies = policies.collect();
    let agents = config
        .agents
        .iter()
        .filter_map(|(name, agent)| Some((name.clone(), agent.settings(policies.get(name)?.clone()))));
    let refused = config.agents.iter().filter_map(|(name, agent)| Some((name.clone(), agent.refusal.clone()?)));
    (A2aAgents::new(agents).with_refused(refused), policies)
}

/// Returns the policy of push notifications. `None` if there are none.
pub(crate) fn push_policy(config: &A2aConfig) -> Option<Arc<HostEgress>> {
    config.push_policy().map(|policy| HostEgress::new(policy, "a2a.push"))
}

/// The apps of the host.
struct ExposedApps(Arc<dyn AppSource>);

impl AppDirectory for ExposedApps {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.0.app(name)
    }

    fn app_names(&self) -> Vec<String> {
        self.0.app_names()
    }
}

/// Returns the settings of the A2A server, with the policy of push notifications.
pub(crate) fn server_settings(config: &Config, push: Option<Arc<HostEgress>>) -> ServerSettings {
    let default = ServerSettings::default();
    ServerSettings {
        apps: config.a2a.expose.apps.clone(),
        default_app: config.a2a.expose.default_app.clone(),
        versions: config.a2a.expose.versions.iter().copied().map(Into::into).collect(),
        input_modes: config.a2a.expose.input_modes.clone().unwrap_or(default.input_modes),
        public_url: config.a2a.public_url.clone(),
        is_tls: config.server.tls.is_some(),
        has_authentication: config.server.auth.is_some(),
        blocking_timeout: config.a2a.blocking_timeout.unwrap_or(default.blocking_timeout),
        keep_alive: config.server.keep_alive,
        max_runs: config.server.max_concurrent_runs,
        push: push.map(|policy| policy as Arc<dyn Egress>),
        push_limits: default.push_limits,
    }
}

impl Host {
    /// Returns the host as an A2A server. It offers the apps that the configuration in force exposes.
    pub fn a2a_service(&self) -> A2aService {
        let apps = Arc::new(ExposedApps(self.apps().clone()));
        self.live().add_a2a_service(|settings| A2aService::new(self.runner().clone(), apps, settings))
    }
}
