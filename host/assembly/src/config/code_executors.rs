//! Settings of code executors: `code_executors`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hatchery_executors::{CredentialsSource, ExtensionOperation, VertexConfig as VertexSettings};
use hatchery_openapi::{Credentials, KeySource};
use hatchery_wasm::limits::units;
use hatchery_wasm::policy::{OutboundPolicy, entries_for};
use serde::Deserialize;

use super::openapi::{GOOGLE_TOKEN_URL, ServiceAccountConfig};
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;

/// The name for code execution by the model's provider, which no executor can have.
const BUILT_IN: &str = "built_in";

/// An executor of the code that models write: exactly one of these. Agents refer to it by its name.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CodeExecutorConfig {
    /// Python in containers of Docker or Podman.
    pub container: Option<ContainerConfig>,
    /// Python in a code interpreter extension of Vertex AI.
    pub vertex: Option<VertexConfig>,
    /// The reason why the executor is not used. It cannot be set in the file.
    #[serde(skip)]
    pub refusal: Option<String>,
}

/// Containers of Docker or Podman.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContainerConfig {
    /// The Unix socket of the engine, such as `/var/run/docker.sock`.
    pub socket: PathBuf,
    /// The image, which has `python3`. The host does not pull it.
    pub image: String,
    /// Maximum memory of a container. Default: 512 MiB.
    #[serde(default)]
    pub memory: Option<ByteSize>,
    /// Maximum size of the files in the folder of the code, which are a part of the memory. Default: 256 MiB.
    #[serde(default)]
    pub disk: Option<ByteSize>,
    /// Processors of a container. Default: 1.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// Maximum number of processes of a container. Default: 128.
    #[serde(default)]
    pub pids: Option<u32>,
    /// Timeout of code. Default: 60 s.
    #[serde(default, deserialize_with = "units::deserialize_optional_duration")]
    pub timeout: Option<Duration>,
    /// Maximum size of the printed output, and of all files. Default: 8 MiB.
    #[serde(default)]
    pub max_output: Option<ByteSize>,
    /// Maximum number of containers; further code waits. Default: 16.
    #[serde(default)]
    pub max_containers: Option<usize>,
    /// Maximum number of containers that keep the state of sessions. Default: 16.
    #[serde(default)]
    pub max_sessions: Option<usize>,
    /// Idle time after which the container of a session and its state are removed. Default: 15 min.
    #[serde(default, deserialize_with = "units::deserialize_optional_duration")]
    pub idle_timeout: Option<Duration>,
}

/// A code interpreter extension of Vertex AI.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VertexConfig {
    /// `projects/PROJECT/locations/LOCATION/extensions/ID`.
    pub extension: String,
    /// The account that calls it.
    pub service_account: ServiceAccountConfig,
    /// The operation of the extension. Default: `execute`, which runs the code unchanged.
    #[serde(default)]
    pub operation: VertexOperation,
    /// Base URL of the service. Default: the service in the location of the extension.
    #[serde(default)]
    pub endpoint: Option<String>,
    /// Timeout of code. Default: 60 s.
    #[serde(default, deserialize_with = "units::deserialize_optional_duration")]
    pub timeout: Option<Duration>,
}

/// An operation of a code interpreter extension.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VertexOperation {
    /// Runs the code.
    #[default]
    Execute,
    /// Lets the extension's own model write code for a text, which is the code here.
    GenerateAndExecute,
}

/// Checks the names and settings of executors.
///
/// # Errors
/// The problem, with the key.
pub(super) fn check(executors: &BTreeMap<String, CodeExecutorConfig>) -> Result<(), String> {
    executors.iter().try_for_each(|(name, executor)| {
        let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) || name == BUILT_IN {
            return Err(format!(
                "code_executors: `{}` is not a valid name; use up to 64 letters, digits, `-` and `_`, but not `{BUILT_IN}`",
                name.escape_debug()
            ));
        }
        match (&executor.container, &executor.vertex) {
            (Some(container), None) => container.check(),
            (None, Some(vertex)) => vertex.check(),
            (None, None) | (Some(_), Some(_)) => Err("it has either a `container` or a `vertex`".into()),
        }
        .map_err(|reason| format!("code_executors.{name}: {reason}"))
    })
}

