//! Reading the configuration of a folder, and removing settings that are not trusted.

use std::io;
use std::path::{Path, PathBuf};

use super::external_access::{ExternalAccess, Section, external_access};
use super::restriction::{keys, restrict};
use super::status::{TrustStatus, UntrustedReason};
use super::store::{TrustStore, sha256, writable_by};
use crate::config::{Authority, Config, ConfigError, FILE_NAME};
use crate::shell::quote_path;

/// The configuration of a served folder: its file, and who decides about external access.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    folder: PathBuf,
    named: Option<PathBuf>,
    store: Option<TrustStore>,
    is_required: bool,
    has_network: bool,
}

/// A configuration without the settings that are not trusted.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// The trusted settings.
    pub config: Config,
    /// The file, which need not exist.
    pub file: PathBuf,
    /// SHA-256 of the file, in hexadecimal.
    pub sha256: String,
    /// The requested access outside of the folder.
    pub external: Vec<ExternalAccess>,
    /// The decision about that access.
    pub status: TrustStatus,
    folder: PathBuf,
    /// True if the operator has named the file, and not everybody can write to it.
    is_named: bool,
}

impl ConfigSource {
    /// Returns the `hatchery.yaml` of a folder as a source, without any external access.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), named: None, store: None, is_required: false, has_network: true }
    }

    /// Trusts the folder if this list does.
    #[must_use]
    pub fn with_trust_store(self, store: Option<TrustStore>) -> Self {
        Self { store, ..self }
    }

    /// Reads this file instead of the one in the folder. The operator has named it, so it is trusted.
    #[must_use]
    pub fn with_file(self, file: Option<PathBuf>) -> Self {
        Self { named: file, ..self }
    }

    /// Sets whether a missing file is an error.
    #[must_use]
    pub fn required(self, is_required: bool) -> Self {
        Self { is_required, ..self }
    }

    /// Declares that components run with recorded HTTP responses. Network grants then need no trust.
    #[must_use]
    pub fn without_network(self) -> Self {
        Self { has_network: false, ..self }
    }

    /// Returns the served folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the configuration file.
    pub fn file(&self) -> PathBuf {
        self.named.clone().unwrap_or_else(|| self.folder.join(FILE_NAME))
    }

    /// Returns the list of trusted folders.
    pub fn store(&self) -> Option<&TrustStore> {
        self.store.as_ref()
    }

    fn is_required(&self) -> bool {
        self.is_required || self.named.is_some()
    }

    /// Reads the file and removes settings that are not trusted. Without a file all settings have their defaults.
    ///
    /// # Errors
    /// If the file cannot be read or is invalid, is required and missing, or has a grant that cannot be trusted.
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        let file = self.file();
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.is_required() {
                    return Err(ConfigError::Missing { file, is_named: self.named.is_some() });
                }
                String::new()
            }
            Err(source) => return Err(ConfigError::Read { file, source }),
        };
        let mut config = Config::parse(&text, &file)?;
        config.check_not_writable(&self.folder, &file)?;
        let mut external = external_access(&config, &self.folder);
        if !self.has_network {
            external.retain(|access| !matches!(access.section, Section::Network { .. }));
        }
        let sha256 = sha256(text.as_bytes());
        let status = if external.is_empty() { TrustStatus::NotRequired } else { self.status(&file, &sha256) };
        match &status {
            TrustStatus::NotRequired => {}
            TrustStatus::Trusted | TrustStatus::Named => config.authority = Authority::Operator,
            TrustStatus::Untrusted(reason) => restrict(&mut config, &external, reason),
        }
        let is_named = self.named.is_some() && writable_by_all(&file).is_none();
        Ok(LoadedConfig { config, file, sha256, external, status, folder: self.folder.clone(), is_named })
    }

    fn status(&self, file: &Path, sha256: &str) -> TrustStatus {
        if let Some(path) = writable_by_all(file) {
            return TrustStatus::Untrusted(UntrustedReason::WritableByAll { path });
        }
        if self.named.is_some() {
            return TrustStatus::Named;
        }
        let Some(store) = &self.store else { return TrustStatus::Untrusted(UntrustedReason::Undecided) };
        match store.trusted_hash(&self.folder) {
            Ok(Some(trusted)) if trusted == sha256 => TrustStatus::Trusted,
            Ok(Some(_)) => TrustStatus::Untrusted(UntrustedReason::Changed),
            Ok(None) => TrustStatus::Untrusted(UntrustedReason::Undecided),
            Err(error) => TrustStatus::Untrusted(UntrustedReason::NoList(error.to_string())),
        }
    }
}

/// Returns the file or its folder if every user of the machine can write to it. A folder with the sticky bit, such as
/// `/tmp`, is safe.
fn writable_by_all(file: &Path) -> Option<PathBuf> {
    let mode = |path: &Path| writable_by(&std::fs::metadata(path).ok()?, 0o002);
    if mode(file).is_some() {
        return Some(file.to_owned());
    }
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    mode(folder).filter(|mode| mode & 0o1000 == 0).map(|_| folder.to_owned())
}

impl LoadedConfig {
    /// Returns a configuration that the operator has written in code, for a served folder.
    pub(crate) fn from_operator(mut config: Config, folder: &Path) -> Result<Self, ConfigError> {
        let file = folder.join(FILE_NAME);
        config.check_not_writable(folder, &file)?;
        config.authority = Authority::Operator;
        let (sha256, folder) = (String::new(), folder.to_owned());
        let (external, status) = (Vec::new(), TrustStatus::NotRequired);
        Ok(Self { config, file, sha256, external, status, folder, is_named: false })
    }

    /// Returns the untrusted keys with their values, and the command that trusts them, for the operator. `None` if
    /// nothing was removed.
    pub fn explanation(&self) -> Option<String> {
        let TrustStatus::Untrusted(reason) = &self.status else { return None };
        let requested: String = self.external.iter().map(|access| format!("  {access}\n")).collect();
        let next_step = match reason {
            UntrustedReason::WritableByAll { path } => format!("run `chmod o-w {}`", quote_path(path)),
            UntrustedReason::NoList(error) => error.clone(),
            UntrustedReason::Undecided | UntrustedReason::Changed => format!(
                "to allow it, review this list and run `hatchery trust {}`, or use a configuration file of your own",
                quote_path(&self.folder)
            ),
        };
        let file = self.file.display();
        Some(format!("{file} requests access outside of its folder, but {reason}:\n\n{requested}\n{next_step}"))
    }

    /// Returns an error if access for the whole host was removed: the host must not start without it. Access of single
    /// components and MCP servers is not an error, since only those are not used.
    ///
    /// # Errors
    /// [`ConfigError::Untrusted`].
    pub fn require_host_access(self) -> Result<Self, ConfigError> {
        match self.refused_host_access() {
            Some(explanation) => Err(ConfigError::Untrusted { explanation }),
            None => Ok(self),
        }
    }

    /// Returns true if the operator trusts the whole file, including the access that it requests.
    pub(crate) fn is_of_operator(&self) -> bool {
        self.is_named || self.status == TrustStatus::Trusted
    }

    /// Returns the [explanation](Self::explanation) if access for the whole host was removed.
    pub(crate) fn refused_host_access(&self) -> Option<String> {
        self.explanation().filter(|_| self.external.iter().any(ExternalAccess::is_for_host))
    }

    /// Returns the served folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the keys of the requested access, separated by commas.
    pub fn external_keys(&self) -> String {
        keys(self.external.iter())
    }
}

#[cfg(test)]
mod tests;
