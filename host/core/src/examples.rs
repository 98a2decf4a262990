//! Few-shot examples for models.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::call_context::CallContext;
use crate::content::Content;
use crate::error::RunError;

/// An example of a user message and the expected response.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// The user message.
    pub input: Content,
    /// The expected response: texts, function calls and their responses.
    pub output: Vec<Content>,
}

/// The source of an agent's examples.
#[derive(Clone)]
pub enum Examples {
    /// A fixed list.
    Fixed(Arc<[Example]>),
    /// Selected for each model call.
    Chosen(Arc<dyn ExampleProvider>),
}

/// Selects examples that fit a user message. Called before each model call, in the agent's task: it may await, but not
/// block.
#[async_trait]
pub trait ExampleProvider: Send + Sync {
    /// Returns the examples that fit `query`, the text of the user's message.
    ///
    /// # Errors
    /// If they cannot be determined. The error ends the run.
    async fn examples(&self, query: &str, cx: &CallContext) -> Result<Vec<Example>, RunError>;
}