/// Resolves the paths of credentials files against `folder`. The path of a socket must be absolute.
pub(super) fn resolve_paths(executors: &mut BTreeMap<String, CodeExecutorConfig>, folder: &Path) {
    let accounts = executors.values_mut().filter_map(|executor| executor.vertex.as_mut());
    for file in accounts.filter_map(|vertex| vertex.service_account.file.as_mut()) {
        *file = folder.join(&*file);
    }
}

impl ContainerConfig {
    fn check(&self) -> Result<(), String> {
        if !self.socket.is_absolute() {
            return Err(
                "`container.socket` must be the absolute path of a socket, such as `/var/run/docker.sock`".into()
            );
        }
        if self.image.trim().is_empty() {
            return Err("`container.image` is missing".into());
        }
        if self.cpus.is_some_and(|cpus| !(cpus > 0.0 && cpus <= 1024.0)) {
            return Err("`container.cpus` must be more than 0 and at most 1024".into());
        }
        Ok(())
    }

    /// Returns the settings of an executor.
    #[cfg(unix)]
    pub(crate) fn settings(&self) -> hatchery_executors::ContainerConfig {
        let default = hatchery_executors::ContainerConfig::new(&self.socket, &self.image);
        hatchery_executors::ContainerConfig {
            memory: self.memory.map_or(default.memory, |memory| u64::try_from(memory.bytes()).unwrap_or(u64::MAX)),
            disk: self.disk.map_or(default.disk, |disk| u64::try_from(disk.bytes()).unwrap_or(u64::MAX)),
            cpus: self.cpus.unwrap_or(default.cpus),
            pids: self.pids.unwrap_or(default.pids),
            timeout: self.timeout.unwrap_or(default.timeout),
            max_output: self.max_output.map_or(default.max_output, ByteSize::bytes),
            max_containers: self.max_containers.unwrap_or(default.max_containers),
            max_sessions: self.max_sessions.unwrap_or(default.max_sessions),
            idle_timeout: self.idle_timeout.unwrap_or(default.idle_timeout),
            ..default
        }
    }
}

impl VertexConfig {
    fn check(&self) -> Result<(), String> {
        let segments: Vec<&str> = self.extension.split('/').collect();
        if !matches!(*segments, ["projects", _, "locations", _, "extensions", _]) {
            return Err("`vertex.extension` must be `projects/PROJECT/locations/LOCATION/extensions/ID`".into());
        }
        self.service_account.credentials().map(drop).map_err(|reason| format!("vertex.{reason}"))?;
        self.policy().map(drop)
    }

    /// Returns the egress policy of requests.
    fn policy(&self) -> Result<OutboundPolicy, String> {
        let location = self.extension.split('/').nth(3).unwrap_or_default();
        let service = format!("https://{location}-aiplatform.googleapis.com");
        let mut policy = OutboundPolicy::default();
        for url in [self.endpoint.as_deref().unwrap_or(&service), GOOGLE_TOKEN_URL] {
            let (own, private) = entries_for(url)?;
            policy.network.push(own);
            policy.private_network.extend(private);
        }
        Ok(policy)
    }

