//! Summaries that stand for older events.

use std::sync::Arc;

use async_trait::async_trait;

use crate::content::Content;
use crate::context::CallContext;
use crate::error::RunError;
use crate::event::Event;

/// Makes a summary of events.
#[async_trait]
pub trait Summarizer: Send + Sync {
    /// What the events come to; nothing when there is nothing to say about them.
    ///
    /// # Errors
    /// When it fails; the events stay as they are.
    async fn summarize(&self, events: &[Arc<Event>], cx: &CallContext) -> Result<Option<Content>, RunError>;
}
