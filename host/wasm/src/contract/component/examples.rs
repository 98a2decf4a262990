//! Example providers of components: one instance per query.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Example, ExampleProvider, ItemKind, RunError};

use super::Component;
use super::exports::Indices;
use crate::contract::bindings::exports::hatchery::agent::guest_examples::GuestIndices;
use crate::contract::convert::all_from_wit;

pub(super) struct ComponentExamples {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
}

#[async_trait]
impl ExampleProvider for ComponentExamples {
    async fn examples(&self, query: &str, cx: &CallContext) -> Result<Vec<Example>, RunError> {
        let (name, query) = (self.name.clone(), query.to_owned());
        let call = self.component.sandbox.call(cx, self.exports.loader(), |accessor, guest| {
            Box::pin(async move { guest.call_examples(accessor, name, query).await })
        });
        self.component.convert_result(ItemKind::Examples, &self.name, call.await, all_from_wit)
    }
}
