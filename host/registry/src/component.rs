//! What a component is, as far as a registry's customers must know: told from anything else, and with the names of what it wants and offers.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wasmparser::{Encoding, Parser, Payload};

use crate::error::RegistryError;

/// No component has more bytes: the limit of the files that a host loads.
pub const MAX_BYTES: u64 = 256 << 20;

/// What a component meets its host by, with versions, as in its type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interfaces {
    /// What it offers.
    pub exports: Vec<String>,
    /// What it wants.
    pub imports: Vec<String>,
}

impl Interfaces {
    /// Reads a component to its end. `what` names it in errors.
    ///
    /// # Errors
    /// When the bytes are not a whole component.
    pub fn read(what: &str, bytes: &[u8]) -> Result<Self, RegistryError> {
        let not = |reason: String| RegistryError::NotComponent { what: what.to_owned(), reason };
        if !bytes.starts_with(b"\0asm") {
            return Err(not("it is not WebAssembly".into()));
        }
        let (mut found, mut depth) = (Self::default(), 0_usize);
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(|error| not(error.to_string()))? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(not("it is a core module".into()));
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        found.imports.push(import.map_err(|error| not(error.to_string()))?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        found.exports.push(export.map_err(|error| not(error.to_string()))?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }
}

/// A SHA-256 as registries write it: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(String);

impl Digest {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(format!("sha256:{:x}", Sha256::digest(bytes)))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        match text.strip_prefix("sha256:") {
            Some(digits) if digits.len() == 64 && digits.chars().all(is_digit) => Ok(Self(text)),
            _ => Err(format!("`{text}` is no digest; one is `sha256:` and 64 hexadecimal digits")),
        }
    }
}

/// Checks a name that becomes a file's.
pub(crate) fn check_name(name: &str) -> Result<(), RegistryError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(RegistryError::Name { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        Interfaces::read("x.wasm", bytes).unwrap_err().to_string()
    }

    #[test]
    fn a_component_names_what_it_wants_and_offers() {
        let text = r#"(component (import "a:b/c@0.1.0" (instance $i)) (export "d:e/f@1.0.0" (instance $i)))"#;
        let found = Interfaces::read("x.wasm", &wat::parse_str(text).unwrap()).unwrap();
        assert_eq!((found.imports, found.exports), (vec!["a:b/c@0.1.0".into()], vec!["d:e/f@1.0.0".into()]));
    }

    #[test]
    fn what_is_inside_of_a_component_is_not_its_own() {
        let text = r#"(component (component (import "a:b/c" (instance))) (core module))"#;
        assert_eq!(Interfaces::read("x.wasm", &wat::parse_str(text).unwrap()).unwrap(), Interfaces::default());
    }

    #[test]
    fn what_is_no_component_is_told_apart() {
        assert_eq!(refusal(b"MZ"), "x.wasm is no component: it is not WebAssembly; `hatchery build` makes one");
        assert!(refusal(&wat::parse_str("(module)").unwrap()).contains("it is a core module"));
        let whole = wat::parse_str(r#"(component (import "a" (func)))"#).unwrap();
        assert!(refusal(whole.get(..whole.len() - 2).unwrap()).contains("unexpected end"));
        assert!(refusal(b"\0asm").starts_with("x.wasm is no component"));
    }

    #[test]
    fn a_digest_is_written_as_registries_do() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").as_str(), empty);
        assert_eq!(Digest::try_from(empty.to_owned()), Ok(Digest::of(b"")));
        for wrong in ["", "sha256:", "sha512:e3b0", &empty.to_uppercase()] {
            assert!(Digest::try_from(wrong.to_owned()).unwrap_err().contains("is no digest"), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_that_of_a_file_in_the_folder() {
        for name in ["a", "word-counter", "a.b_c-1"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", ".hidden", "a/b", "../x", "ü", "a b"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` cannot name a component")), "{error}");
        }
    }
}
