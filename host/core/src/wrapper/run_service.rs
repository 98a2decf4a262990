//! Wrapper of services that store runs.

use async_trait::async_trait;

use crate::error::StoreError;
use crate::id::SessionKey;
use crate::stored_run::{RunPage, RunService, RunTransition, StoredRun};

/// A [`RunService`] that wraps another one. See [`WrapperTool`](crate::WrapperTool) for an example.
///
/// A wrapper that overrides [`Self::start`] or [`Self::change`] overrides the method that ends with `_later` too: by
/// default it calls the service inside.
#[async_trait]
pub trait WrapperRunService: Send + Sync {
    /// Returns the service inside.
    fn inner(&self) -> &dyn RunService;

    /// See [`RunService::add`].
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        self.inner().add(run).await
    }

    /// See [`RunService::start`].
    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        self.inner().start(run, fence).await
    }

    /// See [`RunService::change`].
    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        self.inner().change(session, run, fence, transition).await
    }

    /// See [`RunService::start_later`].
    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        self.inner().start_later(run, fence).await
    }

    /// See [`RunService::change_later`].
    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        self.inner().change_later(session, run, fence, transition).await
    }

    /// See [`RunService::get`].
    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        self.inner().get(session, run).await
    }

    /// See [`RunService::list`].
    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        self.inner().list(session, from, limit).await
    }

    /// See [`RunService::find_running`].
    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        self.inner().find_running(session).await
    }

    /// See [`RunService::has_turn`].
    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        self.inner().has_turn(session).await
    }

    /// See [`RunService::list_interrupted`].
    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        self.inner().list_interrupted(apps, limit).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: WrapperRunService> RunService for T {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        WrapperRunService::add(self, run).await
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        WrapperRunService::start(self, run, fence).await
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        WrapperRunService::change(self, session, run, fence, transition).await
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        WrapperRunService::start_later(self, run, fence).await
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        WrapperRunService::change_later(self, session, run, fence, transition).await
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        WrapperRunService::get(self, session, run).await
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        WrapperRunService::list(self, session, from, limit).await
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        WrapperRunService::find_running(self, session).await
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        WrapperRunService::has_turn(self, session).await
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        WrapperRunService::list_interrupted(self, apps, limit).await
    }
}
