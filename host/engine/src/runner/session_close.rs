//! The end of a client's use of a session.

use hatchery_core::{EventWindow, SessionKey, StoreError};

use super::Runner;
use crate::app::{App, MemoryAddition};

impl Runner {
    /// Notifies the services that a client has ended its use of a session, and adds its events to the memory of its
    /// user if the settings of the app require that. Does not wait for a run in progress.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, and the errors of the services.
    pub async fn close_session(&self, app: &App, user: &str, session: &str) -> Result<(), StoreError> {
        let services = self.services();
        let key = SessionKey::new(app.name.as_str(), user, session);
        let is_added = app.settings.memory_addition == MemoryAddition::OnClose;
        let window = if is_added { EventWindow::All } else { EventWindow::Recent(0) };
        let stored = services.sessions.get(&key, window).await?;
        let stored = stored.ok_or_else(|| StoreError::SessionNotFound(key.clone()))?;
        if is_added {
            services.memory.add_session(&stored).await?;
        }
        services.sessions.close_session(&key).await
    }
}
