//! The apps of the host for A2A clients, and the agents of other hosts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hatchery_a2a::{A2aAgents, A2aService, Egress, ServerSettings, Url};
use hatchery_engine::{App, AppDirectory, Extensions};
use hatchery_wasm::policy::OutboundPolicy;

use crate::config::A2aConfig;
use crate::host::Host;
use crate::source::AppSource;

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

/// The policies of remote agents by name.
pub(crate) type AgentPolicies = BTreeMap<String, Arc<HostEgress>>;

/// Registers the agent class of remote agents. Returns the agents and their policies.
pub(crate) fn register_agents(config: &A2aConfig, extensions: &mut Extensions) -> (A2aAgents, AgentPolicies) {
    // Cards are checked when the configuration is read.
    let policies = config.agents.iter().filter_map(|(name, agent)| {
        Some((name.clone(), HostEgress::new(agent.policy().ok()?, format!("a2a.agents.{name}"))))
    });
    let policies: AgentPolicies = policies.collect();
    let agents = config
        .agents
        .iter()
        .filter_map(|(name, agent)| Some((name.clone(), agent.settings(policies.get(name)?.clone()))));
    let refused = config.agents.iter().filter_map(|(name, agent)| Some((name.clone(), agent.refusal.clone()?)));
    let agents = A2aAgents::new(agents).with_refused(refused);
    agents.register(extensions);
    (agents, policies)
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

impl Host {
    /// Returns the host as an A2A server. It offers the apps that the configuration exposes.
    pub fn a2a_service(&self) -> A2aService {
        let (config, default) = (self.config(), ServerSettings::default());
        let push = config.a2a.push_policy().map(|policy| HostEgress::new(policy, "a2a.push") as Arc<dyn Egress>);
        let settings = ServerSettings {
            apps: config.a2a.expose.apps.clone(),
            default_app: config.a2a.expose.default_app.clone(),
            public_url: config.a2a.public_url.clone(),
            blocking_timeout: config.a2a.blocking_timeout.unwrap_or(default.blocking_timeout),
            keep_alive: config.server.keep_alive,
            max_runs: config.server.max_concurrent_runs,
            push,
            push_limits: default.push_limits,
        };
        A2aService::new(self.runner().clone(), Arc::new(ExposedApps(self.apps().clone())), settings)
    }
}
