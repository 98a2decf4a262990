//! The connections of the configuration to other hosts, and their replacement while the host runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use hatchery_a2a::A2aAgents;
use hatchery_core::sync::MutexExt;
use hatchery_core::{CodeExecutor, CredentialService};
use hatchery_engine::Extensions;
use hatchery_mcp::McpServers;
use hatchery_openapi::Apis;
use tokio::task::JoinSet;

use crate::a2a;
use crate::code_executors::{self, CodeExecutors, RevocableExecutor};
use crate::config::Config;
use crate::egress::{HostEgress, Policies};
use crate::openapi;
use crate::retrieval::{self, Indexes};

/// The configured MCP servers, remote agents, HTTP APIs, integrations, code executors and searched folders. Clones
/// share them.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) mcp_servers: McpServers,
    pub(super) a2a_agents: A2aAgents,
    pub(super) openapi: Apis,
    integrations: Apis,
    credentials: Arc<dyn CredentialService>,
    indexes: Arc<ArcSwap<Indexes>>,
    parts: Arc<Mutex<ReplaceableParts>>,
    /// Code executors that are being closed. Their containers may take a while to end.
    closing: Arc<Mutex<JoinSet<()>>>,
}

/// The parts that a changed configuration replaces as a whole.
struct ReplaceableParts {
    /// The policy of push notifications. `None` if there are none.
    push_policy: Option<Arc<HostEgress>>,
    a2a_policies: Policies,
    api_policies: Policies,
    integration_policies: Policies,
    executors: CodeExecutors,
}

impl Connections {
    /// Creates the connections of a configuration. With `starts`, they are opened, and documents read, as soon as an
    /// agent uses them instead of at their first use.
    pub(super) fn new(
        config: &Config,
        credentials: &Arc<dyn CredentialService>,
        indexes: Indexes,
        starts: bool,
    ) -> Self {
        let mcp_servers = config.mcp.servers(credentials);
        let (openapi, api_policies) = openapi::apis(&config.openapi);
        let (integrations, integration_policies) = openapi::integrations(&config.integrations);
        if starts {
            mcp_servers.start();
            openapi.start();
            integrations.start();
        }
        let (a2a_agents, a2a_policies) = a2a::agents(&config.a2a);
        let parts = ReplaceableParts {
            push_policy: a2a::push_policy(&config.a2a),
            a2a_policies,
            api_policies,
            integration_policies,
            executors: code_executors::create_executors(&config.code_executors, CodeExecutors::new()),
        };
        Self {
            mcp_servers,
            a2a_agents,
            openapi,
            integrations,
            credentials: credentials.clone(),
            indexes: Arc::new(ArcSwap::from_pointee(indexes)),
            parts: Arc::new(Mutex::new(parts)),
            closing: Arc::default(),
        }
    }

    /// Registers toolsets, agent classes and code executors.
    pub(super) fn register(&self, extensions: &mut Extensions) {
        self.mcp_servers.register(extensions);
        self.a2a_agents.register(extensions);
        self.openapi.register(extensions);
        self.integrations.register(extensions);
        code_executors::register(&self.parts.lock_unpoisoned().executors, extensions);
        retrieval::register(self.indexes.load_full(), extensions);
    }

    /// Returns the policy of push notifications. `None` if there are none.
    pub(super) fn push_policy(&self) -> Option<Arc<HostEgress>> {
        self.parts.lock_unpoisoned().push_policy.clone()
    }

    pub(super) fn indexes(&self) -> Arc<Indexes> {
        self.indexes.load_full()
    }

    /// Replaces the parts that differ in a changed configuration. Active runs keep their parts, except for access that
    /// was removed. The caller registers the result.
    pub(super) async fn replace(&self, before: &Config, now: &Config, indexes: Option<Indexes>) {
        self.withdraw_removed(before, now).await;
        let kept = unchanged_names(&before.mcp.servers, &now.mcp.servers);
        self.mcp_servers.replace(&now.mcp.servers(&self.credentials), &kept);
        if let Some(indexes) = indexes {
            self.indexes.store(Arc::new(indexes));
        }
        let mut parts = self.parts.lock_unpoisoned();
        let kept = unchanged_names(&before.a2a.agents, &now.a2a.agents);
        let (agents, policies) = a2a::agents(&now.a2a);
        self.a2a_agents.replace(&agents, &kept);
        replace_policies(&mut parts.a2a_policies, policies, &kept);
        let kept = unchanged_names(&before.openapi.apis, &now.openapi.apis);
        let (apis, policies) = openapi::apis(&now.openapi);
        self.openapi.replace(&apis, &kept);
        replace_policies(&mut parts.api_policies, policies, &kept);
        let kept = unchanged_names(&before.integrations, &now.integrations);
        let (integrations, policies) = openapi::integrations(&now.integrations);
        self.integrations.replace(&integrations, &kept);
        replace_policies(&mut parts.integration_policies, policies, &kept);
        if before.a2a.push != now.a2a.push {
            parts.push_policy = a2a::push_policy(&now.a2a);
        }
        let mut executors = std::mem::take(&mut parts.executors);
        let kept = unchanged_names(&before.code_executors, &now.code_executors);
        executors.retain(|name, _| kept.contains(name));
        parts.executors = code_executors::create_executors(&now.code_executors, executors);
    }

