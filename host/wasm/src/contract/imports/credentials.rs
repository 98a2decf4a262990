//! `credentials`: credentials of the user for services.

use std::sync::Arc;

use hatchery_core::{AuthConfig, AuthCredential, CallContext, UserCredential};
use hatchery_egress::{AuthError, ToolAuthenticator};
use serde::de::DeserializeOwned;
use wasmtime::component::HasSelf;

use super::{Access, StoreAccess, wit_error};
use crate::contract::bindings::hatchery::agent::credentials::{Host, HostWithStore};
use crate::contract::convert::{parse_json, to_json, wit};
use crate::policy::Denial;
use crate::runtime::credentials::for_guest;
use crate::runtime::limits::units;
use crate::runtime::store::HostState;
use crate::runtime::store::pending_writes::WriteKey;

/// Error code of a credential that the host does not get.
const FAILED: &str = "CREDENTIAL_FAILED";

/// Maximum size in bytes of the configuration of a credential, and of a credential. The host keeps the configurations
/// of a component as long as its revision.
const MAX_JSON: usize = 64 << 10;

impl Host for HostState {}

impl<T: Send> HostWithStore<T> for HasSelf<HostState> {
    async fn get(accessor: &Access<T>, config: String) -> Result<Option<String>, wit::Error> {
        get(accessor, config).await
    }

    async fn refuse(accessor: &Access<T>, config: String, credential: String) -> Result<(), wit::Error> {
        refuse(accessor, config, credential).await
    }
}

pub(super) async fn get(mut store: impl StoreAccess, config: String) -> Result<Option<String>, wit::Error> {
    let Request { cx, authenticator, .. } = store.with_state(|state| state.credential_request(&config))?;
    // The token server may be asked, which the component chooses.
    let counted = store.with_state(|state| state.usage.count_request());
    counted.map_err(|exceeded| wit_error("LIMIT_REACHED", exceeded.for_callers()))?;
    match authenticator.credential(&cx).await {
        Ok(credential) => Ok(credential.map(|credential| to_json(&for_guest(credential)))),
        Err(error) => Err(store.with_state(|state| state.credential_error(error))),
    }
}

pub(super) async fn refuse(mut store: impl StoreAccess, config: String, credential: String) -> Result<(), wit::Error> {
    let Request { cx, key, authenticator } = store.with_state(|state| state.credential_request(&config))?;
    let refused: AuthCredential = read(&credential, "the credential")?;
    let kept = match cx.user_credential(&key).await? {
        // The component does not have all of it.
        Some(UserCredential::Granted { credential }) if for_guest(credential.clone()) == refused => credential,
        Some(UserCredential::Granted { .. } | UserCredential::Answer { .. }) => return Ok(()),
        // A token that no user has granted is not stored.
        None => refused,
    };
    match authenticator.refuse(&cx, &kept).await {
        Ok(()) => Ok(()),
        Err(error) => Err(store.with_state(|state| state.credential_error(error))),
    }
}

/// A permitted request for a credential.
struct Request {
    cx: CallContext,
    /// The name under which the credential is stored.
    key: String,
    authenticator: Arc<ToolAuthenticator>,
}

impl HostState {
    /// Checks that the component may ask, and reads its configuration.
    fn credential_request(&mut self, config: &str) -> Result<Request, wit::Error> {
        let cx = self.writable()?.clone();
        if !self.can_send() {
            let denial = Denial::new(
                &self.component,
                "ask the user for credentials, because it may send requests to no host",
                "network: [\"api.example\"]",
            );
            return Err(denial.report(&self.log));
        }
        self.writes.record(WriteKey::Credential, config.len()).map_err(|exceeded| {
            self.log.report_limit("limits.result", &exceeded);
            wit_error(
                "LIMIT_REACHED",
                format!("no credential is requested, because this call has set too much: {}", exceeded.for_callers()),
            )
        })?;
        let config: AuthConfig = read(config, "the configuration of a credential")?;
        let (key, authenticator) = self
            .credentials
            .authenticator(config)
            .map_err(|reason| wit_error("BAD_INPUT", format!("the configuration of a credential: {reason}")))?;
        Ok(Request { cx, key, authenticator })
    }

    /// Returns the error for the component. Details for the operator go to the log.
    fn credential_error(&self, error: AuthError) -> wit::Error {
        match error {
            AuthError::Unasked(error) => error.into(),
            AuthError::Store(error) => error.into(),
            AuthError::Refused { .. } | AuthError::Answer(_) => wit_error(FAILED, error.for_models()),
            AuthError::Setting { .. } => wit_error("BAD_INPUT", format!("the configuration of a credential: {error}")),
            AuthError::ServiceAccount(_) | AuthError::Egress(_) | AuthError::Server { .. } => {
                tracing::warn!(component = &*self.component, "cannot get a credential of a user: {error}");
                wit_error(FAILED, error.for_models())
            }
        }
    }
}

fn read<T: DeserializeOwned>(json: &str, what: &'static str) -> Result<T, wit::Error> {
    if json.len() > MAX_JSON {
        let (size, max) = (json.len(), units::format_size(MAX_JSON as u64));
        return Err(wit_error("BAD_INPUT", format!("{what} has {size} bytes, and {max} are allowed; shorten it")));
    }
    let value = parse_json(json, what)?;
    serde_json::from_value(value).map_err(|error| wit_error("BAD_INPUT", format!("{what}: {error}")))
}
