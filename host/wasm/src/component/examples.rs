//! A component's provider of examples: a fresh instance per choice.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Example, ExampleProvider, ItemKind, RunError};

use super::Component;
use crate::bindings::exports::hatchery::agent::guest_examples::GuestIndices;
use crate::convert::all_from_wit;
use crate::store::Caller;

pub(super) struct ComponentExamples {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
}

#[async_trait]
impl ExampleProvider for ComponentExamples {
    async fn examples(&self, query: &str, cx: &CallContext) -> Result<Vec<Example>, RunError> {
        let (name, query) = (self.name.clone(), query.to_owned());
        let call = self.component.sandbox.run(Caller::Call(cx.clone()), |mut store, instance| async move {
            let guest = self.exports.load(&mut store, &instance)?;
            store.run_concurrent(async move |accessor| guest.call_examples(accessor, name, query).await).await?
        });
        self.component.answer(ItemKind::Examples, &self.name, call.await, all_from_wit)
    }
}
