//! Expected identity of a component: `signed_as`, `signed_by` and `sha256` in `components.NAME` of `hatchery.yaml`.

use super::{KeyId, SignatureProblem};
use crate::component::Digest;
use crate::error::RegistryError;

/// The identity that the operator requires of one component.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpectedIdentity {
    /// The name in the signature; `None` if it is the name of the component.
    pub signed_as: Option<String>,
    /// The only accepted key. If it is set, a signature is required regardless of the policy.
    pub signed_by: Option<KeyId>,
    /// The digest of the only accepted file, signed or not.
    pub sha256: Option<Digest>,
}

impl ExpectedIdentity {
    pub(super) fn check_bytes(&self, origin: &str, name: &str, bytes: &[u8]) -> Result<(), RegistryError> {
        let Some(expected) = &self.sha256 else { return Ok(()) };
        let found = Digest::compute(bytes);
        if found == *expected {
            return Ok(());
        }
        Err(RegistryError::Mismatch {
            origin: origin.to_owned(),
            expected: expected.to_string(),
            found: found.to_string(),
            advice: format!("to use this file, set `components.{name}.sha256` of hatchery.yaml to its digest"),
        })
    }

    pub(super) fn check_signer(&self, name: &str, signer: KeyId) -> Option<SignatureProblem> {
        let expected = self.signed_by.filter(|expected| *expected != signer)?;
        Some(SignatureProblem {
            problem: format!("is signed by the key {signer}, not by {expected}"),
            advice: format!("the required key is in `components.{name}.signed_by` of hatchery.yaml"),
        })
    }
}
