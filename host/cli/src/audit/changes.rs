//! Events about the configuration: `trust` and `grants`.

use std::collections::BTreeSet;

use hatchery::audit::TARGET;
use hatchery::trust::Standing;
use hatchery::{Config, LoadedConfig};
use hatchery_wasm::Grants;
use hatchery_wasm::policy::{ClockGrant, RandomGrant, Variable};

/// Records whether what a configuration asks for outside of its folder is given.
pub fn record_trust(loaded: &LoadedConfig) {
    let (file, sha256, detail) = (loaded.file.display(), &loaded.sha256, loaded.outside_keys());
    match &loaded.standing {
        Standing::Inside => {}
        Standing::Trusted => tracing::info!(target: TARGET, decision = "trusted", %file, sha256, detail, "trust"),
        Standing::Named => {
            tracing::info!(target: TARGET, decision = "named by --config", %file, sha256, detail, "trust")
        }
        Standing::Untrusted(distrust) => {
            tracing::warn!(target: TARGET, decision = "refused", reason = %distrust, %file, sha256, detail, "trust");
        }
    }
}

/// Records what components are granted now and were not before, and the other way round.
pub fn record_grants(before: &Config, now: &Config) {
    let names: BTreeSet<_> = before.components.keys().chain(now.components.keys()).collect();
    let of = |config: &Config, name: &String| {
        config.components.get(name).map(|component| lines(&component.grants)).unwrap_or_default()
    };
    for name in names {
        let (before, now) = (of(before, name), of(now, name));
        let (added, removed) = (listed(now.difference(&before)), listed(before.difference(&now)));
        if !added.is_empty() || !removed.is_empty() {
            tracing::info!(target: TARGET, component = name.as_str(), added, removed, "grants");
        }
    }
}

fn listed<'a>(lines: impl Iterator<Item = &'a String>) -> String {
    lines.map(String::as_str).collect::<Vec<_>>().join("; ")
}

/// What is granted, an entry a line.
fn lines(grants: &Grants) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    let mut add = |key: &str, value: String| lines.insert(format!("{key} {value}"));
    for host in &grants.network {
        add("network", host.to_string());
    }
    for host in &grants.private_network {
        add("private_network", host.to_string());
    }
    for secret in &grants.secrets {
        add("secrets", format!("{} for {}", secret.name(), secret.host()));
    }
    for (key, patterns) in [
        ("models", &grants.models),
        ("tools", &grants.tools),
        ("state.read", &grants.state.read),
        ("state.write", &grants.state.write),
    ] {
        for pattern in patterns {
            add(key, pattern.to_string());
        }
    }
    if grants.memory {
        add("memory", "true".into());
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
        let yaml = "components: {a: {grants: {network: [a.com], private_network: ['10.0.0.0/8'], models: ['*'], tools: [x/y], memory: true, \
                    artifacts: write, state: {read: ['user:*'], write: ['app:x']}, environment: {LANG: C, T: {from: TOKEN}}, \
                    files: [{host: /srv, guest: /d, access: write}], clock: '2026-01-01T00:00:00Z', random: {seed: 1}, \
                    secrets: [{name: k, from: K, host: a.com, header: X}]}}}";
        let config = Config::parse(yaml, Path::new("hatchery.yaml")).unwrap();
        let lines: Vec<_> = lines(&config.components["a"].grants).into_iter().collect();
        assert_eq!(
            lines,
            [
                "artifacts write",
                "clock fixed",
                "environment LANG",
                "environment T from TOKEN",
                "files write /srv as /d",
                "memory true",
                "models *",
                "network a.com",
                "private_network 10.0.0.0/8",
                "random seeded",
                "secrets k for a.com",
                "state.read user:*",
                "state.write app:x",
                "tools x/y",
            ]
        );
    }
}
