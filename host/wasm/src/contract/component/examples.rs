//! Example providers of components: one instance per query.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Example, ExampleProvider, ItemKind, RunError};

use super::Component;
use super::exports::{ExampleExports, Indices, call_guest};
use crate::contract::convert::all_from_wit;

pub(super) struct ComponentExamples {
    pub(super) component: Arc<Component>,
    pub(super) exports: ExampleExports,
    pub(super) name: String,
}

#[async_trait]
impl ExampleProvider for ComponentExamples {
    async fn examples(&self, query: &str, cx: &CallContext) -> Result<Vec<Example>, RunError> {
        let (name, query) = (self.name.clone(), query.to_owned());
        let answer = call_guest!(self.component, cx, self.exports, call_examples(name, query));
        self.component.convert_result(cx, ItemKind::Examples, &self.name, answer, all_from_wit)
    }
}