    /// Withdraws access that was removed from the configuration, also from runs in progress.
    async fn withdraw_removed(&self, before: &Config, now: &Config) {
        for name in withdrawn_servers(before, now) {
            tracing::warn!(
                server = name,
                "an MCP server was removed or is no longer trusted: its connection is closed"
            );
            self.mcp_servers.close_server(name).await;
        }
        let parts = self.parts.lock_unpoisoned();
        for executor in code_executors::withdraw(&parts.executors, &now.code_executors) {
            let name = executor.name();
            tracing::warn!(
                executor = name,
                "a code executor was removed or is no longer trusted; it is not used any more"
            );
            self.begin_closing(executor.clone());
        }
        drop(parts);
        self.restrict_egress(now);
    }

    pub(super) async fn close_mcp_servers(&self) {
        self.mcp_servers.close().await;
    }

    /// Releases the resources of all code executors, including withdrawn ones.
    pub(super) async fn close_executors(&self) {
        let executors = std::mem::take(&mut self.parts.lock_unpoisoned().executors);
        executors.into_values().flatten().for_each(|executor| self.begin_closing(executor));
        let mut closing = std::mem::take(&mut *self.closing.lock_unpoisoned());
        while closing.join_next().await.is_some() {}
    }

    fn begin_closing(&self, executor: Arc<RevocableExecutor>) {
        let mut closing = self.closing.lock_unpoisoned();
        while closing.try_join_next().is_some() {}
        closing.spawn(async move { executor.shut_down().await });
    }

    fn restrict_egress(&self, config: &Config) {
        let parts = self.parts.lock_unpoisoned();
        for (name, policy) in &parts.a2a_policies {
            let agent = config.a2a.agents.get(name).filter(|agent| agent.refusal.is_none());
            if policy.restrict(agent.and_then(|agent| agent.policy().ok())) {
                tracing::warn!(
                    agent = name,
                    "a remote agent was removed or is no longer trusted; it is not used any more"
                );
            }
        }
        for (name, policy) in &parts.api_policies {
            let api = config.openapi.apis.get(name).filter(|api| api.refusal.is_none());
            if policy.restrict(api.and_then(|api| api.policy().ok())) {
                tracing::warn!(api = name, "an API was removed or is no longer trusted; it is not used any more");
            }
        }
        for (name, policy) in &parts.integration_policies {
            let integration = config.integrations.get(name).filter(|integration| integration.refusal.is_none());
            if policy.restrict(integration.and_then(|integration| integration.policy().ok())) {
                tracing::warn!(
                    integration = name,
                    "an integration was removed or is no longer trusted; it is not used any more"
                );
            }
        }
        if parts.push_policy.as_ref().is_some_and(|policy| policy.restrict(config.a2a.push_policy())) {
            tracing::warn!("`a2a.push` was removed or is no longer trusted; it is not used any more");
        }
    }
}

/// Returns the names of the entries that are the same in both maps.
pub(super) fn unchanged_names<T: PartialEq>(
    before: &BTreeMap<String, T>,
    now: &BTreeMap<String, T>,
) -> BTreeSet<String> {
    now.iter().filter(|(name, entry)| before.get(*name) == Some(entry)).map(|(name, _)| name.clone()).collect()
}

/// Replaces policies, except for the policies of the `unchanged` names.
fn replace_policies(policies: &mut Policies, mut now: Policies, unchanged: &BTreeSet<String>) {
    let kept = std::mem::take(policies).into_iter().filter(|(name, _)| unchanged.contains(name));
    now.extend(kept);
    *policies = now;
}

/// Returns the MCP servers that were removed, or have lost the trust that they had before.
fn withdrawn_servers<'a>(before: &'a Config, now: &Config) -> impl Iterator<Item = &'a str> {
    let is_withdrawn = |name: &&String| now.mcp.servers.get(*name).is_none_or(|server| server.refusal.is_some());
    let had_trust = before.mcp.servers.iter().filter(|(_, server)| server.refusal.is_none()).map(|(name, _)| name);
    had_trust.filter(is_withdrawn).map(String::as_str).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn servers_that_lose_trust_or_are_removed_are_found() {
        let text = "mcp: {servers: {files: {command: npx}, web: {url: 'http://localhost'}}}";
        let initial = Config::parse(text, Path::new("hatchery.yaml")).unwrap();
        let mut now = initial.clone();
        assert_eq!(withdrawn_servers(&initial, &now).count(), 0);
        now.mcp.servers.get_mut("files").unwrap().refusal = Some("it has changed since it was trusted".into());
        assert_eq!(withdrawn_servers(&initial, &now).collect::<Vec<_>>(), ["files"]);
        assert_eq!(withdrawn_servers(&now, &now).count(), 0, "it had no trust");
        now.mcp.servers.remove("files");
        assert_eq!(withdrawn_servers(&initial, &now).collect::<Vec<_>>(), ["files"]);
    }
}
