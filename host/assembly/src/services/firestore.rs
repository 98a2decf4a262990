//! Firestore services by URI.

use std::sync::Arc;

use hatchery_core::{MemoryService, SessionService, StoreError};

/// Returns true for the URI of a Firestore service, valid or not.
pub(super) fn is_firestore(uri: &str) -> bool {
    uri.starts_with("firestore:")
}

#[cfg(feature = "firestore")]
mod opening {
    use async_trait::async_trait;
    use hatchery_models::{GoogleTokens, Settings};
    use hatchery_stores::firestore::{
        AccessTokens, FirestoreClient, FirestoreMemoryService, FirestoreProperties, FirestoreSessionService,
        FirestoreUri,
    };

    use super::{Arc, MemoryService, SessionService, StoreError};

    /// Access tokens of the application default credentials.
    struct ApplicationDefault(GoogleTokens);

    #[async_trait]
    impl AccessTokens for ApplicationDefault {
        async fn token(&self) -> Result<String, StoreError> {
            self.0
                .token()
                .await
                .map_err(|error| StoreError::backend("cannot get an access token for Firestore", error.message))
        }

        fn forget(&self, token: &str) {
            self.0.forget(token);
        }
    }

    async fn database(uri: &str) -> Result<(FirestoreClient, FirestoreProperties), StoreError> {
        let uri = FirestoreUri::parse(uri)?;
        let tokens = GoogleTokens::new(Settings::from_env().google_cloud, "firestore");
        let client = uri.client().access_tokens(Arc::new(ApplicationDefault(tokens))).build()?;
        Ok((client, uri.properties().await?))
    }

    pub(in crate::services) async fn sessions(uri: &str) -> Result<Arc<dyn SessionService>, StoreError> {
        let (client, properties) = database(uri).await?;
        Ok(Arc::new(FirestoreSessionService::with_properties(client, &properties)))
    }

    pub(in crate::services) async fn memory(uri: &str) -> Result<Arc<dyn MemoryService>, StoreError> {
        let (client, properties) = database(uri).await?;
        Ok(Arc::new(FirestoreMemoryService::with_properties(client, &properties)))
    }
}

#[cfg(not(feature = "firestore"))]
mod opening {
    use super::{Arc, MemoryService, SessionService, StoreError};

    fn missing<T>() -> Result<T, StoreError> {
        Err(StoreError::InvalidRequest(
            "this program was built without the cargo feature `firestore`: build it with `cargo build --release -p \
             hatchery-cli --features firestore`, or use `sqlite:`"
                .into(),
        ))
    }

    pub(in crate::services) async fn sessions(_: &str) -> Result<Arc<dyn SessionService>, StoreError> {
        missing()
    }

    pub(in crate::services) async fn memory(_: &str) -> Result<Arc<dyn MemoryService>, StoreError> {
        missing()
    }
}

pub(super) use opening::{memory, sessions};

#[cfg(all(test, not(feature = "firestore")))]
mod tests {
    #[tokio::test]
    async fn without_the_feature_the_error_names_it_and_the_command() {
        for error in [super::sessions("firestore://p").await.err(), super::memory("firestore://p").await.err()] {
            assert_eq!(
                error.unwrap().to_string(),
                "this program was built without the cargo feature `firestore`: build it with `cargo build --release -p \
                 hatchery-cli --features firestore`, or use `sqlite:`"
            );
        }
    }
}
