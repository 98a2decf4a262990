//! Checks components against `hatchery.lock`: digests and signatures. Does not connect to registries.

use hatchery::shell::quote_path;
use hatchery_registry::RegistryError;

use super::{Diagnosis, Finding};

pub(super) async fn check(diagnosis: &Diagnosis<'_>) -> Vec<Finding> {
    let verifier = diagnosis.config.map(|config| config.signature_verifier()).unwrap_or_default();
    let results = match hatchery_registry::verify(diagnosis.folder, &verifier).await {
        Ok(results) => results,
        Err(error) => return vec![Finding::error(error.to_string())],
    };
    let folder = quote_path(diagnosis.folder);
    let to_finding = |(name, result)| match result {
        Ok(Some(signer)) => Finding::ok(format!("{name}: matches hatchery.lock, signed by {signer}")),
        Ok(None) => Finding::ok(format!("{name}: matches hatchery.lock")),
        Err(error @ RegistryError::FileMissing { .. }) => {
            Finding::error(error.to_string()).with_fix(format!("hatchery pull {folder}"))
        }
        Err(error) => Finding::error(error.to_string()),
    };
    results.into_iter().map(to_finding).collect()
}
