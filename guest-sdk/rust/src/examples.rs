//! Few-shot examples, and the providers that choose them.

use crate::bindings::examples::exports::hatchery::agent::guest_examples as wit;
use crate::bindings::wit::types;
use crate::content::Content;
use crate::context::Context;
use crate::export::{ExportList, Handler, find};

/// An example: a user message and the answer to it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Example {
    /// The user message.
    pub input: Content,
    /// The answer: texts, function calls and their responses.
    pub output: Vec<Content>,
}

impl Example {
    /// Creates an example with two texts.
    pub fn new(input: impl Into<String>, output: impl Into<String>) -> Self {
        Self { input: Content::user(input), output: vec![Content::model(output)] }
    }

    /// Adds a content to the answer, such as the response to a function call.
    #[must_use]
    pub fn then(mut self, content: Content) -> Self {
        self.output.push(content);
        self
    }
}

/// An example provider, made from an async function by [`#[examples]`](macro@crate::examples).
#[derive(Debug, Clone, Copy)]
pub struct ExampleProvider {
    /// Name of the provider.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: Handler<String, Vec<Example>>,
}

/// A reference to an example provider: a function marked `#[examples]`, or a name (`sums`, `school/sums`).
pub trait ExamplesRef {
    /// Returns the name.
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

impl<S: ExportList<ExampleProvider>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|provider| provider.name.into()).collect()
    }

    async fn examples(name: String, query: String) -> Result<Vec<types::Example>, types::Error> {
        let provider = find(S::items(), "example provider", &name, |provider| provider.name)?;
        let examples = (provider.run)(query, Context::new()).await?;
        Ok(examples.into_iter().map(Into::into).collect())
    }
}
