//! Command-line flags that help against errors of libraries. Libraries name their settings, not the flags of this
//! command.

use std::error::Error;

use hatchery::services::ServicesError;
use hatchery::{ConfigError, HostError, HostKeyError};
use hatchery_registry::RegistryError;

/// Returns the flags that help, for example `see --data-dir`. `None` if no flag helps.
pub fn flags_for(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(flags_for_cause)
}

fn flags_for_cause(cause: &(dyn Error + 'static)) -> Option<&'static str> {
    if let Some(error) = cause.downcast_ref::<HostError>() {
        return match error {
            HostError::Config(error) => config_flags(error),
            HostError::Services(error) => services_flags(error),
            HostError::HostKey(error) => host_key_flags(error),
            _ => None,
        };
    }
    cause
        .downcast_ref()
        .and_then(config_flags)
        .or_else(|| cause.downcast_ref().and_then(services_flags))
        .or_else(|| cause.downcast_ref().and_then(host_key_flags))
}

/// Returns the flags that help against an error of the configuration.
pub fn config_flags(error: &ConfigError) -> Option<&'static str> {
    match error {
        ConfigError::Missing { is_named: true, .. } => Some("see --config"),
        ConfigError::Missing { is_named: false, .. } => Some("see --config-required"),
        ConfigError::Untrusted { .. } => Some(TRUST_FLAGS),
        ConfigError::Read { .. } | ConfigError::ProtectedPath { .. } | ConfigError::Invalid { .. } => None,
    }
}

/// The flag that replaces a configuration that is not trusted.
pub const TRUST_FLAGS: &str = "see --config FILE";

fn services_flags(error: &ServicesError) -> Option<&'static str> {
    match error {
        ServicesError::Folder { .. } => Some("see --data-dir and --memory"),
        ServicesError::Service { .. }
        | ServicesError::Encryption(_)
        | ServicesError::Embedder(_)
        | ServicesError::RetrievalEmbedder { .. } => None,
    }
}

fn host_key_flags(error: &HostKeyError) -> Option<&'static str> {
    match error {
        HostKeyError::File { .. } => Some("see --data-dir"),
        HostKeyError::Secret { .. } => None,
    }
}

/// Returns the error of a pull or push with the flags of `hatchery pull` that help.
pub fn with_pull_flags(error: RegistryError) -> anyhow::Error {
    let flags = match &error {
        RegistryError::Unreachable { is_https: true, .. } => "see --plain-http",
        RegistryError::LockMismatch { .. } => "see --update",
        RegistryError::FileExists { .. } | RegistryError::ReferenceConflict { .. } => "see --name and --update",
        RegistryError::NotLocked { .. } => "see --locked",
        RegistryError::NoTrustedKeys | RegistryError::SignatureRequired { .. } => "see --trust",
        _ => return error.into(),
    };
    add_flags(error, flags)
}

/// Returns the error of a push with the flags of `hatchery push` that help.
pub fn with_push_flags(error: RegistryError) -> anyhow::Error {
    match &error {
        RegistryError::Unreachable { is_https: true, .. } => add_flags(error, "see --plain-http"),
        _ => error.into(),
    }
}

fn add_flags(error: RegistryError, flags: &str) -> anyhow::Error {
    let message = format!("{error} ({flags})");
    anyhow::Error::new(error).context(message)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::terminal::format_error;

    fn config_error() -> ConfigError {
        ConfigError::Missing { file: "h.yaml".into(), is_named: true }
    }

    #[test]
    fn flags_are_added_to_errors_of_the_host_and_to_their_causes() {
        let expected = "h.yaml: file not found; name an existing configuration file (see --config)";
        assert_eq!(format_error(&config_error().into()), expected);
        assert_eq!(format_error(&HostError::Config(config_error()).into()), expected);
        let folder = ServicesError::Folder { folder: "/data".into(), source: io::ErrorKind::NotFound.into() };
        let message = format_error(&anyhow::Error::from(HostError::Services(folder)).context("starting"));
        assert!(message.starts_with("starting: data folder /data: "), "{message}");
        assert!(message.ends_with("or store data in memory (see --data-dir and --memory)"), "{message}");
        assert_eq!(flags_for(&anyhow::anyhow!("x")), None);
    }

    #[test]
    fn flags_of_pull_are_added_once() {
        let error = || RegistryError::FileExists { path: "x.wasm".into() };
        let message = format_error(&with_pull_flags(error()));
        assert!(message.starts_with("x.wasm: the file exists") && message.ends_with(" (see --name and --update)"));
        assert_eq!(format_error(&with_push_flags(error())), error().to_string());
        let unreachable = RegistryError::Unreachable { registry: "r".into(), reason: "x".into(), is_https: true };
        assert!(format_error(&with_push_flags(unreachable)).ends_with("allow plain HTTP (see --plain-http)"));
    }
}
