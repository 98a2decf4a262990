//! Contract version and interfaces of a component, read from its bytes before anything is compiled.

use serde::Serialize;
use wasmparser::{BinaryReaderError, Encoding, Parser, Payload};

use crate::contract::imports::program;
use crate::error::LoadError;

/// The contract version of this host, read from `wit/`.
pub const OFFERED: &str = package_version(include_str!("../../../../wit/types.wit"));

const _: () = assert!(!OFFERED.is_empty(), "wit/types.wit names no package version");

const PACKAGE: &str = "hatchery:agent/";

/// Interfaces of the contract that a component may export.
const EXPORTS: &[&str] = &[
    "guest-agents",
    "guest-tools",
    "guest-toolsets",
    "guest-callbacks",
    "guest-plugins",
    "guest-code-executors",
    "guest-summarizers",
    "guest-examples",
    "guest-models",
    "guest-live-models",
    "sync-guest-agents",
    "sync-guest-tools",
    "sync-guest-toolsets",
    "sync-guest-callbacks",
    "sync-guest-plugins",
    "sync-guest-code-executors",
    "sync-guest-summarizers",
    "sync-guest-examples",
    "sync-guest-models",
    "sync-guest-live-models",
];

/// WASI packages that components may import.
const WASI: &[&str] =
    &["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:http/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// The imports and exports of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// The version of `hatchery:agent`; `None` if the component does not use it, so that its exported functions are
    /// its tools.
    pub version: Option<String>,
    /// Imported interfaces, with versions.
    pub imports: Vec<String>,
    /// Exported interfaces, with versions.
    pub exports: Vec<String>,
}

impl Contract {
    /// Reads the contract from the bytes of a component, and checks that this host supports it.
    ///
    /// # Errors
    /// If the bytes are not a complete component, need another version or unknown imports, or export nothing known.
    pub fn read(component: &str, bytes: &[u8]) -> Result<Self, LoadError> {
        let (imports, exports) = interfaces(component, bytes)?;
        let mut versions = imports.iter().chain(&exports).filter_map(|name| version_of(name));
        let version = versions.next().map(str::to_owned);
        for name in imports.iter().chain(&exports) {
            if let Some(version) = version_of(name).filter(|version| !is_supported(version)) {
                return Err(LoadError::Version {
                    component: component.into(),
                    required: compatibility_line(version),
                    offered: compatibility_line(OFFERED),
                });
            }
        }
        if let Some(import) = imports.iter().find(|name| !is_known_import(name)) {
            return Err(LoadError::UnknownImport { component: component.into(), import: import.clone() });
        }
        let names: Vec<_> = exports.iter().filter_map(|name| name.strip_prefix(PACKAGE)).collect();
        let names: Vec<_> = names.iter().filter_map(|name| name.split('@').next()).collect();
        if let Some(interface) = names.iter().find(|name| names.iter().any(|other| *other == format!("sync-{name}"))) {
            return Err(LoadError::DuplicateExport { component: component.into(), interface: (*interface).into() });
        }
        if !exports.iter().any(|name| is_known_export(name)) {
            return Err(LoadError::NothingExported { component: component.into() });
        }
        Ok(Self { version, imports, exports })
    }

    /// Returns the latest version of `hatchery:agent` that the component uses, if this host only offers an earlier
    /// version. That version may lack functions that the component needs.
    pub(crate) fn later_version(&self) -> Option<&str> {
        let versions = self.imports.iter().chain(&self.exports).filter_map(|name| version_of(name));
        versions.filter(|version| numbers(version) > numbers(OFFERED)).max_by_key(|version| numbers(version))
    }

    /// Returns true if it exports no interface of `hatchery:agent`, so that its exported functions are its tools.
    pub(crate) fn has_plain_functions(&self) -> bool {
        !self.exports.is_empty() && !EXPORTS.iter().any(|interface| self.exports_interface(interface))
    }

    /// Returns true if it exports this interface of `hatchery:agent`.
    pub(crate) fn exports_interface(&self, interface: &str) -> bool {
        self.exports
            .iter()
            .any(|name| name.strip_prefix(PACKAGE).is_some_and(|rest| rest.split('@').next() == Some(interface)))
    }
}

