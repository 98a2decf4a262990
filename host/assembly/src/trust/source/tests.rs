//! Tests of trust in configurations.

use std::fs;

use hatchery_wasm::Grants;

use super::*;
use crate::config::DevUi;

const NETWORK: &str =
    "components:\n  web:\n    grants: {network: [example.com], memory: read}\n  calm:\n    grants: {memory: read}\n";

struct Fixture {
    root: tempfile::TempDir,
}

impl Fixture {
    fn new(yaml: &str) -> Self {
        let fixture = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(fixture.folder()).unwrap();
        fs::write(fixture.folder().join(FILE_NAME), yaml).unwrap();
        fixture
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("agents")
    }

    fn source(&self) -> ConfigSource {
        ConfigSource::new(self.folder()).with_trust_store(Some(self.store()))
    }

    fn store(&self) -> TrustStore {
        TrustStore::at(self.root.path().join("config/trusted.json"))
    }

    fn load(&self) -> LoadedConfig {
        self.source().load().unwrap()
    }

    fn trust(&self) {
        self.store().trust(&self.folder(), &self.load().sha256).unwrap();
    }
}

#[test]
fn a_component_with_untrusted_access_loses_all_grants_and_the_others_keep_theirs() {
    let fixture = Fixture::new(NETWORK);
    let loaded = fixture.load();
    assert_eq!(loaded.status, TrustStatus::Untrusted(UntrustedReason::Undecided));
    assert_eq!(loaded.config.components["web"].grants, Grants::default());
    assert_eq!(
        loaded.config.components["web"].refusal.as_deref().unwrap(),
        "component `web` is not loaded: hatchery.yaml requests access outside of its folder (components.web.grants.network), but \
         it is not trusted; the operator can review and allow it with `hatchery trust DIR`"
    );
    assert!(
        loaded.config.components["calm"].grants.memory.is_some() && loaded.config.components["calm"].refusal.is_none()
    );
    let folder = fixture.folder();
    assert_eq!(
        loaded.explanation().unwrap(),
        format!(
            "{0}/hatchery.yaml requests access outside of its folder, but it is not trusted:\n\n  \
             components.web.grants.network: example.com\n\nto allow it, review this list and run `hatchery trust {0}`, or use a \
             configuration file of your own",
            folder.display()
        )
    );
    loaded.require_host_access().unwrap();
}

#[test]
fn a_trusted_file_has_its_access_until_it_changes() {
    let fixture = Fixture::new(NETWORK);
    fixture.trust();
    let loaded = fixture.load();
    assert_eq!((&loaded.status, loaded.config.authority), (&TrustStatus::Trusted, Authority::Operator));
    assert_eq!(loaded.config.components["web"].grants.network.len(), 1);
    assert!(loaded.explanation().is_none());
    fs::write(fixture.folder().join(FILE_NAME), NETWORK.replace("example.com", "'*'")).unwrap();
    let loaded = fixture.load();
    assert_eq!(loaded.status, TrustStatus::Untrusted(UntrustedReason::Changed));
    assert!(
        loaded.config.components["web"].refusal.as_deref().unwrap().contains("it has changed since it was trusted")
    );
    // Without external access no trust is needed.
    fs::write(fixture.folder().join(FILE_NAME), "limits: {cpu: 1s}").unwrap();
    assert_eq!(fixture.load().status, TrustStatus::NotRequired);
}

#[test]
fn a_file_that_the_operator_names_is_trusted_and_replaces_the_file_of_the_folder() {
    let fixture = Fixture::new("models: {openai_base_url: 'http://evil.example'}");
    let own = fixture.root.path().join("own.yaml");
    fs::write(&own, NETWORK).unwrap();
    let loaded = fixture.source().with_file(Some(own.clone())).load().unwrap();
    assert_eq!((&loaded.status, &loaded.file), (&TrustStatus::Named, &own));
    assert_eq!(loaded.config.models.openai_base_url, None);
    assert!(loaded.config.components["web"].refusal.is_none());
    fs::remove_file(&own).unwrap();
    let error = fixture.source().with_file(Some(own.clone())).load().unwrap_err().to_string();
    assert_eq!(error, format!("{}: file not found; name an existing configuration file", own.display()));
}

