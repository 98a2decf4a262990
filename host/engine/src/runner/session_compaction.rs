//! Compaction of a session on request.

use std::sync::Arc;

use hatchery_core::{EventWindow, Invocation, NewInvocation, RunConfig, RunError, SessionKey, StoreError};

use super::Runner;
use crate::agents::engine_host;
use crate::app::App;
use crate::history::contents::PromptViews;
use crate::run::RunContext;

impl Runner {
    /// Compacts a session by the settings of its app, as after a run, and waits for the summary. Returns false if nothing
    /// is due, or another compaction of the session is in progress. A run of the session may be in progress: its next
    /// prompt has the summary.
    ///
    /// # Errors
    /// [`StoreError::SessionNotFound`] if the session does not exist, and the errors of the summarizer, the plugins and
    /// the session service.
    pub async fn compact_session(&self, app: Arc<App>, user: &str, session: &str) -> Result<bool, RunError> {
        let key = SessionKey::new(app.name.as_str(), user, session);
        key.check()?;
        let services = self.services().clone();
        let stored = services.sessions.get(&key, EventWindow::All).await?;
        let stored = stored.ok_or_else(|| StoreError::SessionNotFound(key))?;
        let plugins = self.0.plugins.current()?;
        let (invocation, _) = Invocation::new(NewInvocation {
            run_config: app.settings.run.apply_to(RunConfig::default()),
            plugins: plugins.to_arc(),
            signer: self.signer().clone(),
            ..NewInvocation::new(stored, services)
        });
        let run = RunContext::new(app, invocation, plugins, engine_host);
        run.with_history(PromptViews::default(), self.0.compactions.clone()).compact_now().await
    }
}
