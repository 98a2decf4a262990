//! The sections of the configuration, and those that apply at the next start only.

use hatchery_registry::SignaturePolicy;

use crate::config::Config;

/// A key of the file that is compared, replaced and named in the log as a whole.
struct Section {
    key: &'static str,
    differs: fn(&Config, &Config) -> bool,
    /// Copies the value in force into a changed configuration. `None` if the section applies without a restart.
    keep: Option<fn(&mut Config, &Config)>,
}

macro_rules! live {
    ($key:literal, $($field:ident).+) => {
        Section { key: $key, differs: |before, now| before.$($field).+ != now.$($field).+, keep: None }
    };
}

macro_rules! at_start {
    ($key:literal, $($field:ident).+) => {
        Section {
            key: $key,
            differs: |before, now| before.$($field).+ != now.$($field).+,
            keep: Some(|config, in_force| config.$($field).+.clone_from(&in_force.$($field).+)),
        }
    };
}

/// All sections, in the order of the documentation.
#[rustfmt::skip]
const SECTIONS: &[Section] = &[
    at_start!("session_service", session_service),
    at_start!("artifact_service", artifact_service),
    at_start!("memory_service", memory_service),
    at_start!("memory", memory),
    at_start!("durability", durability),
    at_start!("encryption", encryption),
    at_start!("instances", instances),
    at_start!("server.base_path", server.base_path),
    at_start!("server.secret_file", server.secret_file),
    at_start!("server.max_concurrent_triggers", server.max_concurrent_triggers),
    // The listener speaks either HTTP or HTTPS; its certificate can be replaced.
    Section {
        key: "server.tls",
        differs: |before, now| before.server.tls.is_some() != now.server.tls.is_some(),
        keep: Some(|config, in_force| config.server.tls.clone_from(&in_force.server.tls)),
    },
    Section {
        key: "server.tls",
        differs: |before, now| before.server.tls != now.server.tls,
        keep: None,
    },
    Section {
        key: "models",
        // A URL of the operator may lead to more hosts than one of the folder.
        differs: |before, now| {
            let has_urls = now.models.base_urls().next().is_some();
            before.models != now.models || (has_urls && before.authority != now.authority)
        },
        keep: None,
    },
    live!("plugins", plugins),
    live!("app_defaults", app_defaults),
    live!("apps", apps),
    live!("limits", limits),
    live!("quotas", quotas),
    live!("retention", retention),
    live!("prices", prices),
    live!("compile", compile),
    live!("hot_reload", hot_reload),
    live!("components", components),
    live!("mcp.servers", mcp.servers),
    live!("mcp.expose", mcp.expose),
    live!("a2a.agents", a2a.agents),
    live!("a2a.expose", a2a.expose),
    live!("a2a.public_url", a2a.public_url),
    live!("a2a.blocking_timeout", a2a.blocking_timeout),
    live!("a2a.push", a2a.push),
    live!("openapi", openapi),
    live!("integrations", integrations),
    live!("retrieval", retrieval),
    live!("code_executors", code_executors),
    live!("registry", registry),
    live!("server.allowed_hosts", server.allowed_hosts),
    live!("server.cors", server.cors),
    live!("server.auth", server.auth),
    live!("server.body_limit", server.body_limit),
    live!("server.small_body_limit", server.small_body_limit),
    live!("server.upload_limit", server.upload_limit),
    live!("server.body_memory", server.body_memory),
    live!("server.body_timeout", server.body_timeout),
    live!("server.write_timeout", server.write_timeout),
    live!("server.max_connections", server.max_connections),
    live!("server.max_connections_per_peer", server.max_connections_per_peer),
    live!("server.max_concurrent_runs", server.max_concurrent_runs),
    live!("server.turn_lease", server.turn_lease),
    live!("server.live_idle_timeout", server.live_idle_timeout),
    live!("server.cancel_on_disconnect", server.cancel_on_disconnect),
    live!("server.allow_import", server.allow_import),
    live!("server.triggers", server.triggers),
    live!("server.dev_ui", server.dev_ui),
    live!("server.drain_timeout", server.drain_timeout),
    live!("audit", audit),
];

/// Returns the keys of the sections that differ.
pub(super) fn changed_keys(before: &Config, now: &Config) -> Vec<&'static str> {
    SECTIONS.iter().filter(|section| (section.differs)(before, now)).map(|section| section.key).collect()
}

/// Resets sections that need a restart to their values in force. Returns the keys of those that differ.
pub(super) fn keep_in_force(config: &mut Config, in_force: &Config) -> Vec<&'static str> {
    let mut pending = Vec::new();
    for Section { key, differs, keep } in SECTIONS {
        if let Some(keep) = keep.filter(|_| differs(in_force, config)) {
            keep(config, in_force);
            pending.push(*key);
        }
    }
    pending
}

/// Restores protection that a changed file has removed: the authentication of clients, and the signatures and digests
/// of components. Returns the restored keys. Used for files of the folder's author, who must not disable them while the
/// host runs.
pub(super) fn keep_protection(config: &mut Config, in_force: &Config) -> Vec<&'static str> {
    let mut pending = Vec::new();
    if in_force.server.auth.is_some() && config.server.auth.is_none() {
        config.server.auth.clone_from(&in_force.server.auth);
        pending.push("server.auth");
    }
    if strictness(config.registry.signatures) < strictness(in_force.registry.signatures) {
        config.registry.clone_from(&in_force.registry);
        pending.push("registry");
    }
    if keep_identities(config, in_force) {
        pending.push("components");
    }
    pending
}

