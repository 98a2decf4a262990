//! Reading a configuration, and withholding from it what nobody has trusted.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use hatchery_registry::SignaturePolicy;

use super::outside::{OutsideRight, Section, outside_rights};
use super::store::{TrustStore, sha256, writable_by};
use crate::config::{Config, ConfigError, FILE_NAME};
use crate::shell::quoted_path;

/// Who answers for what a configuration says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Authority {
    /// The author of the folder.
    #[default]
    Folder,
    /// The operator of the host.
    Operator,
}

/// Whether the rights of a configuration that reach outside of the folder are given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// There are none.
    Inside,
    /// They are: the user trusts this text in this folder.
    Trusted,
    /// They are: the command line names the file.
    Named,
    /// They are not.
    Untrusted(Distrust),
}

/// Why rights are not given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Distrust {
    /// Nobody has decided about the folder.
    Undecided,
    /// Another text was trusted.
    Changed,
    /// Every user of the machine can write the file.
    WritableByAll {
        /// What to make safe.
        path: PathBuf,
    },
    /// The list of trusted folders cannot be used.
    NoList(String),
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undecided => f.write_str("nobody has trusted it"),
            Self::Changed => f.write_str("it has changed since it was trusted"),
            Self::WritableByAll { .. } => f.write_str("every user of this machine can write it"),
            Self::NoList(_) => f.write_str("the list of trusted folders cannot be used"),
        }
    }
}

/// Where the configuration of a served folder is, and who decides about it.
#[derive(Debug, Clone)]
pub struct ConfigSource {
    folder: PathBuf,
    named: Option<PathBuf>,
    store: Option<TrustStore>,
    is_required: bool,
    is_rehearsal: bool,
}

/// A configuration without what is not trusted.
#[derive(Debug, Clone)]
pub struct LoadedConfig {
    /// What is left of it.
    pub config: Config,
    /// Its file, which need not exist.
    pub file: PathBuf,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// What it asks for outside of its folder.
    pub rights: Vec<OutsideRight>,
    /// Whether it is given that.
    pub standing: Standing,
    folder: PathBuf,
}

impl ConfigSource {
    /// The `hatchery.yaml` of a folder. Nothing in it is trusted that reaches outside.
    pub fn of_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), named: None, store: None, is_required: false, is_rehearsal: false }
    }

    /// Trusts what is in this list.
    #[must_use]
    pub fn trusting(self, store: Option<TrustStore>) -> Self {
        Self { store, ..self }
    }

    /// Reads this file, which the operator has named, and not that of the folder.
    #[must_use]
    pub fn named(self, file: Option<PathBuf>) -> Self {
        Self { named: file, ..self }
    }

    /// Makes it an error that the file is missing.
    #[must_use]
    pub fn required(self, is_required: bool) -> Self {
        Self { is_required, ..self }
    }

    /// For tests in which recorded responses take the place of the network: grants of the network need no trust, for they reach nobody.
    #[must_use]
    pub fn for_rehearsal(self) -> Self {
        Self { is_rehearsal: true, ..self }
    }

    /// The served folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file that is read.
    pub fn file(&self) -> PathBuf {
        self.named.clone().unwrap_or_else(|| self.folder.join(FILE_NAME))
    }

    /// The list of trusted folders, if there is one.
    pub fn store(&self) -> Option<&TrustStore> {
        self.store.as_ref()
    }

    /// Whether it is an error that the file is missing.
    pub fn is_required(&self) -> bool {
        self.is_required || self.named.is_some()
    }

    /// Reads the file, and withholds what reaches outside of the folder without being trusted. Without a file everything has its default.
    ///
    /// # Errors
    /// When the file cannot be read or understood, is missing and required, or grants what no trust can.
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
        config.check_served_folder(&self.folder, &file)?;
        let mut rights = outside_rights(&config, &self.folder);
        if self.is_rehearsal {
            rights.retain(|right| !matches!(right.section, Section::Network { .. }));
        }
        let sha256 = sha256(text.as_bytes());
        let standing = if rights.is_empty() { Standing::Inside } else { self.judge(&file, &sha256) };
        match &standing {
            Standing::Inside => {}
            Standing::Trusted | Standing::Named => config.authority = Authority::Operator,
            Standing::Untrusted(distrust) => withhold(&mut config, &rights, distrust),
        }
        Ok(LoadedConfig { config, file, sha256, rights, standing, folder: self.folder.clone() })
    }

    fn judge(&self, file: &Path, sha256: &str) -> Standing {
        if let Some(path) = writable_by_all(file) {
            return Standing::Untrusted(Distrust::WritableByAll { path });
        }
        if self.named.is_some() {
            return Standing::Named;
        }
        let Some(store) = &self.store else { return Standing::Untrusted(Distrust::Undecided) };
        match store.trusted_hash(&self.folder) {
            Ok(Some(trusted)) if trusted == sha256 => Standing::Trusted,
            Ok(Some(_)) => Standing::Untrusted(Distrust::Changed),
            Ok(None) => Standing::Untrusted(Distrust::Undecided),
            Err(error) => Standing::Untrusted(Distrust::NoList(error.to_string())),
        }
    }
}

