//! Conversion of errors of registries and connections to [`RegistryError`].

use std::error::Error;

use oci_client::errors::{DigestError, OciDistributionError, OciErrorCode};
use oci_client::secrets::RegistryAuth;

use super::RegistryClient;
use crate::error::RegistryError;
use crate::reference::Reference;

/// The maximum number of characters of a registry's message in an error.
const MAX_MESSAGE_CHARS: usize = 300;

/// Converts an error of the OCI client.
pub(super) fn explain(
    client: &RegistryClient,
    reference: &Reference,
    auth: &RegistryAuth,
    error: OciDistributionError,
) -> RegistryError {
    let unauthorized = || unauthorized(reference, auth);
    let not_found = || RegistryError::NotFound { reference: reference.to_string() };
    let unexpected = |reason: &str| unexpected_response(reference, reason);
    match &error {
        OciDistributionError::UnauthorizedError { .. } | OciDistributionError::AuthenticationFailure(_) => {
            unauthorized()
        }
        OciDistributionError::ServerError { code: 401 | 403, .. } => unauthorized(),
        OciDistributionError::ServerError { code: 404, .. } => not_found(),
        OciDistributionError::ServerError { code, message, .. } => unexpected(&format!("status {code}: {message}")),
        OciDistributionError::RegistryError { envelope, .. } => match envelope.errors.first() {
            Some(error) => match error.code {
                OciErrorCode::Unauthorized | OciErrorCode::Denied => unauthorized(),
                OciErrorCode::ManifestUnknown
                | OciErrorCode::NameUnknown
                | OciErrorCode::NotFound
                | OciErrorCode::BlobUnknown => not_found(),
                _ => unexpected(&error.message),
            },
            None => unexpected("it gives no reason"),
        },
        OciDistributionError::RequestError(request) if request.status().is_none() => {
            unreachable(client, reference, request)
        }
        OciDistributionError::DigestError(DigestError::VerificationError { expected, actual }) => {
            digest_mismatch(reference, expected.clone(), actual.clone())
        }
        _ => unexpected(&chain(&error)),
    }
}

/// Returns the error for a rejected login.
pub(super) fn unauthorized(reference: &Reference, auth: &RegistryAuth) -> RegistryError {
    RegistryError::Unauthorized {
        user: describe_user(auth),
        reference: reference.to_string(),
        registry: reference.registry().to_owned(),
    }
}

/// Returns the error for an unexpected response.
pub(super) fn unexpected_response(reference: &Reference, reason: &str) -> RegistryError {
    RegistryError::UnexpectedResponse { reference: reference.to_string(), reason: truncate(reason) }
}

/// Returns the error for received bytes with another digest.
pub(super) fn digest_mismatch(reference: &Reference, expected: String, found: String) -> RegistryError {
    RegistryError::Mismatch {
        origin: reference.to_string(),
        expected,
        found,
        advice: "the registry or a proxy has sent other bytes than requested; pull again".to_owned(),
    }
}

/// Returns the error for a connection that failed or was interrupted.
pub(super) fn unreachable(client: &RegistryClient, reference: &Reference, error: &dyn Error) -> RegistryError {
    RegistryError::Unreachable {
        registry: reference.registry().to_owned(),
        reason: truncate(&chain(error)),
        is_https: client.is_https(reference),
    }
}

fn describe_user(auth: &RegistryAuth) -> String {
    match auth {
        RegistryAuth::Anonymous => "anonymous users".to_owned(),
        RegistryAuth::Basic(user, _) => format!("`{user}`"),
        RegistryAuth::Bearer(_) => "the holder of this token".to_owned(),
    }
}

/// Formats an error with its causes, without repetitions.
fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !message.contains(&text) {
            message = format!("{message}: {text}");
        }
        cause = error.source();
    }
    message
}

fn truncate(text: &str) -> String {
    let text = text.trim();
    match text.char_indices().nth(MAX_MESSAGE_CHARS) {
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

    fn message_of(error: OciDistributionError) -> String {
        let client = RegistryClient::new(Credentials::default(), false, Arc::new(|_| ()));
        let auth = RegistryAuth::Basic("ada".into(), "secret".into());
        explain(&client, &"registry.example/x:1".parse().unwrap(), &auth, error).to_string()
    }

    fn status(code: u16, message: &str) -> String {
        message_of(OciDistributionError::ServerError {
            code,
            url: "https://registry.example".into(),
            message: message.into(),
        })
    }

    fn code(code: OciErrorCode) -> String {
        let error = OciError { code, message: "because".into(), detail: Default::default() };
        message_of(OciDistributionError::RegistryError {
            envelope: OciEnvelope { errors: vec![error] },
            url: String::new(),
        })
    }

    #[test]
    fn a_denied_user_gets_instructions_to_log_in() {
        let expected = "the registry denies `ada` access to registry.example/x:1: log in with `docker login registry.example`, or set \
                        HATCHERY_REGISTRY=registry.example, HATCHERY_REGISTRY_USER and HATCHERY_REGISTRY_PASSWORD";
        for message in [
            status(401, ""),
            status(403, ""),
            code(OciErrorCode::Denied),
            message_of(OciDistributionError::AuthenticationFailure("no".into())),
        ] {
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn a_missing_component_is_named() {
        for message in [status(404, ""), code(OciErrorCode::ManifestUnknown), code(OciErrorCode::NameUnknown)] {
            assert!(message.starts_with("the registry has no registry.example/x:1; "), "{message}");
        }
    }

    #[test]
    fn a_digest_mismatch_names_both_digests() {
        let error = DigestError::VerificationError { expected: "sha256:a".into(), actual: "sha256:b".into() };
        let message = message_of(OciDistributionError::DigestError(error));
        assert!(
            message.starts_with("registry.example/x:1: expected sha256:a, found sha256:b; the registry or a proxy"),
            "{message}"
        );
    }

    #[test]
    fn other_messages_of_the_registry_are_included_up_to_a_limit() {
        let start = "the registry does not serve registry.example/x:1: ";
        assert_eq!(code(OciErrorCode::Toomanyrequests), format!("{start}because"));
        assert_eq!(status(500, "oh\n"), format!("{start}status 500: oh"));
        assert_eq!(status(500, &"ä".repeat(999)), format!("{start}status 500: {}…", "ä".repeat(288)));
    }
}
