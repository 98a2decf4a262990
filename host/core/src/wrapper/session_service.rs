//! Wrapper of session services.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::event::Event;
use crate::id::SessionKey;
use crate::journal::CallJournal;
use crate::json::JsonMap;
use crate::retention::{ExpiredSession, ExpiryRule};
use crate::session::{EventWindow, Session, SessionService};
use crate::session_list::{SessionCursor, SessionPage};
use crate::stored_run::RunService;
use crate::turn::{TurnOpening, TurnStart};
use crate::usage::Usage;

/// A [`SessionService`] that wraps another one. See [`WrapperTool`](crate::WrapperTool) for an example.
#[async_trait]
pub trait WrapperSessionService: Send + Sync {
    /// Returns the service inside.
    fn inner(&self) -> &dyn SessionService;

    /// See [`SessionService::create`].
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        self.inner().create(app, user, id, state).await
    }

    /// See [`SessionService::get`].
    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        self.inner().get(key, window).await
    }

    /// See [`SessionService::list`].
    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        self.inner().list(app, user).await
    }

    /// See [`SessionService::list_page`].
    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        self.inner().list_page(app, user, after, limit).await
    }

    /// See [`SessionService::fork`].
    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        self.inner().fork(key, revision, id).await
    }

    /// See [`SessionService::rewind`].
    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        self.inner().rewind(key, revision).await
    }

    /// See [`SessionService::close_session`].
    async fn close_session(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.inner().close_session(key).await
    }

    /// See [`SessionService::close`].
    async fn close(&self) {
        self.inner().close().await;
    }

    /// See [`SessionService::list_expired`].
    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        self.inner().list_expired(app, rule, limit).await
    }

    /// See [`SessionService::has_retention`].
    fn has_retention(&self) -> bool {
        self.inner().has_retention()
    }

    /// See [`SessionService::delete`].
    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        self.inner().delete(key).await
    }

    /// See [`SessionService::begin_turn`].
    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        self.inner().begin_turn(key, previous, lease).await
    }

    /// See [`SessionService::open_turn`]. By default [`Self::begin_turn`] and [`Self::get`] of the wrapper, which may
    /// change what they return.
    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        let start = self.begin_turn(key, previous, lease).await?;
        let end = |fence| self.renew_turn(key, fence, Duration::ZERO);
        TurnOpening::complete(key, start, self.get(key, window), end).await
    }

    /// See [`SessionService::renew_turn`].
    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        self.inner().renew_turn(key, fence, lease).await
    }

    /// See [`SessionService::append_with`].
    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        self.inner().append_with(key, event, fence).await
    }

    /// See [`SessionService::journal`].
    fn journal(&self) -> Option<&dyn CallJournal> {
        self.inner().journal()
    }

    /// See [`SessionService::runs`].
    fn runs(&self) -> Option<&dyn RunService> {
        self.inner().runs()
    }

    /// See [`SessionService::admit_run`].
    async fn admit_run(&self, key: &SessionKey, active: usize) -> Result<(), StoreError> {
        self.inner().admit_run(key, active).await
    }

    /// See [`SessionService::usage`].
    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        self.inner().usage(key).await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<T: WrapperSessionService> SessionService for T {
    async fn create(&self, app: &str, user: &str, id: Option<&str>, state: JsonMap) -> Result<Session, StoreError> {
        WrapperSessionService::create(self, app, user, id, state).await
    }

    async fn get(&self, key: &SessionKey, window: EventWindow) -> Result<Option<Session>, StoreError> {
        WrapperSessionService::get(self, key, window).await
    }

    async fn list(&self, app: &str, user: &str) -> Result<Vec<Session>, StoreError> {
        WrapperSessionService::list(self, app, user).await
    }

    async fn list_page(
        &self,
        app: &str,
        user: &str,
        after: Option<&SessionCursor>,
        limit: usize,
    ) -> Result<SessionPage, StoreError> {
        WrapperSessionService::list_page(self, app, user, after, limit).await
    }

    async fn fork(&self, key: &SessionKey, revision: u64, id: Option<&str>) -> Result<Session, StoreError> {
        WrapperSessionService::fork(self, key, revision, id).await
    }

    async fn rewind(&self, key: &SessionKey, revision: u64) -> Result<Session, StoreError> {
        WrapperSessionService::rewind(self, key, revision).await
    }

    async fn close_session(&self, key: &SessionKey) -> Result<(), StoreError> {
        WrapperSessionService::close_session(self, key).await
    }

    async fn close(&self) {
        WrapperSessionService::close(self).await;
    }

    async fn list_expired(
        &self,
        app: &str,
        rule: &ExpiryRule,
        limit: usize,
    ) -> Result<Vec<ExpiredSession>, StoreError> {
        WrapperSessionService::list_expired(self, app, rule, limit).await
    }

    fn has_retention(&self) -> bool {
        WrapperSessionService::has_retention(self)
    }

    async fn delete(&self, key: &SessionKey) -> Result<(), StoreError> {
        WrapperSessionService::delete(self, key).await
    }

    async fn begin_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
    ) -> Result<TurnStart, StoreError> {
        WrapperSessionService::begin_turn(self, key, previous, lease).await
    }

    async fn open_turn(
        &self,
        key: &SessionKey,
        previous: Option<u64>,
        lease: Duration,
        window: EventWindow,
    ) -> Result<TurnOpening, StoreError> {
        WrapperSessionService::open_turn(self, key, previous, lease, window).await
    }

    async fn renew_turn(&self, key: &SessionKey, fence: u64, lease: Duration) -> Result<(), StoreError> {
        WrapperSessionService::renew_turn(self, key, fence, lease).await
    }

    async fn append_with(&self, key: &SessionKey, event: &Arc<Event>, fence: Option<u64>) -> Result<u64, StoreError> {
        WrapperSessionService::append_with(self, key, event, fence).await
    }

    async fn append(&self, key: &SessionKey, event: &Arc<Event>) -> Result<u64, StoreError> {
        WrapperSessionService::append_with(self, key, event, None).await
    }

    fn journal(&self) -> Option<&dyn CallJournal> {
        WrapperSessionService::journal(self)
    }

    fn runs(&self) -> Option<&dyn RunService> {
        WrapperSessionService::runs(self)
    }

    async fn admit_run(&self, key: &SessionKey, active: usize) -> Result<(), StoreError> {
        WrapperSessionService::admit_run(self, key, active).await
    }

    async fn usage(&self, key: &SessionKey) -> Result<Usage, StoreError> {
        WrapperSessionService::usage(self, key).await
    }
}
