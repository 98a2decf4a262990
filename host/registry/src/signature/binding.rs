//! What the operator says that a single component must be, beside what it may do.

use super::{KeyId, Problem};
use crate::component::Digest;
use crate::error::RegistryError;

/// What one component must be: `components.NAME` of `hatchery.yaml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Binding {
    /// The name that it is signed under, where that is not its own.
    pub signed_as: Option<String>,
    /// The only key whose signature counts for it. With one, a signature is required.
    pub signed_by: Option<KeyId>,
    /// The only bytes that it may have, signed or not.
    pub sha256: Option<Digest>,
}

impl Binding {
    pub(super) fn check_bytes(&self, what: &str, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        let Some(expected) = &self.sha256 else { return Ok(()) };
        let found = Digest::of(bytes);
        if found == *expected {
            return Ok(());
        }
        Err(RegistryError::Differs {
            what: what.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
            advice: format!("these bytes are used when `components.{name}.sha256` of hatchery.yaml says so"),
        })
    }

    pub(super) fn problem_of_signer(&self, name: &str, signer: KeyId) -> Option<Problem> {
        let expected = self.signed_by.filter(|expected| *expected != signer)?;
        Some(Problem {
            problem: format!("is signed by the key {signer}, not by {expected}"),
            advice: format!("the key is named by `components.{name}.signed_by` of hatchery.yaml"),
        })
    }
}
