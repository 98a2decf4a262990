//! Summarizers of components: one instance per summary.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Content, Event, ItemKind, RunError, Summarizer};

use super::Component;
use super::exports::Indices;
use crate::contract::bindings::exports::hatchery::agent::guest_summarizers::GuestIndices;
use crate::contract::convert::{FromWit, ToWit};

pub(super) struct ComponentSummarizer {
    pub(super) component: Arc<Component>,
    pub(super) exports: GuestIndices,
    pub(super) name: String,
}

#[async_trait]
impl Summarizer for ComponentSummarizer {
    async fn summarize(&self, events: &[Arc<Event>], cx: &CallContext) -> Result<Option<Content>, RunError> {
        let (name, events) = (self.name.clone(), events.iter().map(|event| event.to_wit()).collect::<Vec<_>>());
        let call = self.component.sandbox.call(cx, self.exports.loader(), |accessor, guest| {
            Box::pin(async move { guest.call_summarize(accessor, name, events).await })
        });
        self.component.convert_result(ItemKind::Summarizer, &self.name, call.await, |content| {
            content.map(Content::from_wit).transpose()
        })
    }
}