/// Restores the signatures and digests of components that differ from those in force. Returns true if there are any.
fn keep_identities(config: &mut Config, in_force: &Config) -> bool {
    let mut is_kept = false;
    for (name, identity) in in_force.expected_identities() {
        let component = config.components.entry(name.clone()).or_default();
        if component.expected_identity() != identity
            && let Some(before) = in_force.components.get(&name)
        {
            component.keep_identity(before);
            is_kept = true;
        }
    }
    is_kept
}

fn strictness(policy: SignaturePolicy) -> u8 {
    match policy {
        SignaturePolicy::Off => 0,
        SignaturePolicy::Warn => 1,
        SignaturePolicy::Require => 2,
    }
}

/// Returns the configuration in force without the access that is no longer trusted. Takes grants of components, MCP
/// servers, remote agents, APIs, integrations, code executors and push notifications from `restricted`. Components keep
/// their signatures and digests.
pub(super) fn withdraw_untrusted(in_force: &Config, restricted: Config) -> Config {
    let mut config = in_force.clone();
    config.limits = restricted.limits;
    config.components = restricted.components;
    keep_identities(&mut config, in_force);
    config.mcp.servers = restricted.mcp.servers;
    config.a2a.agents = restricted.a2a.agents;
    config.a2a.push = restricted.a2a.push;
    config.openapi = restricted.openapi;
    config.integrations = restricted.integrations;
    config.code_executors = restricted.code_executors;
    config
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn config(yaml: &str) -> Config {
        Config::parse(yaml, Path::new("hatchery.yaml")).unwrap()
    }

    #[test]
    fn sections_that_apply_at_the_next_start_keep_their_values() {
        let in_force = config("plugins: [logging]\nserver: {tls: {certificate: a.pem, key: a.key}}");
        let mut now =
            config("session_service: 'memory:'\nserver: {max_connections: 3, base_path: /a}\ndurability: power");
        let pending = keep_in_force(&mut now, &in_force);
        assert_eq!(pending, ["session_service", "durability", "server.base_path", "server.tls"]);
        assert_eq!(changed_keys(&in_force, &now), ["plugins", "server.max_connections"]);
        assert_eq!(now.server.tls, in_force.server.tls);
        let mut renewed = config("plugins: [logging]\nserver: {tls: {certificate: b.pem, key: b.key}}");
        assert!(keep_in_force(&mut renewed, &in_force).is_empty());
        assert_eq!(changed_keys(&in_force, &renewed), ["server.tls"]);
    }

    #[test]
    fn protection_that_a_folder_has_no_longer_is_kept() {
        let key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let in_force = config(&format!(
            "server: {{auth: {{keys: [{{name: a, from: A}}]}}}}\nregistry: {{signatures: require, trusted_keys: [{key}]}}\n\
             components: {{dice: {{sha256: 'sha256:{}'}}}}",
            "0".repeat(64)
        ));
        let mut now = config("limits: {log: 1}");
        assert_eq!(keep_protection(&mut now, &in_force), ["server.auth", "registry", "components"]);
        assert_eq!(changed_keys(&in_force, &now), ["limits"]);
        let mut more = config("server: {auth: {keys: [{name: b, from: B}]}}");
        assert!(keep_protection(&mut more, &config("")).is_empty(), "it is added");
    }

    #[test]
    fn every_key_of_the_file_belongs_to_a_section() {
        let schema = Config::json_schema();
        let keys = |path: &str| -> BTreeSet<String> {
            let properties = schema.pointer(path).unwrap().as_object().unwrap();
            properties.keys().cloned().collect()
        };
        let first = |key: &str| key.split('.').next().unwrap().to_owned();
        let of_file: BTreeSet<_> = SECTIONS.iter().map(|section| first(section.key)).collect();
        assert_eq!(of_file, keys("/properties"));
        for parent in ["server", "mcp", "a2a"] {
            let children = SECTIONS.iter().filter_map(|it| it.key.strip_prefix(parent)?.strip_prefix('.'));
            let children: BTreeSet<_> = children.map(str::to_owned).collect();
            assert_eq!(children, keys(&format!("/properties/{parent}/properties")), "{parent}");
        }
    }

    #[test]
    fn access_that_is_not_trusted_any_more_is_withdrawn_and_all_else_stays() {
        let in_force = config("plugins: [logging]\ncomponents: {web: {grants: {network: [a.example]}}}");
        let config = withdraw_untrusted(&in_force, config("limits: {log: 1}"));
        assert_eq!((config.plugins.len(), config.components.len()), (1, 0));
        assert_eq!(changed_keys(&in_force, &config), ["limits", "components"]);
    }

    #[test]
    fn withdrawn_access_leaves_the_signatures_and_digests_of_components() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let with_identity = |grants: &str| {
            config(&format!(
                "components: {{web: {{grants: {{{grants}}}, signed_as: example.org/web, sha256: '{digest}'}}}}"
            ))
        };
        let config = withdraw_untrusted(&with_identity("network: [a.example]"), config("limits: {log: 1}"));
        assert_eq!(config.components, with_identity("").components);
    }
}
