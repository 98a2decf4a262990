//! Credentials for registries, from these sources in order:
//!
//! 1. `HATCHERY_REGISTRY_USER` and `HATCHERY_REGISTRY_PASSWORD`, for the registry in `HATCHERY_REGISTRY` only;
//! 2. logins that `docker login` has written to Docker's configuration;
//! 3. Docker's credential helpers: programs `docker-credential-NAME` on the PATH. They are only started for the
//!    registries that Docker's configuration lists for them.

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

/// The host and port of the only registry that receives the password. Lockfiles name registries, so without this anyone
/// who can change a lockfile could obtain the password.
const REGISTRY: &str = "HATCHERY_REGISTRY";

/// The timeout of a credential helper, which may prompt the user.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);

/// The host of Docker Hub, and the key under which Docker stores its login.
const DOCKER_HUB: &str = "index.docker.io";
const DOCKER_HUB_KEY: &str = "https://index.docker.io/v1/";

/// The user name that a helper returns with an identity token.
const TOKEN_USER: &str = "<token>";

/// User names and passwords for registries.
#[derive(Debug, Default)]
pub struct Credentials {
    /// The login from the environment and its registry. It has precedence over the other sources.
    env_login: Option<(String, RegistryAuth)>,
    /// Logins in Docker's configuration by host and port.
    docker: BTreeMap<String, RegistryAuth>,
    /// Helpers by host and port.
    helpers: BTreeMap<String, String>,
    /// The helper for all other registries.
    default_helper: Option<String>,
}

/// The output of a helper.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperResponse {
    username: String,
    secret: String,
}

/// The relevant part of Docker's `config.json`.
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
    /// Base64 of `user:password`. Absent if a helper stores the login.
    #[serde(default)]
    auth: String,
}

