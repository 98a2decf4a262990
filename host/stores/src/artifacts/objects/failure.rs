//! Failures of object stores, with the next step for the operator.

use hatchery_core::StoreError;
use object_store::Error;

use super::location::Location;

/// Returns the error of a failed activity, such as `save`.
pub(super) fn describe(location: &Location, activity: &str, error: Error) -> StoreError {
    let provider = location.provider();
    let (container, credentials, endpoint) = (provider.container(), provider.credentials(), provider.endpoint());
    let next_step = match &error {
        Error::NotFound { .. } => {
            format!("the {container} does not exist; create it, or correct `artifact_service` or {endpoint}")
        }
        Error::PermissionDenied { .. } => format!(
            "access is denied; check {credentials}, and allow them to list, read, write and delete objects in the {container}"
        ),
        Error::Unauthenticated { .. } => format!("the credentials are not accepted; check {credentials}"),
        Error::NotImplemented { .. } | Error::NotSupported { .. } => {
            "the store cannot do this; use one with conditional creation of objects (`If-None-Match: *`)".to_owned()
        }
        _ => format!("the store cannot be reached or has failed; check {endpoint} and {credentials}"),
    };
    StoreError::backend(format!("cannot {activity} artifacts in {location}: {next_step}"), error)
}
