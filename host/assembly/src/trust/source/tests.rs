use std::fs;

use hatchery_wasm::Grants;

use super::*;

const NETWORK: &str =
    "components:\n  web:\n    grants: {network: [example.com], memory: true}\n  calm:\n    grants: {memory: true}\n";

struct Place {
    root: tempfile::TempDir,
}

impl Place {
    fn new(yaml: &str) -> Self {
        let place = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(place.folder()).unwrap();
        fs::write(place.folder().join(FILE_NAME), yaml).unwrap();
        place
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("agents")
    }

    fn source(&self) -> ConfigSource {
        ConfigSource::of_folder(self.folder()).trusting(Some(self.store()))
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
fn a_component_that_asks_for_more_than_the_folder_gets_nothing_and_the_others_get_theirs() {
    let place = Place::new(NETWORK);
    let loaded = place.load();
    assert_eq!(loaded.standing, Standing::Untrusted(Distrust::Undecided));
    assert_eq!(loaded.config.components["web"].grants, Grants::default());
    assert_eq!(
        loaded.config.components["web"].refusal.as_deref().unwrap(),
        "component `web` is not loaded: hatchery.yaml asks for rights outside of its folder (components.web.grants.network), and \
         nobody has trusted it; the operator can look at them and allow them with `hatchery trust DIR`"
    );
    assert!(loaded.config.components["calm"].grants.memory && loaded.config.components["calm"].refusal.is_none());
    let folder = place.folder();
    assert_eq!(
        loaded.explanation().unwrap(),
        format!(
            "{0}/hatchery.yaml asks for rights that reach outside of its folder, and nobody has trusted it:\n\n  \
             components.web.grants.network: example.com\n\nto allow them, look at them and run `hatchery trust {0}`, or name a \
             configuration of your own with `--config FILE`",
            folder.display()
        )
    );
    loaded.require_host_rights().unwrap();
}

#[test]
fn a_trusted_text_is_given_what_it_asks_for_until_it_changes() {
    let place = Place::new(NETWORK);
    place.trust();
    let loaded = place.load();
    assert_eq!((&loaded.standing, loaded.config.authority), (&Standing::Trusted, Authority::Operator));
    assert_eq!(loaded.config.components["web"].grants.network.len(), 1);
    assert!(loaded.explanation().is_none());
    fs::write(place.folder().join(FILE_NAME), NETWORK.replace("example.com", "'*'")).unwrap();
    let loaded = place.load();
    assert_eq!(loaded.standing, Standing::Untrusted(Distrust::Changed));
    assert!(
        loaded.config.components["web"].refusal.as_deref().unwrap().contains("it has changed since it was trusted")
    );
    // Trust is for what reaches outside: without that there is nothing to ask.
    fs::write(place.folder().join(FILE_NAME), "limits: {cpu: 1s}").unwrap();
    assert_eq!(place.load().standing, Standing::Inside);
}

#[test]
fn a_file_that_the_operator_names_is_trusted_in_place_of_the_folders() {
    let place = Place::new("models: {openai_base_url: 'http://evil.example'}");
    let own = place.root.path().join("own.yaml");
    fs::write(&own, NETWORK).unwrap();
    let loaded = place.source().named(Some(own.clone())).load().unwrap();
    assert_eq!((&loaded.standing, &loaded.file), (&Standing::Named, &own));
    assert_eq!(loaded.config.models.openai_base_url, None);
    assert!(loaded.config.components["web"].refusal.is_none());
    fs::remove_file(&own).unwrap();
    let error = place.source().named(Some(own.clone())).load().unwrap_err().to_string();
    assert_eq!(error, format!("{}: there is no such file, and --config names it", own.display()));
}

#[test]
fn rights_of_the_whole_host_refuse_the_start() {
    for (yaml, line) in [
        ("models: {openai_base_url: 'http://evil.example'}", "models.openai_base_url: http://evil.example"),
        ("session_service: sqlite:///tmp/x.db", "session_service: sqlite:///tmp/x.db"),
        ("server: {allowed_hosts: ['*']}", "server.allowed_hosts: *"),
        ("plugins: [logging, {name: recorder, args: {folder: /srv}}]", "plugins[1].args.folder: /srv"),
        ("audit: {enabled: false}", "audit.enabled: false"),
    ] {
        let place = Place::new(yaml);
        let loaded = place.load();
        let Config { models, session_service, server, plugins, audit, .. } = &loaded.config;
        assert!(models.openai_base_url.is_none() && session_service.is_none() && server.allowed_hosts.is_empty());
        assert!(plugins.iter().all(|plugin| plugin.name == "logging") && audit.enabled);
        let error = loaded.require_host_rights().unwrap_err().to_string();
        assert!(error.contains(&format!("\n\n  {line}\n\n")), "{error}");
        assert!(error.contains(&format!("run `hatchery trust {}`", place.folder().display())), "{error}");
        place.trust();
        place.load().require_host_rights().unwrap();
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_everybody_can_write_is_not_trusted() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new(NETWORK);
    place.trust();
    let file = place.folder().join(FILE_NAME);
    for path in [&file, &place.folder()] {
        let before = fs::metadata(path).unwrap().permissions();
        fs::set_permissions(path, fs::Permissions::from_mode(before.mode() | 0o002)).unwrap();
        for source in [place.source(), place.source().named(Some(file.clone()))] {
            let explanation = source.load().unwrap().explanation().unwrap();
            assert!(explanation.contains("and every user of this machine can write it:"), "{explanation}");
            assert!(explanation.ends_with(&format!("run `chmod o-w {}`", path.display())), "{explanation}");
        }
        fs::set_permissions(path, before).unwrap();
    }
    assert_eq!(place.load().standing, Standing::Trusted);
}

#[test]
fn a_list_that_cannot_be_used_trusts_nothing() {
    let place = Place::new(NETWORK);
    place.trust();
    fs::write(place.store().file(), "nonsense").unwrap();
    let explanation = place.load().explanation().unwrap();
    assert!(explanation.contains("and the list of trusted folders cannot be used:"), "{explanation}");
    assert!(explanation.ends_with("; delete it and trust your folders again"), "{explanation}");
}

#[test]
fn a_file_that_is_required_and_missing_is_an_error() {
    let place = Place::new("");
    fs::remove_file(place.folder().join(FILE_NAME)).unwrap();
    assert_eq!(place.load().config, Config::default());
    let error = place.source().required(true).load().unwrap_err().to_string();
    let file = place.folder().join(FILE_NAME);
    assert_eq!(error, format!("{}: there is no such file, and --config-required asks for one", file.display()));
}

#[test]
fn in_a_rehearsal_grants_of_the_network_reach_nobody_and_need_no_trust() {
    let place = Place::new(NETWORK);
    let loaded = place.source().for_rehearsal().load().unwrap();
    assert_eq!(loaded.standing, Standing::Inside);
    assert_eq!(loaded.config.components["web"].grants.network.len(), 1);
    fs::write(
        place.folder().join(FILE_NAME),
        format!("{NETWORK}    limits: {{}}\n  spy:\n    grants: {{environment: {{A: {{from: A}}}}}}\n"),
    )
    .unwrap();
    let loaded = place.source().for_rehearsal().load().unwrap();
    assert!(loaded.config.components["spy"].refusal.is_some() && loaded.config.components["web"].refusal.is_none());
}

#[test]
fn the_served_folder_cannot_be_granted_for_writing_by_any_configuration() {
    let place = Place::new("");
    let own = place.root.path().join("elsewhere/own.yaml");
    fs::create_dir(own.parent().unwrap()).unwrap();
    fs::write(
        &own,
        format!(
            "components: {{a: {{grants: {{files: [{{host: {}, guest: /a, access: write}}]}}}}}}",
            place.root.path().display()
        ),
    )
    .unwrap();
    let error = place.source().named(Some(own)).load().unwrap_err().to_string();
    assert!(error.contains("components.a.grants.files: the folder "), "{error}");
    assert!(error.ends_with("holds hatchery.yaml and all components; grant one below it for writing"), "{error}");
}
