//! Paths that belong to the host: no grant may cover them.

use std::path::{Path, PathBuf};

use hatchery_wasm::Grants;
use hatchery_wasm::policy::{ProtectedPath, check_opened_folders, check_readable_folders, check_writable_folders};

use crate::config::{Config, ConfigError, path_of_uri, properties_of_uri};
use crate::plugins;

/// Extensions of files that interpreters run.
const SCRIPTS: [&str; 14] =
    ["cjs", "cts", "jar", "js", "lua", "mjs", "mts", "php", "pl", "py", "rb", "sh", "ts", "wasm"];

/// Files and folders that components may not write and, for most of them, not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectedPaths {
    /// Paths that no component may read: user data, keys and native code.
    private: Vec<ProtectedPath>,
    /// Paths that components may read and not write.
    read_only: Vec<ProtectedPath>,
}

impl ProtectedPaths {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a path that no component may read or write.
    #[must_use]
    pub fn private(mut self, purpose: &str, path: impl Into<PathBuf>) -> Self {
        self.private.push(ProtectedPath { purpose: purpose.into(), path: path.into() });
        self
    }

    /// Adds a path that no component may write.
    #[must_use]
    pub fn read_only(mut self, purpose: &str, path: impl Into<PathBuf>) -> Self {
        self.read_only.push(ProtectedPath { purpose: purpose.into(), path: path.into() });
        self
    }

    /// Adds the files of the services of `config`, and the properties files with their storage locations.
    #[must_use]
    pub fn with_services(mut self, config: &Config) -> Self {
        for (purpose, uri) in [
            ("the sessions (`session_service`)", &config.session_service),
            ("the artifacts (`artifact_service`)", &config.artifact_service),
            ("the memory (`memory_service`)", &config.memory_service),
        ] {
            if let Some(path) = uri.as_deref().and_then(path_of_uri) {
                self = self.private(purpose, path);
            }
            if let Some(file) = uri.as_deref().and_then(properties_of_uri) {
                self = self.read_only(&format!("the properties of {purpose}"), file);
            }
        }
        self
    }

    /// Checks that no grant of `config` covers any of these paths, a file with a secret, a key of a client or of the
    /// server, a folder of recordings, or the audit log. Checks that no grant allows writing an OpenAPI document, an
    /// agent card, a program that the host starts, or an entry on the way to a folder that agents search.
    ///
    /// # Errors
    /// [`ConfigError::ProtectedPath`] with the grant and the path.
    pub fn check(&self, config: &Config, file: &Path) -> Result<(), ConfigError> {
        let grants = || config.components.iter().map(|(name, component)| (name.as_str(), &component.grants));
        let mut private = self.private.clone();
        private.extend(grants().flat_map(|(name, grants)| secret_files(name, grants)));
        private.extend(
            config
                .audit
                .file
                .clone()
                .map(|path| ProtectedPath { purpose: "the audit log (`audit.file`)".into(), path }),
        );
        private.extend(config_secrets(config));
        let mut protected = [private.as_slice(), &self.read_only].concat();
        protected.push(ProtectedPath { purpose: "the configuration of the host".into(), path: file.into() });
        protected.extend(interface_files(config));
        protected.extend(programs(config));
        for (index, plugin) in config.plugins.iter().enumerate() {
            if let Some(path) = plugins::folder(plugin) {
                let purpose = format!("recordings of sessions (`plugins[{index}].args.folder`)");
                protected.push(ProtectedPath { purpose, path: path.into() });
            }
        }
        check_writable_folders(grants(), &protected)
            .and_then(|()| check_readable_folders(grants(), &private))
            .and_then(|()| check_opened_folders(grants(), &searched_folders(config)))
            .map_err(|conflict| ConfigError::ProtectedPath { file: file.to_owned(), conflict: Box::new(conflict) })
    }
}

