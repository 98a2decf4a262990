//! Validation of component files, their imports and exports, and digests.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use wasmparser::{Encoding, Parser, Payload};

use crate::error::RegistryError;

/// The maximum size of a component in bytes, which is the limit of files that a host loads.
pub const MAX_BYTES: u64 = 256 << 20;

/// The names of a component's imports and exports, with versions, as in its type.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Interfaces {
    pub exports: Vec<String>,
    pub imports: Vec<String>,
}

impl Interfaces {
    /// Parses a complete component. `origin` is their file or reference, for errors.
    ///
    /// # Errors
    /// If the bytes are not a complete component.
    pub fn read(origin: &str, bytes: &[u8]) -> Result<Self, RegistryError> {
        let not_component = |reason: String| RegistryError::NotComponent { origin: origin.to_owned(), reason };
        if !bytes.starts_with(b"\0asm") {
            return Err(not_component("it is not WebAssembly".into()));
        }
        let (mut interfaces, mut depth) = (Self::default(), 0_usize);
        for payload in Parser::new(0).parse_all(bytes) {
            match payload.map_err(|error| not_component(error.to_string()))? {
                Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                    return Err(not_component("it is a core module".into()));
                }
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(section) if depth == 0 => {
                    for import in section {
                        interfaces
                            .imports
                            .push(import.map_err(|error| not_component(error.to_string()))?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) if depth == 0 => {
                    for export in section {
                        interfaces
                            .exports
                            .push(export.map_err(|error| not_component(error.to_string()))?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(interfaces)
    }
}

/// A SHA-256 digest in the format of registries: `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(String);

impl Digest {
    /// Computes the digest of bytes.
    pub fn compute(bytes: &[u8]) -> Self {
        Self(format!("sha256:{:x}", Sha256::digest(bytes)))
    }

    /// Returns the text with the prefix `sha256:`.
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
            _ => Err(format!("`{text}` is not a digest; a digest is `sha256:` and 64 hexadecimal digits")),
        }
    }
}

/// Checks that a name can be used as a file name.
pub(crate) fn check_name(name: &str) -> Result<(), RegistryError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(RegistryError::InvalidName { name: name.to_owned() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(bytes: &[u8]) -> String {
        Interfaces::read("x.wasm", bytes).unwrap_err().to_string()
    }

    #[test]
    fn imports_and_exports_are_read() {
        let text = r#"(component (import "a:b/c@0.1.0" (instance $i)) (export "d:e/f@1.0.0" (instance $i)))"#;
        let found = Interfaces::read("x.wasm", &wat::parse_str(text).unwrap()).unwrap();
        assert_eq!((found.imports, found.exports), (vec!["a:b/c@0.1.0".into()], vec!["d:e/f@1.0.0".into()]));
    }

    #[test]
    fn imports_of_nested_components_are_ignored() {
        let text = r#"(component (component (import "a:b/c" (instance))) (core module))"#;
        assert_eq!(Interfaces::read("x.wasm", &wat::parse_str(text).unwrap()).unwrap(), Interfaces::default());
    }

    #[test]
    fn other_files_are_rejected() {
        assert_eq!(
            error_of(b"MZ"),
            "x.wasm is not a component: it is not WebAssembly; create a component with `hatchery build`"
        );
        assert!(error_of(&wat::parse_str("(module)").unwrap()).contains("it is a core module"));
        let complete = wat::parse_str(r#"(component (import "a" (func)))"#).unwrap();
        assert!(error_of(complete.get(..complete.len() - 2).unwrap()).contains("unexpected end"));
        assert!(error_of(b"\0asm").starts_with("x.wasm is not a component"));
    }

    #[test]
    fn a_digest_has_the_format_of_registries() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::compute(b"").as_str(), empty);
        assert_eq!(Digest::try_from(empty.to_owned()), Ok(Digest::compute(b"")));
        for wrong in ["", "sha256:", "sha512:e3b0", &empty.to_uppercase()] {
            assert!(Digest::try_from(wrong.to_owned()).unwrap_err().contains("is not a digest"), "{wrong}");
        }
    }

    #[test]
    fn only_plain_file_names_are_valid() {
        for name in ["a", "word-counter", "a.b_c-1"] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", ".hidden", "a/b", "../x", "ü", "a b"] {
            let error = check_name(name).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{name}` is not a valid component name")), "{error}");
        }
    }
}