    /// Returns the settings of an executor. `None` if they are invalid: reading the file reports that error.
    pub(crate) fn settings(&self, name: &str) -> Option<VertexSettings> {
        let Ok(Credentials::Google(account)) = self.service_account.credentials() else { return None };
        Some(VertexSettings {
            extension: self.extension.clone(),
            operation: match self.operation {
                VertexOperation::Execute => ExtensionOperation::Execute,
                VertexOperation::GenerateAndExecute => ExtensionOperation::GenerateAndExecute,
            },
            endpoint: self.endpoint.clone(),
            credentials: match account.key {
                KeySource::File(file) => CredentialsSource::File(file),
                KeySource::Json(json) => CredentialsSource::Json(json),
            },
            egress: HostEgress::new(self.policy().ok()?, format!("code_executors.{name}")),
            timeout: self.timeout.unwrap_or(Duration::from_secs(60)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn error(executors: &str) -> String {
        let text = format!("code_executors: {executors}");
        let error = Config::parse(&text, Path::new("/srv/hatchery.yaml")).unwrap_err().to_string();
        error.strip_prefix("/srv/hatchery.yaml: code_executors").unwrap_or(&error).to_owned()
    }

    #[test]
    fn an_executor_is_a_container_or_an_extension_with_limits() {
        let text = "code_executors:\n  python: {container: {socket: /run/docker.sock, image: python:3, memory: 1 GiB, cpus: 0.5, \
                    timeout: 5s, idle_timeout: 1min, max_output: 1 KiB, pids: 9, disk: 1 MiB, max_containers: 3, max_sessions: 2}}\n  \
                    cloud: {vertex: {extension: projects/p/locations/us-central1/extensions/7, operation: generate_and_execute, \
                    service_account: {file: key.json}}}\n";
        let config = Config::parse(text, Path::new("/srv/hatchery.yaml")).unwrap();
        let container = config.code_executors["python"].container.as_ref().unwrap().settings();
        let expected = hatchery_executors::ContainerConfig {
            memory: 1 << 30,
            cpus: 0.5,
            pids: 9,
            disk: 1 << 20,
            max_containers: 3,
            timeout: Duration::from_secs(5),
            max_output: 1_024,
            max_sessions: 2,
            idle_timeout: Duration::from_secs(60),
            ..hatchery_executors::ContainerConfig::new("/run/docker.sock", "python:3")
        };
        assert_eq!(container, expected);
        let vertex = config.code_executors["cloud"].vertex.as_ref().unwrap();
        let settings = vertex.settings("cloud").unwrap();
        assert_eq!(settings.operation, ExtensionOperation::GenerateAndExecute);
        assert_eq!(settings.credentials, CredentialsSource::File("/srv/key.json".into()));
        let hosts: Vec<_> = vertex.policy().unwrap().network.iter().map(ToString::to_string).collect();
        assert_eq!(hosts.len(), 2, "{hosts:?}");
        assert!(hosts[0].contains("us-central1-aiplatform.googleapis.com"), "{hosts:?}");
    }

    #[test]
    fn mistakes_name_the_executor_and_the_key() {
        assert_eq!(error("{a: {}}"), ".a: it has either a `container` or a `vertex`");
        assert_eq!(
            error("{built_in: {}}"),
            ": `built_in` is not a valid name; use up to 64 letters, digits, `-` and `_`, but not `built_in`"
        );
        assert_eq!(
            error("{a: {container: {socket: docker.sock, image: x}}}"),
            ".a: `container.socket` must be the absolute path of a socket, such as `/var/run/docker.sock`"
        );
        assert_eq!(
            error("{a: {container: {socket: /s, image: x, cpus: 0}}}"),
            ".a: `container.cpus` must be more than 0 and at most 1024"
        );
        assert_eq!(error("{a: {container: {socket: /s, image: ' '}}}"), ".a: `container.image` is missing");
        assert_eq!(
            error("{a: {vertex: {extension: '7', service_account: {file: k}}}}"),
            ".a: `vertex.extension` must be `projects/PROJECT/locations/LOCATION/extensions/ID`"
        );
        assert_eq!(
            error("{a: {vertex: {extension: projects/p/locations/l/extensions/7, service_account: {}}}}"),
            ".a: vertex.service_account has either a `file` or a `json` from a variable"
        );
    }
}
