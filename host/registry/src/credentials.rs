//! Who one is for a registry: `HATCHERY_REGISTRY_USER` and `HATCHERY_REGISTRY_PASSWORD` for the one in `HATCHERY_REGISTRY`, or what `docker login`
//! has written, or what one of Docker's credential helpers says: programs `docker-credential-NAME` of the PATH, which are started for the registries that Docker's
//! configuration has them for.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::error::RegistryError;

const USER: &str = "HATCHERY_REGISTRY_USER";
const PASSWORD: &str = "HATCHERY_REGISTRY_PASSWORD";

/// The only registry that the two are for, host and port. A lock file names registries, and whoever may change it could ask for the
/// password otherwise.
const ONLY: &str = "HATCHERY_REGISTRY";

/// How long a credential helper may take: it may ask the person in front of it.
const HELPER_PATIENCE: Duration = Duration::from_secs(60);

/// What a helper calls a user whose secret is no password.
const TOKEN_USER: &str = "<token>";

/// Names and passwords for registries.
#[derive(Debug, Default)]
pub struct Credentials {
    /// One registry, and what wins over the others there.
    own: Option<(String, RegistryAuth)>,
    /// By host and port.
    docker: BTreeMap<String, RegistryAuth>,
    /// The helpers of single registries.
    helpers: BTreeMap<String, String>,
    /// The helper of the others.
    store: Option<String>,
}

/// What a helper answers.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Helped {
    username: String,
    secret: String,
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
    /// When one of the three variables is missing, or the file does not say what it should.
    pub fn of_environment() -> Result<Self, RegistryError> {
        Self::find(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn find(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, RegistryError> {
        let own = match (variable(USER), variable(PASSWORD)) {
            (Some(user), Some(password)) => {
                let registry = variable(ONLY).ok_or(RegistryError::RegistryNotNamed { password: PASSWORD })?;
                Some((registry, RegistryAuth::Basic(user, password)))
            }
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

    /// A login for one registry.
    #[cfg(test)]
    pub(crate) fn for_registry(registry: &str, user: &str, password: &str) -> Self {
        let login = RegistryAuth::Basic(user.to_owned(), password.to_owned());
        Self { own: Some((registry.to_owned(), login)), ..Self::default() }
    }

    fn of_docker(file: &Path) -> Result<Self, RegistryError> {
        let path = || file.to_owned();
        let text = std::fs::read_to_string(file).map_err(|source| RegistryError::Read { path: path(), source })?;
        let config: DockerConfig = serde_json::from_str(&text)
            .map_err(|error| RegistryError::Credentials { path: path(), reason: error.to_string() })?;
        let mut found = Self { store: config.creds_store, ..Self::default() };
        let helpers = config.cred_helpers.into_iter();
        found.helpers = helpers.map(|(key, helper)| (host(&key).to_owned(), helper)).collect();
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
    pub(crate) async fn of(&self, registry: &str) -> RegistryAuth {
        let own = self.own.as_ref().filter(|(only, _)| only == registry).map(|(_, login)| login);
        if let Some(known) = own.or_else(|| self.docker.get(registry)) {
            return known.clone();
        }
        let Some(helper) = self.helpers.get(registry).or(self.store.as_ref()) else { return RegistryAuth::Anonymous };
        match ask(helper, registry).await {
            Ok(Helped { username, secret }) if username != TOKEN_USER => RegistryAuth::Basic(username, secret),
            Ok(_) => {
                tracing::warn!("docker-credential-{helper} has an identity token for {registry}, which is not used");
                RegistryAuth::Anonymous
            }
            Err(Silent::HasNone(said)) => {
                tracing::debug!("docker-credential-{helper} has no login for {registry}: {said}");
                RegistryAuth::Anonymous
            }
            Err(Silent::Failed(error)) => {
                tracing::warn!(
                    "docker-credential-{helper}, which has the login for {registry}, does not work: {error}"
                );
                RegistryAuth::Anonymous
            }
        }
    }
}

/// Why a helper gives nothing.
enum Silent {
    /// It says so.
    HasNone(String),
    /// It cannot be started, does not end or says something else.
    Failed(io::Error),
}

impl From<io::Error> for Silent {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

async fn ask(helper: &str, registry: &str) -> Result<Helped, Silent> {
    let mut command = Command::new(format!("docker-credential-{helper}"));
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(registry.as_bytes()).await?;
    }
    let late = |_| io::Error::other(format!("no answer within {HELPER_PATIENCE:?}"));
    let output = tokio::time::timeout(HELPER_PATIENCE, child.wait_with_output()).await.map_err(late)??;
    if !output.status.success() {
        return Err(Silent::HasNone(String::from_utf8_lossy(&output.stdout).trim().to_owned()));
    }
    // What it says holds the password: of what is wrong with it, only the place is told.
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let place = format!("line {}, column {} of its answer", error.line(), error.column());
        Silent::Failed(io::Error::new(io::ErrorKind::InvalidData, place))
    })
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

    #[tokio::test]
    async fn what_docker_login_has_written_is_for_its_registry_only() {
        let config = r#"{"auths": {"localhost:5000": {"auth": "YWRhOnBhc3M6d29yZA=="}, "https://b.example/v1/": {"auth": "YWRhOng="}},
            "HttpHeaders": {}}"#;
        let found = of_docker(config, &[]).unwrap();
        assert_eq!(found.of("localhost:5000").await, basic("ada", "pass:word"));
        assert_eq!(found.of("b.example").await, basic("ada", "x"));
        assert_eq!(found.of("localhost:5001").await, RegistryAuth::Anonymous);
    }

    #[tokio::test]
    async fn the_variables_win_for_the_registry_that_they_name() {
        let config = r#"{"auths": {"localhost:5000": {"auth": "YWRhOng="}}}"#;
        let found = of_docker(config, &[(USER, "bob"), (PASSWORD, "y"), (ONLY, "localhost:5000")]).unwrap();
        assert_eq!(found.of("localhost:5000").await, basic("bob", "y"));
        assert_eq!(found.of("localhost:5001").await, RegistryAuth::Anonymous);
        assert_eq!(found.of("evil.example").await, RegistryAuth::Anonymous);
    }

    #[test]
    fn a_password_is_for_no_registry_that_only_a_lock_file_names() {
        let error = of_docker("{}", &[(USER, "bob"), (PASSWORD, "y")]).unwrap_err();
        assert_eq!(
            error,
            "HATCHERY_REGISTRY is not set, but HATCHERY_REGISTRY_PASSWORD is: a password is sent to one registry only; set \
             HATCHERY_REGISTRY to its host and port, as in `registry.example:5000`"
        );
    }

    #[test]
    fn one_variable_alone_is_a_mistake() {
        let error = of_docker("{}", &[(USER, "bob")]).unwrap_err();
        assert_eq!(error, "HATCHERY_REGISTRY_PASSWORD is not set, but HATCHERY_REGISTRY_USER is; set both or none");
        assert!(of_docker("{}", &[(PASSWORD, "y")]).unwrap_err().starts_with("HATCHERY_REGISTRY_USER is not set"));
    }

    #[tokio::test]
    async fn a_helper_that_is_not_there_makes_one_a_stranger() {
        let config = r#"{"auths": {"a.example": {}}, "credHelpers": {"a.example": "is-not-installed"}}"#;
        assert_eq!(of_docker(config, &[]).unwrap().of("a.example").await, RegistryAuth::Anonymous);
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
