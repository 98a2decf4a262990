//! Storage of the tokens of servers: the credential service of the host, or memory.

use async_trait::async_trait;
use rmcp::transport::auth::{AuthError, CredentialStore, InMemoryCredentialStore, StoredCredentials};

use crate::config::StoredTokens;

/// The tokens of one server.
pub(super) struct TokenStore {
    /// `None` keeps them in memory.
    pub(super) tokens: Option<StoredTokens>,
    pub(super) memory: InMemoryCredentialStore,
}

#[async_trait]
impl CredentialStore for TokenStore {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let Some(StoredTokens { service, id }) = &self.tokens else { return self.memory.load().await };
        let stored = service.load(id).await.map_err(|error| storage_error(&error))?;
        stored.map(serde_json::from_value).transpose().map_err(|error| storage_error(&error))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let Some(StoredTokens { service, id }) = &self.tokens else { return self.memory.save(credentials).await };
        let json = serde_json::to_value(&credentials).map_err(|error| storage_error(&error))?;
        service.save(id, &json).await.map_err(|error| storage_error(&error))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        let Some(StoredTokens { service, id }) = &self.tokens else { return self.memory.clear().await };
        service.delete(id).await.map_err(|error| storage_error(&error))
    }
}

fn storage_error(error: &dyn std::error::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}
