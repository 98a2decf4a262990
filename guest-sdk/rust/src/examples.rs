//! Examples that show a model how to answer, and those who choose them.

use crate::bindings::examples::exports::hatchery::agent::guest_examples as wit;
use crate::bindings::wit::types;
use crate::content::Content;
use crate::context::Context;
use crate::export::{Offer, Serve, find};

/// What a user might say, and how it is to be answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Example {
    /// What the user says.
    pub input: Content,
    /// What follows: texts, calls and their answers.
    pub output: Vec<Content>,
}

impl Example {
    /// A text of the user and the model's answer to it.
    pub fn new(input: impl Into<String>, output: impl Into<String>) -> Self {
        Self { input: Content::user(input), output: vec![Content::model(output)] }
    }

    /// With something more that follows, such as the answer to a function call.
    #[must_use]
    pub fn then(mut self, content: Content) -> Self {
        self.output.push(content);
        self
    }
}

/// Chooses examples, as [`#[examples]`](macro@crate::examples) makes it of an async function.
#[derive(Debug, Clone, Copy)]
pub struct ExampleProvider {
    /// What agents call it by.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: Serve<String, Vec<Example>>,
}

/// Refers to a provider of examples: a function marked `#[examples]`, or a name (`sums`, `school/sums`).
pub trait ExamplesRef {
    /// The name.
    fn provider_name(self) -> String;
}

impl<F: Fn() -> ExampleProvider> ExamplesRef for F {
    fn provider_name(self) -> String {
        self().name.into()
    }
}

impl ExamplesRef for &str {
    fn provider_name(self) -> String {
        self.into()
    }
}

impl<S: Offer<ExampleProvider>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|provider| provider.name.into()).collect()
    }

    async fn examples(name: String, query: String) -> Result<Vec<types::Example>, types::Error> {
        let provider = find(S::items(), "example provider", &name, |provider| provider.name)?;
        let examples = (provider.run)(query, Context::new()).await?;
        Ok(examples.into_iter().map(Into::into).collect())
    }
}
