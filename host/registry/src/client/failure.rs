//! What goes wrong with a registry, in words.

use std::error::Error;

use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;

use super::Registries;
use crate::error::RegistryError;
use crate::reference::Reference;

/// How much of what a registry says is repeated.
const MOST_SAID: usize = 300;

/// The error that stands for one of the client's.
pub(super) fn explain(
    registries: &Registries,
    reference: &Reference,
    auth: &RegistryAuth,
    error: OciDistributionError,
) -> RegistryError {
    let unauthorized = || unauthorized(reference, auth);
    let not_found = || RegistryError::NotFound { reference: reference.to_string() };
    let refused = |reason: &str| refused(reference, reason);
    match &error {
        OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => {
            unauthorized()
        }
        OciDistributionError::ServerError { code: 401 | 403, .. } => unauthorized(),
        OciDistributionError::ServerError { code: 404, .. } => not_found(),
        OciDistributionError::ServerError { code, message, .. } => refused(&format!("status {code}: {message}")),
        OciDistributionError::RegistryError { envelope, .. } => match envelope.errors.first() {
            Some(error) => match error.code {
                OciErrorCode::Unauthorized | OciErrorCode::Denied => unauthorized(),
                OciErrorCode::ManifestUnknown
                | OciErrorCode::NameUnknown
                | OciErrorCode::NotFound
                | OciErrorCode::BlobUnknown => not_found(),
                _ => refused(&error.message),
            },
            None => refused("it gives no reason"),
        },
        OciDistributionError::RequestError(request) if request.status().is_none() => {
            unreachable(registries, reference, request)
        }
        OciDistributionError::DigestError(DigestError::VerificationError { expected, actual }) => {
            other_bytes(reference, expected.clone(), actual.clone())
        }
        _ => refused(&chain(&error)),
    }
}

/// The error of a login that the registry does not accept.
pub(super) fn unauthorized(reference: &Reference, auth: &RegistryAuth) -> RegistryError {
    RegistryError::Unauthorized {
        who: who(auth),
        reference: reference.to_string(),
        registry: reference.registry().to_owned(),
    }
}

/// The error of a registry that does not serve what it is asked for.
pub(super) fn refused(reference: &Reference, reason: &str) -> RegistryError {
    RegistryError::Refused { reference: reference.to_string(), reason: shortened(reason) }
}

/// The error of bytes that are not those that were asked for.
pub(super) fn other_bytes(reference: &Reference, expected: String, found: String) -> RegistryError {
    RegistryError::Differs {
        what: reference.to_string(),
        expected,
        found,
        advice: "the registry, or somebody in between, sends other bytes than were asked for; pull again".to_owned(),
    }
}

/// The error of a connection that is not made or breaks off.
pub(super) fn unreachable(registries: &Registries, reference: &Reference, error: &dyn Error) -> RegistryError {
    RegistryError::Unreachable {
        registry: reference.registry().to_owned(),
        reason: shortened(&chain(error)),
        is_https: registries.is_https(reference),
    }
}

fn who(auth: &RegistryAuth) -> String {
    match auth {
        RegistryAuth::Anonymous => "strangers".to_owned(),
        RegistryAuth::Basic(user, _) => format!("`{user}`"),
        RegistryAuth::Bearer(_) => "the holder of this token".to_owned(),
    }
}

/// An error with its causes, each said once.
fn chain(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}

fn shortened(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MOST_SAID) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oci_client::errors::{OciEnvelope, OciError};

    use super::*;
    use crate::credentials::Credentials;

    fn said(error: OciDistributionError) -> String {
        let registries = Registries::new(Credentials::default(), false, Arc::new(|_| ()));
        let auth = RegistryAuth::Basic("ada".into(), "secret".into());
        explain(&registries, &"registry.example/x:1".parse().unwrap(), &auth, error).to_string()
    }

    fn status(code: u16, message: &str) -> String {
        said(OciDistributionError::ServerError {
            code,
            url: "https://registry.example".into(),
            message: message.into(),
        })
    }

    fn code(code: OciErrorCode) -> String {
        let error = OciError { code, message: "because".into(), detail: Default::default() };
        said(OciDistributionError::RegistryError { envelope: OciEnvelope { errors: vec![error] }, url: String::new() })
    }

    #[test]
    fn who_may_not_is_told_how_to_log_in() {
        let expected = "the registry does not let `ada` use registry.example/x:1: log in with `docker login registry.example`, or set \
                        HATCHERY_REGISTRY=registry.example, HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD";
        for said in [
            status(401, ""),
            status(403, ""),
            code(OciErrorCode::Denied),
            said(OciDistributionError::AuthenticationFailure("no".into())),
        ] {
            assert_eq!(said, expected);
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for said in [status(404, ""), code(OciErrorCode::ManifestUnknown), code(OciErrorCode::NameUnknown)] {
            assert!(said.starts_with("the registry has no registry.example/x:1; "), "{said}");
        }
    }

    #[test]
    fn a_manifest_of_another_digest_is_refused_with_both() {
        let error = DigestError::VerificationError { expected: "sha256:a".into(), actual: "sha256:b".into() };
        let said = said(OciDistributionError::DigestError(error));
        assert!(
            said.starts_with("registry.example/x:1: expected sha256:a, found sha256:b; the registry, or somebody"),
            "{said}"
        );
    }

    #[test]
    fn what_else_a_registry_says_is_repeated_as_far_as_it_is_short() {
        let start = "the registry does not serve registry.example/x:1: ";
        assert_eq!(code(OciErrorCode::Toomanyrequests), format!("{start}because"));
        assert_eq!(status(500, "oh\n"), format!("{start}status 500: oh"));
        assert_eq!(status(500, &"ä".repeat(999)), format!("{start}status 500: {}…", "ä".repeat(288)));
    }
}
