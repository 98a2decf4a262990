//! The connections of the configuration to other hosts, and their withdrawal while the host runs.

use std::sync::Arc;

use hatchery_a2a::A2aAgents;
use hatchery_core::{CodeExecutor, CredentialService};
use hatchery_engine::Extensions;
use hatchery_mcp::McpServers;
use hatchery_openapi::Apis;

use crate::a2a;
use crate::code_executors;
use crate::config::Config;
use crate::egress::{HostEgress, Policies};
use crate::openapi;

/// The configured MCP servers, remote agents, HTTP APIs, integrations and code executors. Clones share them.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) mcp_servers: McpServers,
    pub(super) a2a_agents: A2aAgents,
    pub(super) openapi: Apis,
    /// The policy of push notifications. `None` if there are none.
    pub(super) push_policy: Option<Arc<HostEgress>>,
    a2a_policies: Policies,
    api_policies: Policies,
    integration_policies: Policies,
    code_executors: code_executors::CodeExecutors,
}

impl Connections {
    /// Registers toolsets, agent classes and code executors of the configuration. With `starts`, connects to servers and
    /// reads documents now instead of at their first use.
    pub(super) fn register(
        config: &Config,
        credentials: &Arc<dyn CredentialService>,
        starts: bool,
        extensions: &mut Extensions,
    ) -> Self {
        let mcp_servers = config.mcp.servers(credentials);
        let (openapi, api_policies) = openapi::apis(&config.openapi);
        let (integrations, integration_policies) = openapi::integrations(&config.integrations);
        if starts {
            mcp_servers.start();
            openapi.start();
            integrations.start();
        }
        mcp_servers.register(extensions);
        let (a2a_agents, a2a_policies) = a2a::register_agents(&config.a2a, extensions);
        openapi.register(extensions);
        integrations.register(extensions);
        Self {
            mcp_servers,
            a2a_agents,
            openapi,
            push_policy: a2a::push_policy(&config.a2a),
            a2a_policies,
            api_policies,
            integration_policies,
            code_executors: code_executors::register(&config.code_executors, extensions),
        }
    }

    /// Withdraws access that was removed from the configuration. Added access needs a restart.
    pub(super) async fn withdraw_removed(&self, initial: &Config, config: &Config) {
        for name in withdrawn_servers(initial, config) {
            tracing::warn!(
                server = name,
                "an MCP server was removed or is not trusted any more: its connection is closed"
            );
            self.mcp_servers.close_server(name).await;
        }
        for executor in code_executors::withdraw(&self.code_executors, &config.code_executors) {
            let name = executor.name();
            tracing::warn!(executor = name, "a code executor was removed or is not trusted: it runs no more code");
            executor.close().await;
        }
        self.restrict_egress(config);
    }

    /// Closes the connections to MCP servers, and ends what code executors keep.
    pub(super) async fn close(&self) {
        self.mcp_servers.close().await;
        for executor in self.code_executors.values() {
            executor.close().await;
        }
    }

    fn restrict_egress(&self, config: &Config) {
        for (name, policy) in &self.a2a_policies {
            let agent = config.a2a.agents.get(name).filter(|agent| agent.refusal.is_none());
            if policy.restrict(agent.and_then(|agent| agent.policy().ok())) {
                tracing::warn!(agent = name, "a remote agent was removed or is not trusted: it gets no more messages");
            }
        }
        for (name, policy) in &self.api_policies {
            let api = config.openapi.apis.get(name).filter(|api| api.refusal.is_none());
            if policy.restrict(api.and_then(|api| api.policy().ok())) {
                tracing::warn!(api = name, "an API was removed or is not trusted: it gets no more requests");
            }
        }
        for (name, policy) in &self.integration_policies {
            let integration = config.integrations.get(name).filter(|integration| integration.refusal.is_none());
            if policy.restrict(integration.and_then(|integration| integration.policy().ok())) {
                tracing::warn!(
                    integration = name,
                    "an integration was removed or is not trusted: it gets no more requests"
                );
            }
        }
        if self.push_policy.as_ref().is_some_and(|policy| policy.restrict(config.a2a.push_policy())) {
            tracing::warn!("`a2a.push` was removed or is not trusted: no more push notifications are sent");
        }
    }
}

/// Returns the MCP servers that were removed, or have lost the trust which they had at the start.
fn withdrawn_servers<'a>(initial: &'a Config, now: &Config) -> impl Iterator<Item = &'a str> {
    let is_withdrawn = |name: &&String| now.mcp.servers.get(*name).is_none_or(|server| server.refusal.is_some());
    let had_trust = initial.mcp.servers.iter().filter(|(_, server)| server.refusal.is_none()).map(|(name, _)| name);
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
