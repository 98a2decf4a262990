//! Summarizers of components: one instance per summary.

use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{CallContext, Content, Event, ItemKind, RunError, Summarizer};

use super::Component;
use super::exports::{Indices, SummarizerExports, call_guest};
use crate::contract::convert::{FromWit, ToWit};

pub(super) struct ComponentSummarizer {
    pub(super) component: Arc<Component>,
    pub(super) exports: SummarizerExports,
    pub(super) name: String,
}

#[async_trait]
impl Summarizer for ComponentSummarizer {
    async fn summarize(&self, events: &[Arc<Event>], cx: &CallContext) -> Result<Option<Content>, RunError> {
        let (name, events) = (self.name.clone(), events.iter().map(|event| event.to_wit()).collect::<Vec<_>>());
        let answer = call_guest!(self.component, cx, self.exports, call_summarize(name, events));
        self.component.convert_result(cx, ItemKind::Summarizer, &self.name, answer, |content| {
            content.map(Content::from_wit).transpose()
        })
    }
}
