//! Events of the audit log: `tracing` events with the target [`TARGET`]. The library emits them; the program decides
//! where they are written.

use std::collections::BTreeSet;
use std::path::Path;

use hatchery_wasm::Grants;
use hatchery_wasm::policy::{ClockGrant, RandomGrant, Variable};

use crate::config::Config;
use crate::trust::{LoadedConfig, TrustStatus};

/// The target of audit events.
pub const TARGET: &str = "hatchery::audit";

/// Records the configuration that a host starts with: its trust status and its grants.
pub fn record_start(loaded: &LoadedConfig) {
    record_trust(loaded);
    record_grants(&Config::default(), &loaded.config);
}

/// Records the trust in a configuration that requests access outside of its folder.
pub(crate) fn record_trust(loaded: &LoadedConfig) {
    let (file, sha256, detail) = (loaded.file.display(), &loaded.sha256, loaded.external_keys());
    match &loaded.status {
        TrustStatus::NotRequired => {}
        TrustStatus::Trusted => tracing::info!(target: TARGET, decision = "trusted", %file, sha256, detail, "trust"),
        TrustStatus::Named => {
            tracing::info!(target: TARGET, decision = "named by the operator", %file, sha256, detail, "trust")
        }
        TrustStatus::Untrusted(reason) => {
            tracing::warn!(target: TARGET, decision = "refused", %reason, %file, sha256, detail, "trust");
        }
    }
}

/// Records the grants that were added to and removed from each component.
pub(crate) fn record_grants(before: &Config, now: &Config) {
    let names: BTreeSet<_> = before.components.keys().chain(now.components.keys()).collect();
    let grants_of = |config: &Config, name: &String| {
        config.components.get(name).map(|component| grant_lines(&component.grants)).unwrap_or_default()
    };
    for name in names {
        let (before, now) = (grants_of(before, name), grants_of(now, name));
        let (added, removed) = (join(now.difference(&before)), join(before.difference(&now)));
        if !added.is_empty() || !removed.is_empty() {
            tracing::info!(target: TARGET, component = name.as_str(), added, removed, "grants");
        }
    }
}

/// Records that a component is refused because of its signature. `action` is the action that was refused.
pub fn record_signature_refusal(path: &Path, action: &str, refusal: &str) {
    let component = path.file_stem().unwrap_or_default().to_string_lossy();
    tracing::warn!(target: TARGET, component = &*component, action, decision = "refused", detail = refusal, "signature");
}

fn join<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    lines.map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// Returns the grants as one line per entry.
fn grant_lines(grants: &Grants) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut add = |key: &str, value: String| lines.insert(format!("{key} {value}"));
    for host in &grants.network {
        add("network", host.to_string());
    }
    for host in &grants.private_network {
        add("private_network", host.to_string());
    }
    for host in &grants.idempotency_keys {
        add("idempotency_keys", host.to_string());
    }
    for secret in &grants.secrets {
        add("secrets", format!("{} for {}", secret.name(), secret.host()));
    }
    for (key, patterns) in [
        ("models", &grants.models),
        ("tools", &grants.tools),
        ("runs", &grants.runs),
        ("sessions.read", &grants.sessions.read),
        ("sessions.write", &grants.sessions.write),
        ("state.read", &grants.state.read),
        ("state.write", &grants.state.write),
    ] {
        for pattern in patterns {
            add(key, pattern.to_string());
        }
    }
    if let Some(access) = grants.memory {
        add("memory", access.to_string());
    }
    if let Some(access) = grants.artifacts {
        add("artifacts", access.to_string());
    }
    for (name, variable) in &grants.environment {
        match variable {
            Variable::Text(_) => add("environment", name.clone()),
            Variable::Host { from } => add("environment", format!("{name} from {from}")),
        };
    }
    for folder in &grants.files {
        add("files", format!("{} {} as {}", folder.access, folder.host.display(), folder.guest.as_str()));
    }
    if grants.clock != ClockGrant::Real {
        add("clock", "fixed".into());
    }
    if grants.random != RandomGrant::Real {
        add("random", "seeded".into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_grant_is_a_line() {
        let yaml = "components: {a: {grants: {network: [a.com], private_network: ['10.0.0.0/8'], models: ['*'], tools: [x/y], memory: write, \
                    runs: [clerk], sessions: {read: [diary], write: [clerk]}, artifacts: write, state: {read: ['user:*'], write: ['app:x']}, environment: {LANG: C, T: {from: TOKEN}}, \
                    files: [{host: /srv, guest: /d, access: write}], clock: '2026-01-01T00:00:00Z', random: {seed: 1}, \
                    secrets: [{name: k, from: K, host: a.com, header: X}], idempotency_keys: ['*']}}}";
        let config = Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let lines: Vec<_> = grant_lines(&config.components["a"].grants).into_iter().collect();
        assert_eq!(
            lines,
            [
                "artifacts write",
                "clock fixed",
                "environment LANG",
                "environment T from TOKEN",
                "files write /srv as /d",
                "idempotency_keys *",
                "memory write",
                "models *",
                "network a.com",
                "private_network 10.0.0.0/8",
                "random seeded",
                "runs clerk",
                "secrets k for a.com",
                "sessions.read diary",
                "sessions.write clerk",
                "state.read user:*",
                "state.write app:x",
                "tools x/y",
            ]
        );
    }
}