/// Returns the files with keys of the host: its own, and the service accounts' files.
fn config_secrets(config: &Config) -> Vec<ProtectedPath> {
    let own = config
        .server
        .secret_file
        .iter()
        .map(|path| ProtectedPath { purpose: "the key of the host (`server.secret_file`)".into(), path: path.clone() });
    let accounts = config.openapi.apis.iter().filter_map(|(name, api)| {
        let path = api.auth.service_account.as_ref()?.file.clone()?;
        Some(ProtectedPath { purpose: format!("a key (`openapi.apis.{name}.auth.service_account.file`)"), path })
    });
    let of_integrations = config.integrations.iter().filter_map(|(name, integration)| {
        let path = integration.service_account.as_ref()?.file.clone()?;
        Some(ProtectedPath { purpose: format!("a key (`integrations.{name}.service_account.file`)"), path })
    });
    let of_executors = config.code_executors.iter().filter_map(|(name, executor)| {
        let path = executor.vertex.as_ref()?.service_account.file.clone()?;
        Some(ProtectedPath { purpose: format!("a key (`code_executors.{name}.vertex.service_account.file`)"), path })
    });
    let sockets = config.code_executors.iter().filter_map(|(name, executor)| {
        let path = executor.container.as_ref()?.socket.clone();
        Some(ProtectedPath { purpose: format!("an engine (`code_executors.{name}.container.socket`)"), path })
    });
    let keys = config.server.auth.iter().flat_map(|auth| &auth.keys).filter_map(|key| {
        let purpose = format!("the API key `{}` (`server.auth.keys`)", key.name);
        Some(ProtectedPath { purpose, path: key.file.clone()? })
    });
    let tls = config.server.tls.iter().map(|tls| ProtectedPath {
        purpose: "the private key of the server (`server.tls`)".into(),
        path: tls.key.clone(),
    });
    let encryption = config.encryption.keys.iter().filter_map(|key| {
        Some(ProtectedPath { purpose: format!("the key `{}` (`encryption.keys`)", key.id), path: key.file.clone()? })
    });
    own.chain(encryption)
        .chain(accounts)
        .chain(of_integrations)
        .chain(of_executors)
        .chain(sockets)
        .chain(keys)
        .chain(tls)
        .collect()
}

/// Returns the files that select the servers of requests, which carry credentials.
fn interface_files(config: &Config) -> Vec<ProtectedPath> {
    let documents = config.openapi.apis.iter().filter_map(|(name, api)| {
        let purpose = format!("the document of an API (`openapi.apis.{name}.document`)");
        Some(ProtectedPath { purpose, path: api.file()? })
    });
    let cards = config.a2a.agents.iter().filter_map(|(name, agent)| {
        let purpose = format!("the card of a remote agent (`a2a.agents.{name}.card`)");
        Some(ProtectedPath { purpose, path: agent.file()? })
    });
    documents.chain(cards).collect()
}

/// Returns the folders that agents search.
fn searched_folders(config: &Config) -> Vec<ProtectedPath> {
    let folders = config.retrieval.iter().filter_map(|(name, retrieval)| {
        let purpose = format!("a folder that agents search (`retrieval.{name}.folder`)");
        Some(ProtectedPath { purpose, path: retrieval.folder.clone()? })
    });
    folders.collect()
}

/// Returns the programs of MCP servers, and the scripts among their arguments, which need not exist yet.
fn programs(config: &Config) -> Vec<ProtectedPath> {
    let mut programs = Vec::new();
    for (name, server) in &config.mcp.servers {
        let Some(command) = &server.command else { continue };
        // A plain name is on the `PATH`.
        let program = command.components().nth(1).map(|_| command.clone());
        let scripts = server.args.iter().filter(|argument| is_script(argument)).map(|argument| match &server.cwd {
            Some(cwd) => cwd.join(argument),
            None => argument.into(),
        });
        programs.extend(program.into_iter().chain(scripts).map(|path| ProtectedPath {
            purpose: format!("a program that the host starts (`mcp.servers.{name}`)"),
            path,
        }));
    }
    programs
}

/// Returns true for the path of a program that an interpreter runs.
fn is_script(argument: &str) -> bool {
    let extension = Path::new(argument).extension().and_then(|extension| extension.to_str());
    !argument.contains("://") && extension.is_some_and(|extension| SCRIPTS.contains(&extension))
}

