//! A component's provider of examples: an instance per choice.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Example, ExampleProvider, ItemKind, RunError};
use wasmtime::Store;
use wasmtime::component::Instance;

use super::Component;
use crate::contract::bindings::exports::hatchery::agent::guest_examples::GuestIndices;
use crate::contract::convert::all_from_wit;
use crate::runtime::store::HostState;

pub(super) struct ComponentExamples {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
}

#[async_trait]
impl ExampleProvider for ComponentExamples {
    async fn examples(&self, query: &str, cx: &CallContext) -> Result<Vec<Example>, RunError> {
        let (name, query) = (self.name.clone(), query.to_owned());
        let load = |store: &mut Store<HostState>, instance: &Instance| self.exports.load(store, instance);
        let call = self
            .component
            .sandbox
            .call(cx, load, async move |accessor, guest| guest.call_examples(accessor, name, query).await);
        self.component.answer(ItemKind::Examples, &self.name, call.await, all_from_wit)
    }
}
