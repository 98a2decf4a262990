//! Examples that show a model how to answer.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::content::Content;
use crate::context::CallContext;
use crate::error::RunError;

/// What a user might say, and how it is to be answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// What the user says.
    pub input: Content,
    /// What follows: texts, calls and their answers.
    pub output: Vec<Content>,
}

/// Where an agent's examples come from.
#[derive(Clone)]
pub enum Examples {
    /// Always these.
    Fixed(Arc<[Example]>),
    /// Chosen for each model call.
    Chosen(Arc<dyn ExampleProvider>),
}

/// Chooses examples.
#[async_trait]
pub trait ExampleProvider: Send + Sync {
    /// The examples that fit what the user says.
    ///
    /// # Errors
    /// End the run.
    async fn examples(&self, query: &str, cx: &CallContext) -> Result<Vec<Example>, RunError>;
}
