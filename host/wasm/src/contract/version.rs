//! Which contract a component was built for, read from its bytes before anything is compiled.

use serde::Serialize;
use wasmparser::{BinaryReaderError, Encoding, Parser, Payload};

use crate::error::LoadError;

/// The contract that this host offers.
pub const OFFERED: &str = "0.1.1";

const PACKAGE: &str = "hatchery:agent/";

/// Interfaces that a component may export.
const EXPORTS: &[&str] = &[
    "guest-agents",
    "guest-tools",
    "guest-callbacks",
    "guest-plugins",
    "guest-code-executors",
    "guest-summarizers",
    "guest-examples",
    "guest-models",
    "sync-guest-agents",
    "sync-guest-tools",
    "sync-guest-callbacks",
];

/// WASI packages that components can use.
const WASI: &[&str] =
    &["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:http/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// The interfaces by which a component meets its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// The version of `hatchery:agent`; none when the component knows nothing of it, and its functions are its tools.
    pub version: Option<String>,
    /// What the component wants, with versions.
    pub imports: Vec<String>,
    /// What it offers, with versions.
    pub exports: Vec<String>,
}

impl Contract {
    /// Reads the contract from a component's bytes and checks that this host fulfils it.
    ///
    /// # Errors
    /// When the bytes are not a whole component, want another version or foreign imports, or offer nothing.
    pub fn read(component: &str, bytes: &[u8]) -> Result<Self, LoadError> {
        let (imports, exports) = interfaces(component, bytes)?;
        let mut versions = imports.iter().chain(&exports).filter_map(|name| version_of(name));
        let version = versions.next().map(str::to_owned);
        for name in imports.iter().chain(&exports) {
            if let Some(wanted) = version_of(name).filter(|wanted| !is_served(wanted)) {
                return Err(LoadError::Version {
                    component: component.into(),
                    wanted: line(wanted),
                    offered: line(OFFERED),
                });
            }
        }
        if let Some(import) = imports.iter().find(|name| !is_offered(name)) {
            return Err(LoadError::ForeignImport { component: component.into(), import: import.clone() });
        }
        let names: Vec<_> = exports.iter().filter_map(|name| name.strip_prefix(PACKAGE)).collect();
        let names: Vec<_> = names.iter().filter_map(|name| name.split('@').next()).collect();
        if let Some(interface) = names.iter().find(|name| names.iter().any(|other| *other == format!("sync-{name}"))) {
            return Err(LoadError::TwiceExported { component: component.into(), interface: (*interface).into() });
        }
        if !exports.iter().any(|name| may_be_offered(name)) {
            return Err(LoadError::NothingExported { component: component.into() });
        }
        Ok(Self { version, imports, exports })
    }

    /// True when none of its exports is of `hatchery:agent`: its functions are its tools.
    pub(crate) fn is_plain(&self) -> bool {
        !self.exports.is_empty() && !EXPORTS.iter().any(|interface| self.offers(interface))
    }

    /// True when the component exports this interface of `hatchery:agent`.
    pub(crate) fn offers(&self, interface: &str) -> bool {
        self.exports
            .iter()
            .any(|name| name.strip_prefix(PACKAGE).is_some_and(|rest| rest.split('@').next() == Some(interface)))
    }
}

/// The version of `hatchery:agent` that the component in these bytes wants, if they are one that wants any. Unlike [`Contract::read`], this
/// also tells what was built for another host.
pub fn wanted(bytes: &[u8]) -> Option<String> {
    let (imports, exports) = interfaces("", bytes).ok()?;
    imports.iter().chain(&exports).find_map(|name| version_of(name)).map(Into::into)
}

/// True when this host serves components that were built for this version.
pub fn is_served(version: &str) -> bool {
    line(version) == line(OFFERED)
}

/// Names of the imports and exports at the top.
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
        // The reader says how many bytes it lacks only when the input just ends.
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

/// The version in `hatchery:agent/tools@0.1.0`.
fn version_of(name: &str) -> Option<&str> {
    name.strip_prefix(PACKAGE).map(|rest| rest.split_once('@').map_or("0", |(_, version)| version))
}

/// The part of a version that decides whether two fit together: `0.1` of `0.1.3`, `2` of `2.1.0`.
fn line(version: &str) -> String {
    let mut numbers = version.split('.');
    match (numbers.next(), numbers.next()) {
        (Some("0"), Some(minor)) => format!("0.{minor}"),
        (major, _) => major.unwrap_or(version).to_owned(),
    }
}

/// True for the interfaces that this host knows, and for foreign ones and functions at the top, which may be tools.
fn may_be_offered(export: &str) -> bool {
    match export.strip_prefix(PACKAGE) {
        Some(interface) => EXPORTS.iter().any(|known| interface.split('@').next() == Some(known)),
        None => !export.starts_with("wasi:"),
    }
}

fn is_offered(import: &str) -> bool {
    import.starts_with(PACKAGE) || (WASI.iter().any(|package| import.starts_with(package)) && import.contains("@0.2."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_one_the_minor_version_decides() {
        assert_eq!(line("0.1.7"), "0.1");
        assert_eq!(line("0.3.0"), "0.3");
        assert_eq!(line("2.4.0"), "2");
    }

    #[test]
    fn the_offered_version_is_that_of_the_contract() {
        let contract = include_str!("../../../../wit/types.wit");
        assert!(contract.contains(&format!("package hatchery:agent@{OFFERED};")));
    }
}