fn secret_files(component: &str, grants: &Grants) -> Vec<ProtectedPath> {
    let files = grants.secrets.iter().filter_map(|secret| Some((secret.name(), secret.file()?)));
    let protect = |(name, file): (&str, &Path)| ProtectedPath {
        purpose: format!("the secret `{name}` (`components.{component}.grants.secrets`)"),
        path: file.into(),
    };
    files.map(protect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(paths: &ProtectedPaths, root: &Path, yaml: &str) -> Result<(), String> {
        let file = root.join("hatchery.yaml");
        let config = Config::parse(yaml, &file).unwrap();
        let paths = paths.clone().with_services(&config);
        paths.check(&config, &file).map_err(|error| error.to_string().replace(&format!("{}/", root.display()), ""))
    }

    fn grant(host: &str, access: &str) -> String {
        format!("components: {{spy: {{grants: {{files: [{{host: {host}, guest: /x, access: {access}}}]}}}}}}\n")
    }

    #[test]
    fn data_caches_and_keys_cannot_be_granted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let paths = ProtectedPaths::new()
            .private("the data folder", root.join(".hatchery"))
            .private("the cache of compiled code", root.join("cache/code"))
            .read_only("the list of trusted folders", root.join("config/trusted.json"));
        for (host, access) in
            [(".hatchery", "write"), (".hatchery/artifacts", "read"), ("cache", "read"), ("cache/code/x", "write")]
        {
            let error = check(&paths, &root, &grant(host, access)).unwrap_err();
            assert!(error.starts_with(&format!("hatchery.yaml: components.spy.grants.files: `{host}` (")), "{error}");
            assert!(error.ends_with("; grant a folder that is outside of it"), "{error}");
        }
        let error = check(&paths, &root, &grant(".", "read")).unwrap_err();
        assert!(error.contains("contains `.hatchery`, the data folder"), "{error}");
        let error = check(&paths, &root, &grant("config", "write")).unwrap_err();
        assert!(error.contains("the list of trusted folders"), "{error}");
        check(&paths, &root, &grant("config", "read")).unwrap();
        check(&paths, &root, &grant("data", "write")).unwrap();
    }

    #[test]
    fn paths_in_the_configuration_are_protected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let paths = ProtectedPaths::new();
        for (setting, purpose) in [
            ("session_service: sqlite:data/s.db", "the sessions (`session_service`)"),
            ("artifact_service: file:data/files", "the artifacts (`artifact_service`)"),
            ("memory_service: sqlite:data/m.db", "the memory (`memory_service`)"),
            ("audit: {file: data/audit.log}", "the audit log (`audit.file`)"),
            ("server: {secret_file: data/key}", "the key of the host (`server.secret_file`)"),
            ("encryption: {keys: [{id: a, file: data/key}]}", "the key `a` (`encryption.keys`)"),
            (
                "openapi: {apis: {a: {document: 'https://a', auth: {service_account: {file: data/a.json}}}}}",
                "a key (`openapi.apis.a.auth.service_account.file`)",
            ),
            (
                "integrations: {a: {project: p, location: l, connection: c, service_account: {file: data/a.json}}}",
                "a key (`integrations.a.service_account.file`)",
            ),
        ] {
            for access in ["read", "write"] {
                let error = check(&paths, &root, &format!("{setting}\n{}", grant("data", access))).unwrap_err();
                assert!(error.contains(purpose), "{error}");
            }
        }
        for (setting, purpose) in [
            (
                "plugins: [logging, {name: recorder, args: {folder: data/recorded}}]",
                "recordings of sessions (`plugins[1].args.folder`)",
            ),
            (
                "openapi: {apis: {a: {document: data/a.yaml, base_url: 'https://a'}}}",
                "the document of an API (`openapi.apis.a.document`)",
            ),
            ("a2a: {agents: {a: {card: data/card.json}}}", "the card of a remote agent (`a2a.agents.a.card`)"),
            ("mcp: {servers: {a: {command: data/server}}}", "a program that the host starts (`mcp.servers.a`)"),
            (
                "mcp: {servers: {a: {command: python3, args: [-u, server.py], cwd: data}}}",
                "`data/server.py`, a program that the host starts (`mcp.servers.a`)",
            ),
            ("retrieval: {a: {folder: data/docs}}", "a folder that agents search (`retrieval.a.folder`)"),
            (
                "memory_service: firestore://p?root=r&properties=data/p.properties",
                "the properties of the memory (`memory_service`)",
            ),
        ] {
            let error = check(&paths, &root, &format!("{setting}\n{}", grant("data", "write"))).unwrap_err();
            assert!(error.contains(purpose), "{error}");
            check(&paths, &root, &format!("{setting}\n{}", grant("data", "read"))).unwrap();
        }
        for searched in ["data", "other"] {
            let retrieval = format!("retrieval: {{a: {{folder: {searched}}}}}\n");
            check(&paths, &root, &format!("{retrieval}{}", grant("data", "write"))).unwrap();
        }
        let data_files = "mcp: {servers: {a: {command: sqlite-server, args: [data/x.db, 'https://a/b.js']}}}";
        check(&paths, &root, &format!("{data_files}\n{}", grant("data", "write"))).unwrap();
        let secret = "components: {spy: {grants: {files: [{host: keys, guest: /x}]}}, web: {grants: {network: [a.com], \
                      secrets: [{name: key, file: KEYS/a, host: a.com, header: X}]}}}";
        let error =
            check(&paths, &root, &secret.replace("KEYS", &root.join("keys").display().to_string())).unwrap_err();
        assert!(error.contains("contains `keys/a`, the secret `key` (`components.web.grants.secrets`)"), "{error}");
    }
}