/// Returns the version of `hatchery:agent` that a component needs; `None` if it needs none or the bytes are not a
/// component. Unlike [`Contract::read`], this also works for components of other hosts.
pub fn required_version(bytes: &[u8]) -> Option<String> {
    let (imports, exports) = interfaces("", bytes).ok()?;
    imports.iter().chain(&exports).find_map(|name| version_of(name)).map(Into::into)
}

/// Returns true if this host supports components of this version.
pub fn is_supported(version: &str) -> bool {
    compatibility_line(version) == compatibility_line(OFFERED)
}

/// Returns the version in `package hatchery:agent@VERSION;`, or an empty text.
const fn package_version(wit: &'static str) -> &'static str {
    let mut rest = wit.as_bytes();
    let start = loop {
        if let Some(version) = strip_prefix(rest, b"package hatchery:agent@") {
            break version;
        }
        match rest.split_first() {
            Some((_, after)) => rest = after,
            None => return "",
        }
    };
    let mut end = 0;
    let mut after = start;
    while let Some((byte, next)) = after.split_first() {
        if *byte == b';' {
            break;
        }
        end += 1;
        after = next;
    }
    match str::from_utf8(start.split_at(end).0) {
        Ok(version) => version,
        Err(_) => "",
    }
}

const fn strip_prefix<'a>(mut text: &'a [u8], mut prefix: &[u8]) -> Option<&'a [u8]> {
    while let Some((expected, prefix_rest)) = prefix.split_first() {
        match text.split_first() {
            Some((found, text_rest)) if *found == *expected => {
                text = text_rest;
                prefix = prefix_rest;
            }
            _ => return None,
        }
    }
    Some(text)
}

/// Returns the top-level imports and exports.
fn interfaces(component: &str, bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), LoadError> {
    let name = || component.to_owned();
    if !b"\0asm".starts_with(bytes.get(..4).unwrap_or(bytes)) {
        return Err(LoadError::NotWasm { component: name() });
    }
    if bytes.len() < 8 {
        return Err(LoadError::Truncated { component: name() });
    }
    let broken = |error: BinaryReaderError| {
        let reason = error.message().to_owned();
        // A missing end is only distinguishable by its message.
        if reason.contains("unexpected end") || reason.contains("out of bounds") {
            LoadError::Truncated { component: name() }
        } else {
            LoadError::Invalid { component: name(), reason: error.to_string() }
        }
    };
    let (mut imports, mut exports, mut depth) = (Vec::new(), Vec::new(), 0_usize);
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(broken)? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(LoadError::CoreModule { component: name() });
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    imports.push(import.map_err(broken)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    exports.push(export.map_err(broken)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok((imports, exports))
}

/// Returns the version in `hatchery:agent/tools@0.2.0`.
fn version_of(name: &str) -> Option<&str> {
    name.strip_prefix(PACKAGE).map(|rest| rest.split_once('@').map_or("0", |(_, version)| version))
}

/// Returns the part of a version that decides compatibility: `0.1` of `0.1.3`, `2` of `2.1.0`.
fn compatibility_line(version: &str) -> String {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or(version).to_owned(),
    }
}

/// Returns the numbers of a version, by which versions are ordered.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|number| number.parse().unwrap_or_default()).collect()
}

/// Returns true for known interfaces of the contract, and for foreign interfaces and top-level functions, which may
/// be tools.
fn is_known_export(export: &str) -> bool {
    match export.strip_prefix(PACKAGE) {
        Some(interface) => EXPORTS.iter().any(|known| interface.split('@').next() == Some(known)),
        None => !export.starts_with("wasi:"),
    }
}

fn is_known_import(import: &str) -> bool {
    import.starts_with(PACKAGE)
        || import == program::INTERFACE
        || (WASI.iter().any(|package| import.starts_with(package)) && import.contains("@0.2."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_one_the_minor_version_decides() {
        assert_eq!(compatibility_line("0.1.7"), "0.1");
        assert_eq!(compatibility_line("0.3.0"), "0.3");
        assert_eq!(compatibility_line("2.4.0"), "2");
    }

    #[test]
    fn the_version_of_a_package_is_read() {
        assert_eq!(package_version("// hatchery:agent@9\npackage hatchery:agent@0.3.2;\ninterface x {}"), "0.3.2");
        assert_eq!(package_version("package other:agent@1.0.0;"), "");
        assert!(OFFERED.starts_with("0."), "{OFFERED}");
    }
}
