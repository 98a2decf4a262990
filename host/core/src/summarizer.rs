//! Summaries that replace older events in prompts (compaction).

use std::sync::Arc;

use async_trait::async_trait;

use crate::call_context::CallContext;
use crate::content::Content;
use crate::error::RunError;
use crate::event::Event;

/// Summarizes events, so that prompts of long sessions stay short.
///
/// Called in a background task of the host, concurrently with the run that triggered it and possibly after its end. It
/// may await, but not block. It gets a separate context with a small limit of model calls; its changes of state are
/// discarded.
///
/// ```
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use hatchery_core::{CallContext, Content, Event, RunError, Summarizer};
///
/// /// Keeps only the messages of the user.
/// struct UserMessages;
///
/// #[async_trait]
/// impl Summarizer for UserMessages {
///     async fn summarize(&self, events: &[Arc<Event>], _: &CallContext) -> Result<Option<Content>, RunError> {
///         let by_user = events.iter().filter(|event| event.author == "user");
///         let texts: Vec<_> = by_user.filter_map(|event| Some(event.content.as_ref()?.text())).collect();
///         Ok((!texts.is_empty()).then(|| Content::model(format!("The user said: {}", texts.join("; ")))))
///     }
/// }
///
/// let summarizer: Arc<dyn Summarizer> = Arc::new(UserMessages);
/// ```
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// Returns a summary of the events; `None` if they should stay as they are.
    ///
    /// # Errors
    /// If it fails. The error is logged and the events stay as they are.
    async fn summarize(&self, events: &[Arc<Event>], cx: &CallContext) -> Result<Option<Content>, RunError>;
}