impl Credentials {
    /// Reads the environment variables, and `config.json` in `DOCKER_CONFIG` or in `~/.docker`.
    ///
    /// # Errors
    /// If some of the three variables are missing, or the file is invalid.
    pub fn from_env() -> Result<Self, RegistryError> {
        Self::read(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn read(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, RegistryError> {
        let env_login = match (variable(USER), variable(PASSWORD)) {
            (Some(user), Some(password)) => {
                let registry = variable(REGISTRY).ok_or(RegistryError::MissingRegistry { password: PASSWORD })?;
                Some((registry, RegistryAuth::Basic(user, password)))
            }
            (Some(_), None) => return Err(RegistryError::IncompleteCredentials { set: USER, missing: PASSWORD }),
            (None, Some(_)) => return Err(RegistryError::IncompleteCredentials { set: PASSWORD, missing: USER }),
            (None, None) => None,
        };
        let folder = variable("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".docker")));
        let file = folder.map(|folder| folder.join("config.json")).filter(|file| file.is_file());
        let docker = file.map(|file| Self::read_docker_config(&file)).transpose()?.unwrap_or_default();
        Ok(Self { env_login, ..docker })
    }

    /// Creates a login for one registry.
    #[cfg(test)]
    pub(crate) fn with_login(registry: &str, user: &str, password: &str) -> Self {
        let login = RegistryAuth::Basic(user.to_owned(), password.to_owned());
        Self { env_login: Some((registry.to_owned(), login)), ..Self::default() }
    }

    fn read_docker_config(file: &Path) -> Result<Self, RegistryError> {
        let path = || file.to_owned();
        let text = std::fs::read_to_string(file).map_err(|source| RegistryError::Read { path: path(), source })?;
        let config: DockerConfig = serde_json::from_str(&text)
            .map_err(|error| RegistryError::InvalidCredentials { path: path(), reason: error.to_string() })?;
        let mut credentials = Self { default_helper: config.creds_store, ..Self::default() };
        let helpers = config.cred_helpers.into_iter();
        credentials.helpers = helpers.map(|(key, helper)| (host_of_key(&key).to_owned(), helper)).collect();
        for (key, entry) in config.auths.iter().filter(|(_, entry)| !entry.auth.is_empty()) {
            let login = decode_login(&entry.auth).ok_or_else(|| RegistryError::InvalidCredentials {
                path: path(),
                reason: format!("`auth` of {key} is not the base64 of `user:password`"),
            })?;
            credentials.docker.insert(host_of_key(key).to_owned(), login);
        }
        Ok(credentials)
    }

    /// Returns the login for a registry.
    pub(crate) async fn for_registry(&self, registry: &str) -> RegistryAuth {
        let env_login = self.env_login.as_ref().filter(|(allowed, _)| allowed == registry).map(|(_, login)| login);
        if let Some(login) = env_login.or_else(|| self.docker.get(registry)) {
            return login.clone();
        }
        let Some(helper) = self.helpers.get(registry).or(self.default_helper.as_ref()) else {
            return RegistryAuth::Anonymous;
        };
        match run_helper(helper, registry).await {
            Ok(HelperResponse { username, secret }) if username != TOKEN_USER => RegistryAuth::Basic(username, secret),
            Ok(_) => {
                tracing::warn!("docker-credential-{helper} has an identity token for {registry}, which is not used");
                RegistryAuth::Anonymous
            }
            Err(HelperError::NoLogin(message)) => {
                tracing::debug!("docker-credential-{helper} has no login for {registry}: {message}");
                RegistryAuth::Anonymous
            }
            Err(HelperError::Failed(error)) => {
                tracing::warn!("docker-credential-{helper} failed to provide the login for {registry}: {error}");
                RegistryAuth::Anonymous
            }
        }
    }
}

enum HelperError {
    /// The helper reported that it has no login.
    NoLogin(String),
    /// The helper could not be started, timed out or returned invalid output.
    Failed(io::Error),
}

impl From<io::Error> for HelperError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

async fn run_helper(helper: &str, registry: &str) -> Result<HelperResponse, HelperError> {
    let mut command = Command::new(format!("docker-credential-{helper}"));
    command.arg("get").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        let key = if registry == DOCKER_HUB { DOCKER_HUB_KEY } else { registry };
        stdin.write_all(key.as_bytes()).await?;
    }
    let timed_out = |_| io::Error::other(format!("no response within {HELPER_TIMEOUT:?}"));
    let output = tokio::time::timeout(HELPER_TIMEOUT, child.wait_with_output()).await.map_err(timed_out)??;
    if !output.status.success() {
        return Err(HelperError::NoLogin(String::from_utf8_lossy(&output.stdout).trim().to_owned()));
    }
    // The output contains the password, so the error only has the position.
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let position = format!("line {}, column {} of its output", error.line(), error.column());
        HelperError::Failed(io::Error::new(io::ErrorKind::InvalidData, position))
    })
}

/// Returns the host of a key, which is `https://host/v1/` in old entries.
fn host_of_key(key: &str) -> &str {
    let key = key.split_once("://").map_or(key, |(_, rest)| rest);
    key.split_once('/').map_or(key, |(host, _)| host)
}

fn decode_login(auth: &str) -> Option<RegistryAuth> {
    let text = String::from_utf8(STANDARD.decode(auth.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.trim_end_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_config(config: &str, extra: &[(&'static str, &str)]) -> Result<Credentials, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let folder = folder.path().to_str().unwrap();
        let variable = |name| match name {
            "DOCKER_CONFIG" => Some(folder.to_owned()),
            name => extra.iter().find(|(extra, _)| *extra == name).map(|(_, value)| (*value).to_owned()),
        };
        Credentials::read(variable).map_err(|error| error.to_string())
    }

    fn basic(user: &str, password: &str) -> RegistryAuth {
        RegistryAuth::Basic(user.into(), password.into())
    }

    #[tokio::test]
    async fn logins_of_docker_are_used_for_their_registry_only() {
        let config = r#"{"auths": {"localhost:5000": {"auth": "YWRhOnBhc3M6d29yZA=="}, "https://b.example/v1/": {"auth": "YWRhOng="}},
            "HttpHeaders": {}}"#;
        let found = read_config(config, &[]).unwrap();
        assert_eq!(found.for_registry("localhost:5000").await, basic("ada", "pass:word"));
        assert_eq!(found.for_registry("b.example").await, basic("ada", "x"));
        assert_eq!(found.for_registry("localhost:5001").await, RegistryAuth::Anonymous);
    }

    #[tokio::test]
    async fn the_variables_have_precedence_for_their_registry() {
        let config = r#"{"auths": {"localhost:5000": {"auth": "YWRhOng="}}}"#;
        let found = read_config(config, &[(USER, "bob"), (PASSWORD, "y"), (REGISTRY, "localhost:5000")]).unwrap();
        assert_eq!(found.for_registry("localhost:5000").await, basic("bob", "y"));
        assert_eq!(found.for_registry("localhost:5001").await, RegistryAuth::Anonymous);
        assert_eq!(found.for_registry("evil.example").await, RegistryAuth::Anonymous);
    }

    #[test]
    fn a_password_without_a_registry_is_an_error() {
        let error = read_config("{}", &[(USER, "bob"), (PASSWORD, "y")]).unwrap_err();
        assert_eq!(
            error,
            "HATCHERY_REGISTRY is not set, but HATCHERY_REGISTRY_PASSWORD is: a password is sent to one registry only; set \
             HATCHERY_REGISTRY to its host and port, as in `registry.example:5000`"
        );
    }

    #[test]
    fn a_user_without_a_password_is_an_error() {
        let error = read_config("{}", &[(USER, "bob")]).unwrap_err();
        assert_eq!(error, "HATCHERY_REGISTRY_PASSWORD is not set, but HATCHERY_REGISTRY_USER is; set both or none");
        assert!(read_config("{}", &[(PASSWORD, "y")]).unwrap_err().starts_with("HATCHERY_REGISTRY_USER is not set"));
    }

    #[tokio::test]
    async fn a_missing_helper_leads_to_anonymous_access() {
        let config = r#"{"auths": {"a.example": {}}, "credHelpers": {"a.example": "is-not-installed"}}"#;
        assert_eq!(read_config(config, &[]).unwrap().for_registry("a.example").await, RegistryAuth::Anonymous);
    }

    #[test]
    fn an_invalid_file_is_named_with_the_entry() {
        let error = read_config(r#"{"auths": {"a.example": {"auth": "?"}}}"#, &[]).unwrap_err();
        assert!(error.contains("config.json: `auth` of a.example is not the base64 of `user:password`"), "{error}");
        assert!(error.ends_with("`docker login` writes a new one"), "{error}");
        assert!(read_config("{", &[]).unwrap_err().contains("config.json: "));
    }

    #[test]
    fn passwords_are_not_in_debug_output() {
        let found = read_config(r#"{"auths": {"a.example": {"auth": "YWRhOnBhc3M6d29yZA=="}}}"#, &[]).unwrap();
        assert!(!format!("{found:?}").contains("pass:word"));
    }
}
