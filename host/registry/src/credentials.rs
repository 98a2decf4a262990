//! Who one is for a registry: `HATCHERY_REGISTRY_USER` and `HATCHERY_REGISTRY_PASSWORD`, or what `docker login` has written.
//!
//! Docker's credential helpers, which are programs, are not started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;

use crate::error::RegistryError;

const USER: &str = "HATCHERY_REGISTRY_USER";
const PASSWORD: &str = "HATCHERY_REGISTRY_PASSWORD";

/// Names and passwords for registries.
#[derive(Debug, Default)]
pub struct Credentials {
    /// For every registry; wins over the others.
    own: Option<RegistryAuth>,
    /// By host and port.
    docker: BTreeMap<String, RegistryAuth>,
    /// Registries whose passwords are kept by a program.
    helped: Vec<String>,
    has_store: bool,
}

/// The part of Docker's `config.json` that matters.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
    #[serde(default)]
    cred_helpers: BTreeMap<String, String>,
    creds_store: Option<String>,
}

#[derive(Deserialize)]
struct DockerAuth {
    /// Base64 of `user:password`; absent when a program keeps it.
    #[serde(default)]
    auth: String,
}

impl Credentials {
    /// Those of this process: its variables, and `config.json` in `DOCKER_CONFIG` or in `~/.docker`.
    ///
    /// # Errors
    /// When one of the two variables is missing, or the file does not say what it should.
    pub fn of_environment() -> Result<Self, RegistryError> {
        Self::find(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn find(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, RegistryError> {
        let own = match (variable(USER), variable(PASSWORD)) {
            (Some(user), Some(password)) => Some(RegistryAuth::Basic(user, password)),
            (Some(_), None) => return Err(RegistryError::HalfCredentials { set: USER, missing: PASSWORD }),
            (None, Some(_)) => return Err(RegistryError::HalfCredentials { set: PASSWORD, missing: USER }),
            (None, None) => None,
        };
        let folder = variable("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".docker")));
        let file = folder.map(|folder| folder.join("config.json")).filter(|file| file.is_file());
        let found = file.map(|file| Self::of_docker(&file)).transpose()?.unwrap_or_default();
        Ok(Self { own, ..found })
    }

    fn of_docker(file: &Path) -> Result<Self, RegistryError> {
        let path = || file.to_owned();
        let text = std::fs::read_to_string(file).map_err(|source| RegistryError::Read { path: path(), source })?;
        let config: DockerConfig = serde_json::from_str(&text)
            .map_err(|error| RegistryError::Credentials { path: path(), reason: error.to_string() })?;
        let mut found = Self { has_store: config.creds_store.is_some(), ..Self::default() };
        found.helped = config.cred_helpers.into_keys().map(|key| host(&key).to_owned()).collect();
        for (key, entry) in config.auths.iter().filter(|(_, entry)| !entry.auth.is_empty()) {
            let login = login(&entry.auth).ok_or_else(|| RegistryError::Credentials {
                path: path(),
                reason: format!("`auth` of {key} is not the base64 of `user:password`"),
            })?;
            found.docker.insert(host(key).to_owned(), login);
        }
        Ok(found)
    }

    /// What to show a registry.
    pub(crate) fn of(&self, registry: &str) -> RegistryAuth {
        self.own.as_ref().or_else(|| self.docker.get(registry)).cloned().unwrap_or(RegistryAuth::Anonymous)
    }

    /// What to do when a registry does not like it.
    pub(crate) fn advice(&self, registry: &str) -> String {
        if self.has_store || self.helped.iter().any(|helped| helped == registry) {
            "passwords that Docker keeps in a credential helper are not read".to_owned()
        } else {
            format!("log in with `docker login {registry}`")
        }
    }
}

/// The host of `https://host/v1/`, as old entries are written.
fn host(key: &str) -> &str {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    key.split_once('/').map_or(key, |(host, _)| host)
}

fn login(auth: &str) -> Option<RegistryAuth> {
    let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_docker(config: &str, extra: &[(&'static str, &str)]) -> Result<Credentials, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let folder = folder.path().to_str().unwrap();
        let variable = |name| match name {
            "DOCKER_CONFIG" => Some(folder.to_owned()),
            name => extra.iter().find(|(extra, _)| *extra == name).map(|(_, value)| (*value).to_owned()),
        };
        Credentials::find(variable).map_err(|error| error.to_string())
    }

    fn basic(user: &str, password: &str) -> RegistryAuth {
        RegistryAuth::Basic(user.into(), password.into())
    }

    #[test]
    fn what_docker_login_has_written_is_for_its_registry_only() {
        let config = r#"{"auths": {"localhost:5000": {"auth": "YWRhOnBhc3M6d29yZA=="}, "https://b.example/v1/": {"auth": "YWRhOng="}},
            "HttpHeaders": {}}"#;
        let found = of_docker(config, &[]).unwrap();
        assert_eq!(found.of("localhost:5000"), basic("ada", "pass:word"));
        assert_eq!(found.of("b.example"), basic("ada", "x"));
        assert_eq!(found.of("localhost:5001"), RegistryAuth::Anonymous);
        assert_eq!(found.advice("localhost:5001"), "log in with `docker login localhost:5001`");
    }

    #[test]
    fn the_variables_win() {
        let config = r#"{"auths": {"localhost:5000": {"auth": "YWRhOng="}}}"#;
        let found = of_docker(config, &[(USER, "bob"), (PASSWORD, "y")]).unwrap();
        assert_eq!(found.of("localhost:5000"), basic("bob", "y"));
    }

    #[test]
    fn one_variable_alone_is_a_mistake() {
        let error = of_docker("{}", &[(USER, "bob")]).unwrap_err();
        assert_eq!(error, "HATCHERY_REGISTRY_PASSWORD is not set, but HATCHERY_REGISTRY_USER is; set both or none");
        assert!(of_docker("{}", &[(PASSWORD, "y")]).unwrap_err().starts_with("HATCHERY_REGISTRY_USER is not set"));
    }

    #[test]
    fn a_credential_helper_is_not_started_and_that_is_said() {
        let config = r#"{"auths": {"a.example": {}}, "credHelpers": {"a.example": "x"}}"#;
        let found = of_docker(config, &[]).unwrap();
        assert_eq!(found.of("a.example"), RegistryAuth::Anonymous);
        assert!(found.advice("a.example").contains("credential helper are not read"));
        assert!(found.advice("b.example").contains("docker login b.example"));
        assert!(of_docker(r#"{"credsStore": "desktop"}"#, &[]).unwrap().advice("b.example").contains("not read"));
    }

    #[test]
    fn a_broken_file_is_named_with_the_entry() {
        let error = of_docker(r#"{"auths": {"a.example": {"auth": "?"}}}"#, &[]).unwrap_err();
        assert!(error.contains("config.json: `auth` of a.example is not the base64 of `user:password`"), "{error}");
        assert!(error.ends_with("`docker login` writes it anew"), "{error}");
        assert!(of_docker("{", &[]).unwrap_err().contains("config.json: "));
    }

    #[test]
    fn passwords_are_not_shown() {
        let found = of_docker(r#"{"auths": {"a.example": {"auth": "YWRhOnBhc3M6d29yZA=="}}}"#, &[]).unwrap();
        assert!(!format!("{found:?}").contains("pass:word"));
    }
}
