//! `hatchery.lock`: whether the components that came from registries are what it says, signed as it says. No registry is asked.

use hatchery_registry::RegistryError;

use super::report::shell;
use super::{Finding, Visit};

pub(super) async fn findings(visit: &Visit<'_>) -> Vec<Finding> {
    let verifier = visit.config.map(|config| config.signature_verifier()).unwrap_or_default();
    let verified = match hatchery_registry::verify(visit.folder, &verifier).await {
        Ok(verified) => verified,
        Err(error) => return vec![Finding::broken(error.to_string())],
    };
    let folder = shell(visit.folder);
    let finding = |(name, found)| match found {
        Ok(Some(signer)) => Finding::good(format!("{name}: as hatchery.lock says, signed by {signer}")),
        Ok(None) => Finding::good(format!("{name}: as hatchery.lock says")),
        Err(error @ RegistryError::FileMissing { .. }) => {
            Finding::broken(error.to_string()).fixed_by(format!("hatchery pull {folder}"))
        }
        Err(error) => Finding::broken(error.to_string()),
    };
    verified.into_iter().map(finding).collect()
}
