//! Services in Vertex AI Agent Engine by URI.

use std::sync::Arc;

use hatchery_core::{MemoryService, SessionService, StoreError};

/// Returns true for the URI of a service in Agent Engine, valid or not.
pub(super) fn is_agent_engine(uri: &str) -> bool {
    uri.starts_with("agentengine:")
}

#[cfg(feature = "agent-engine")]
mod opening {
    use async_trait::async_trait;
    use hatchery_models::{GoogleTokens, Settings};
    use hatchery_stores::firestore::AccessTokens;
    use hatchery_stores::{AgentEngineMemory, AgentEngineSessions};

    use super::{Arc, MemoryService, SessionService, StoreError};

    /// Access tokens of the application default credentials.
    struct ApplicationDefault(GoogleTokens);

    #[async_trait]
    impl AccessTokens for ApplicationDefault {
        async fn token(&self) -> Result<String, StoreError> {
            let token = self.0.token().await;
            token.map_err(|error| StoreError::backend("cannot get an access token for Agent Engine", error.message))
        }

        fn forget(&self, token: &str) {
            self.0.forget(token);
        }
    }

    fn tokens() -> Arc<dyn AccessTokens> {
        Arc::new(ApplicationDefault(GoogleTokens::new(Settings::from_env().google_cloud, "agentengine")))
    }

    fn variable(name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    pub(in crate::services) fn sessions(uri: &str) -> Result<Arc<dyn SessionService>, StoreError> {
        Ok(Arc::new(AgentEngineSessions::open(uri, tokens(), variable)?))
    }

    pub(in crate::services) fn memory(uri: &str) -> Result<Arc<dyn MemoryService>, StoreError> {
        Ok(Arc::new(AgentEngineMemory::open(uri, tokens(), variable)?))
    }
}

#[cfg(not(feature = "agent-engine"))]
mod opening {
    use super::{Arc, MemoryService, SessionService, StoreError};

    fn missing<T>() -> Result<T, StoreError> {
        Err(StoreError::InvalidRequest(
            "this program was built without the cargo feature `agent-engine`: build it with `cargo build --release -p \
             hatchery-cli --features agent-engine`, or use `sqlite:`"
                .into(),
        ))
    }

    pub(in crate::services) fn sessions(_: &str) -> Result<Arc<dyn SessionService>, StoreError> {
        missing()
    }

    pub(in crate::services) fn memory(_: &str) -> Result<Arc<dyn MemoryService>, StoreError> {
        missing()
    }
}

pub(super) use opening::{memory, sessions};

#[cfg(all(test, not(feature = "agent-engine")))]
mod tests {
    #[test]
    fn without_the_feature_the_error_names_it_and_the_command() {
        for error in [super::sessions("agentengine://p/l/7").err(), super::memory("agentengine://p/l/7").err()] {
            assert_eq!(
                error.unwrap().to_string(),
                "this program was built without the cargo feature `agent-engine`: build it with `cargo build --release -p \
                 hatchery-cli --features agent-engine`, or use `sqlite:`"
            );
        }
    }
}