#[test]
fn untrusted_access_of_the_whole_host_prevents_the_start() {
    for (yaml, line) in [
        ("models: {openai_base_url: 'http://evil.example'}", "models.openai_base_url: http://evil.example"),
        ("session_service: sqlite:///tmp/x.db", "session_service: sqlite:///tmp/x.db"),
        ("server: {allowed_hosts: ['*']}", "server.allowed_hosts: *"),
        ("plugins: [logging, {name: recorder, args: {folder: /srv}}]", "plugins[1].args.folder: /srv"),
        ("audit: {enabled: false}", "audit.enabled: false"),
    ] {
        let fixture = Fixture::new(yaml);
        let loaded = fixture.load();
        let Config { models, session_service, server, plugins, audit, .. } = &loaded.config;
        assert!(models.openai_base_url.is_none() && session_service.is_none() && server.allowed_hosts.is_empty());
        assert!(plugins.iter().all(|plugin| plugin.name == "logging") && audit.enabled);
        let error = loaded.require_host_access().unwrap_err().to_string();
        assert!(error.contains(&format!("\n\n  {line}\n\n")), "{error}");
        assert!(error.contains(&format!("run `hatchery trust {}`", fixture.folder().display())), "{error}");
        fixture.trust();
        fixture.load().require_host_access().unwrap();
    }
}

#[test]
fn safe_settings_beside_untrusted_ones_are_kept() {
    let yaml = "server: {allowed_hosts: ['*'], secret_file: key, dev_ui: off, allow_import: true, body_memory: 1GiB, \
                max_connections: 7}\n\
                instances: {max: 5000, max_queued: 3, run_memory: 1MiB}\ncompile: {time: 1h, max_functions: 10}\n\
                models: {openai_base_url: 'http://evil.example', fallback: {a: [b]}}\n\
                audit: {enabled: false, file: audit.log}\n";
    let config = Fixture::new(yaml).load().config;
    let Config { server, instances, compile, models, audit, .. } = &config;
    let default = Config::default();
    assert_eq!((server.dev_ui, server.max_connections), (Some(DevUi::Off), 7));
    assert_eq!((&server.allowed_hosts, &server.secret_file, server.allow_import), (&Vec::new(), &None, false));
    assert_eq!(server.body_memory, default.server.body_memory);
    assert_eq!((instances.max, instances.max_queued), (default.instances.max, 3));
    assert_eq!(instances.run_memory, Some(1 << 20));
    assert_eq!((compile.time, compile.max_functions), (default.compile.time, 10));
    assert_eq!((&models.openai_base_url, models.fallback["a"].as_slice()), (&None, &["b".to_owned()][..]));
    assert!(audit.enabled && audit.file.is_some());
}

#[cfg(unix)]
#[test]
fn a_file_that_all_users_can_write_to_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::new(NETWORK);
    fixture.trust();
    let file = fixture.folder().join(FILE_NAME);
    for path in [&file, &fixture.folder()] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(before.mode() | 0o002)).unwrap();
        for source in [fixture.source(), fixture.source().with_file(Some(file.clone()))] {
            let explanation = source.load().unwrap().explanation().unwrap();
            assert!(explanation.contains("but every user of this machine can write to it:"), "{explanation}");
            assert!(explanation.ends_with(&format!("run `chmod o-w {}`", path.display())), "{explanation}");
        }
        fs::set_permissions(path, before).unwrap();
    }
    assert_eq!(fixture.load().status, TrustStatus::Trusted);
}

#[test]
fn an_unusable_list_trusts_nothing() {
    let fixture = Fixture::new(NETWORK);
    fixture.trust();
    fs::write(fixture.store().file(), "nonsense").unwrap();
    let explanation = fixture.load().explanation().unwrap();
    assert!(explanation.contains("but the list of trusted folders cannot be used:"), "{explanation}");
    assert!(explanation.ends_with("; delete it and trust your folders again"), "{explanation}");
}