/// The file, or its folder, if every user of the machine can write it. A folder in which only owners can replace files, as `/tmp`, is fine.
fn writable_by_all(file: &Path) -> Option<PathBuf> {
    let mode = |path: &Path| writable_by(&std::fs::metadata(path).ok()?, 0o002);
    if mode(file).is_some() {
        return Some(file.to_owned());
    }
    let folder = file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    mode(folder).filter(|mode| mode & 0o1000 == 0).map(|_| folder.to_owned())
}

/// Takes out what reaches outside. A component that asks for any of it gets nothing at all, and is refused.
fn withhold(config: &mut Config, rights: &[OutsideRight], distrust: &Distrust) {
    for right in rights {
        match &right.section {
            Section::Network { component } | Section::Grants { component } => {
                let Some(settings) = config.components.get_mut(component) else { continue };
                settings.grants = Default::default();
                let keys = rights.iter().filter(|it| it.component() == Some(component));
                settings.refusal = Some(refusal(component, &keys_of(keys), distrust));
            }
            Section::SessionService => config.session_service = None,
            Section::ArtifactService => config.artifact_service = None,
            Section::MemoryService => config.memory_service = None,
            Section::Models => config.models = Default::default(),
            Section::Plugin(_) => {}
            Section::Registry => {
                config.registry.trusted_keys.clear();
                if config.registry.signatures == SignaturePolicy::Off {
                    config.registry.signatures = SignaturePolicy::Warn;
                }
            }
            Section::Server => config.server = Default::default(),
            Section::Instances => config.instances = Default::default(),
            Section::Compile => config.compile = Default::default(),
            Section::Audit => config.audit = Default::default(),
        }
    }
    let is_withheld = |index| rights.iter().any(|right| right.section == Section::Plugin(index));
    let mut index = 0..;
    config.plugins.retain(|_| index.next().is_none_or(|index| !is_withheld(index)));
}

/// Why a component is not loaded. Clients can read it, so it has neither values nor paths.
fn refusal(component: &str, keys: &str, distrust: &Distrust) -> String {
    format!(
        "component `{component}` is not loaded: {FILE_NAME} asks for rights outside of its folder ({keys}), and {distrust}; the \
         operator can look at them and allow them with `hatchery trust DIR`"
    )
}

fn keys_of<'a>(rights: impl Iterator<Item = &'a OutsideRight>) -> String {
    let mut keys: Vec<&str> = rights.map(|right| right.key.as_str()).collect();
    keys.dedup();
    keys.join(", ")
}

impl LoadedConfig {
    /// What is withheld and how to allow it, for the operator: it names values and paths. `None` when nothing is.
    pub fn explanation(&self) -> Option<String> {
        let Standing::Untrusted(distrust) = &self.standing else { return None };
        let rights: String = self.rights.iter().map(|right| format!("  {right}\n")).collect();
        let next_step = match distrust {
            Distrust::WritableByAll { path } => format!("run `chmod o-w {}`", quoted_path(path)),
            Distrust::NoList(reason) => reason.clone(),
            Distrust::Undecided | Distrust::Changed => format!(
                "to allow them, look at them and run `hatchery trust {}`, or name a configuration of your own with `--config FILE`",
                quoted_path(&self.folder)
            ),
        };
        let file = self.file.display();
        Some(format!(
            "{file} asks for rights that reach outside of its folder, and {distrust}:\n\n{rights}\n{next_step}"
        ))
    }

    /// The error of a host that must not start without what is withheld: a right of the whole host. What is a component's own is withheld
    /// from that component only.
    ///
    /// # Errors
    /// [`ConfigError::Untrusted`] when such a right is withheld.
    pub fn require_host_rights(self) -> Result<Self, ConfigError> {
        match self.explanation().filter(|_| self.rights.iter().any(|right| right.component().is_none())) {
            Some(explanation) => Err(ConfigError::Untrusted { explanation }),
            None => Ok(self),
        }
    }

    /// The served folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keys of what is asked for outside of the folder, separated by commas.
    pub fn outside_keys(&self) -> String {
        keys_of(self.rights.iter())
    }
}

#[cfg(test)]
mod tests;
