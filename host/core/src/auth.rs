//! Authentication of tools: schemes of services, and credentials of users for them.
//!
//! A tool requests a credential with [`CallContext::request_credential`]. The client gets a call of
//! [`REQUEST_CREDENTIAL`] with an [`AuthConfig`], and answers it. The engine keeps the answer in the
//! [`CredentialService`] and calls the tool again; the session stores the answer without secrets.

mod credential;
mod scheme;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use self::credential::{
    AuthCredential, AuthCredentialType, HttpAuth, HttpCredentials, OAuth2Auth, ServiceAccountAuth,
};
pub use self::scheme::{AuthKeyLocation, AuthScheme, OAuthFlow, OAuthFlows};

use crate::call_context::CallContext;
use crate::error::{RunError, StoreError};
use crate::id::SessionKey;
use crate::journal::hash_hex;
use crate::json::JsonMap;

/// The name of the function call that requests a credential from the client. Its response carries the credential.
pub const REQUEST_CREDENTIAL: &str = "adk_request_credential";

/// Authentication of a tool, in the JSON of ADK.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthConfig {
    /// The authentication scheme of the service.
    #[serde(alias = "auth_scheme")]
    pub auth_scheme: AuthScheme,
    /// The tool's own credential: client id and secret at an OAuth server, or a key that needs no user.
    #[serde(default, alias = "raw_auth_credential", skip_serializing_if = "Option::is_none")]
    pub raw_auth_credential: Option<AuthCredential>,
    /// In a request the URL for the user to log in at; in an answer the user's credential.
    #[serde(default, alias = "exchanged_auth_credential", skip_serializing_if = "Option::is_none")]
    pub exchanged_auth_credential: Option<AuthCredential>,
    /// The name under which the user's credential is stored. Derived by [`AuthConfig::key`] if it is missing.
    #[serde(default, alias = "credential_key", skip_serializing_if = "Option::is_none")]
    pub credential_key: Option<String>,
}

impl AuthConfig {
    /// Creates a configuration.
    pub fn new(auth_scheme: AuthScheme, raw_auth_credential: Option<AuthCredential>) -> Self {
        Self { auth_scheme, raw_auth_credential, exchanged_auth_credential: None, credential_key: None }
    }

    /// Returns the name under which a user's credential is stored: the given one, or one that tools with the same
    /// scheme and client share.
    pub fn key(&self) -> String {
        let client = self.raw_auth_credential.as_ref().and_then(|raw| raw.oauth2.as_ref()?.client_id.as_deref());
        let derived = || format!("adk_{}_{}", self.auth_scheme.name(), hash_hex(&(&self.auth_scheme, client), 8));
        self.credential_key.clone().unwrap_or_else(derived)
    }

    /// Returns the configuration for a client, with `exchanged` but without secrets.
    #[must_use]
    pub fn for_client(&self, exchanged: AuthCredential) -> Self {
        Self {
            auth_scheme: self.auth_scheme.clone(),
            raw_auth_credential: self.raw_auth_credential.as_ref().map(AuthCredential::without_secrets),
            exchanged_auth_credential: Some(exchanged.without_secrets()),
            credential_key: Some(self.key()),
        }
    }
}

/// The stored credential of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum UserCredential {
    /// The answer, which has not been used yet: a code of an OAuth server, a key, or a password.
    Answer {
        /// The credential as the client has sent it.
        credential: AuthCredential,
        /// The `state` with which the user was sent to the OAuth server.
        expected_state: Option<String>,
    },
    /// A credential for requests.
    Granted {
        /// The credential. It has the time at which it expires.
        credential: AuthCredential,
    },
}