#[test]
fn a_missing_required_file_is_an_error() {
    let fixture = Fixture::new("");
    fs::remove_file(fixture.folder().join(FILE_NAME)).unwrap();
    assert_eq!(fixture.load().config, Config::default());
    let error = fixture.source().required(true).load().unwrap_err().to_string();
    let file = fixture.folder().join(FILE_NAME);
    assert_eq!(error, format!("{}: file not found; a configuration file is required, so create it", file.display()));
}

#[test]
fn without_a_network_network_grants_need_no_trust() {
    let fixture = Fixture::new(NETWORK);
    let loaded = fixture.source().without_network().load().unwrap();
    assert_eq!(loaded.status, TrustStatus::NotRequired);
    assert_eq!(loaded.config.components["web"].grants.network.len(), 1);
    fs::write(
        fixture.folder().join(FILE_NAME),
        format!("{NETWORK}    limits: {{}}\n  spy:\n    grants: {{environment: {{A: {{from: A}}}}}}\n"),
    )
    .unwrap();
    let loaded = fixture.source().without_network().load().unwrap();
    assert!(loaded.config.components["spy"].refusal.is_some() && loaded.config.components["web"].refusal.is_none());
}

#[test]
fn no_configuration_can_grant_write_access_to_the_served_folder() {
    let fixture = Fixture::new("");
    let own = fixture.root.path().join("elsewhere/own.yaml");
    fs::create_dir(own.parent().unwrap()).unwrap();
    fs::write(
        &own,
        format!(
            "components: {{a: {{grants: {{files: [{{host: {}, guest: /a, access: write}}]}}}}}}",
            fixture.root.path().display()
        ),
    )
    .unwrap();
    let error = fixture.source().with_file(Some(own)).load().unwrap_err().to_string();
    assert!(error.contains("components.a.grants.files: the folder "), "{error}");
    assert!(
        error.ends_with("contains hatchery.yaml and all components; grant write access to a folder below it instead"),
        "{error}"
    );
}

#[test]
fn an_untrusted_mcp_server_is_not_used_and_the_host_starts() {
    let fixture = Fixture::new("mcp: {servers: {files: {command: npx}}}\n");
    let loaded = fixture.load().require_host_access().unwrap();
    assert_eq!(
        loaded.config.mcp.servers["files"].refusal.as_deref().unwrap(),
        "the MCP server `files` is not used: hatchery.yaml requests access outside of its folder for it, but it is not trusted; \
         the operator can review and allow it with `hatchery trust DIR`"
    );
    fixture.trust();
    assert_eq!(fixture.load().config.mcp.servers["files"].refusal, None);
}

#[test]
fn an_untrusted_remote_agent_is_not_used_and_the_host_starts() {
    let fixture = Fixture::new("a2a: {agents: {far: {card: 'https://far.example/card'}}}\n");
    let loaded = fixture.load().require_host_access().unwrap();
    assert_eq!(
        loaded.config.a2a.agents["far"].refusal.as_deref().unwrap(),
        "the remote agent `far` is not used: hatchery.yaml requests access outside of its folder for it, but it is not trusted; \
         the operator can review and allow it with `hatchery trust DIR`"
    );
    fixture.trust();
    assert_eq!(fixture.load().config.a2a.agents["far"].refusal, None);
}

#[test]
fn untrusted_push_notifications_keep_the_host_from_starting() {
    let fixture = Fixture::new("a2a: {push: {network: ['*']}}\n");
    let loaded = fixture.load();
    assert!(loaded.config.a2a.push.network.is_empty());
    assert!(loaded.require_host_access().is_err());
}

#[test]
fn an_untrusted_public_url_of_a2a_keeps_the_host_from_starting() {
    let fixture = Fixture::new("a2a: {public_url: 'https://elsewhere.example'}\n");
    let loaded = fixture.load();
    assert_eq!(loaded.config.a2a.public_url, None);
    assert!(loaded.require_host_access().is_err());
}

#[test]
fn an_untrusted_service_account_in_the_file_refuses_its_api() {
    let api = "{document: a.json, auth: {service_account: {json: '{}'}}}";
    let loaded = Fixture::new(&format!("openapi: {{apis: {{cloud: {api}}}}}\n")).load();
    assert!(loaded.config.openapi.apis["cloud"].refusal.is_some());
}