impl UserCredential {
    /// Reads a client's answer to `request`. `None` if it has no credential.
    pub fn from_answer(request: &AuthConfig, response: &JsonMap) -> Option<Self> {
        let config = response.get("authConfig").or_else(|| response.get("auth_config"));
        let config = config.cloned().unwrap_or_else(|| Value::Object(response.clone()));
        let answer: AuthConfig = serde_json::from_value(config).ok()?;
        let credential = answer.exchanged_auth_credential?.into_user_part();
        let requested = request.exchanged_auth_credential.as_ref();
        let expected_state = requested.and_then(|requested| requested.oauth2.as_ref()?.state.clone());
        (!credential.is_empty()).then_some(Self::Answer { credential, expected_state })
    }
}

/// Identifies a credential.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CredentialId {
    /// The app; empty for credentials of the host itself.
    pub app: Arc<str>,
    /// The user; empty for credentials of the host itself.
    pub user: Arc<str>,
    /// The name, see [`AuthConfig::key`].
    pub key: String,
}

impl CredentialId {
    /// Returns the id of a credential of the session's user.
    pub fn for_user(session: &SessionKey, key: impl Into<String>) -> Self {
        Self { app: session.app.clone(), user: session.user.clone(), key: key.into() }
    }

    /// Returns the id of a credential of the host itself.
    pub fn for_host(key: impl Into<String>) -> Self {
        Self { app: "".into(), user: "".into(), key: key.into() }
    }
}

impl fmt::Display for CredentialId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "appName={}, userId={}, key={}", self.app, self.user, self.key)
    }
}

/// Storage of credentials, such as tokens, which only the host can read.
#[async_trait]
pub trait CredentialService: Send + Sync {
    /// Returns a stored credential. `None` if there is none, or it was encrypted with another key.
    ///
    /// # Errors
    /// If the storage fails.
    async fn load(&self, id: &CredentialId) -> Result<Option<Value>, StoreError>;

    /// Stores a credential, and replaces an earlier one.
    ///
    /// # Errors
    /// If the storage fails.
    async fn save(&self, id: &CredentialId, credential: &Value) -> Result<(), StoreError>;

    /// Deletes a credential. Succeeds if there is none.
    ///
    /// # Errors
    /// If the storage fails.
    async fn delete(&self, id: &CredentialId) -> Result<(), StoreError>;
}

impl CallContext {
    /// Requests a credential from the user of this call, with a configuration that the client may see, see
    /// [`AuthConfig::for_client`]. The tool should return a result that reports the wait. After the answer it is
    /// called again with the same arguments.
    ///
    /// # Errors
    /// [`RunError::BadInput`] outside a function call, and inside an agent that is called as a tool.
    pub fn request_credential(&self, config: &AuthConfig) -> Result<(), RunError> {
        self.check_writable()?;
        let Some(id) = self.function_call_id.as_deref() else {
            return Err(RunError::BadInput("a credential can only be requested in a tool call".into()));
        };
        if self.invocation.is_in_tool {
            let message = "a credential cannot be requested inside an agent that is called as a tool";
            return Err(RunError::BadInput(message.into()));
        }
        self.actions().requested_auth_configs.insert(id.into(), json!(config));
        Ok(())
    }

    /// Returns the user's credential of this name. `None` if there is none.
    ///
    /// # Errors
    /// As [`CredentialService::load`].
    pub async fn user_credential(&self, key: &str) -> Result<Option<UserCredential>, StoreError> {
        let id = CredentialId::for_user(&self.invocation.session_key, key);
        let stored = self.invocation.services.credentials.load(&id).await?;
        // The user is asked again if an older version has written it in another form.
        Ok(stored.and_then(|stored| serde_json::from_value(stored).ok()))
    }

    /// Replaces the user's credential of this name; `None` deletes it.
    ///
    /// # Errors
    /// As [`CredentialService::save`].
    pub async fn set_user_credential(&self, key: &str, credential: Option<&UserCredential>) -> Result<(), StoreError> {
        let id = CredentialId::for_user(&self.invocation.session_key, key);
        match credential {
            Some(credential) => self.invocation.services.credentials.save(&id, &json!(credential)).await,
            None => self.invocation.services.credentials.delete(&id).await,
        }
    }
}

#[cfg(test)]
mod tests;
