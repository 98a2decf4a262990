//! Summarizers, which write the summaries that replace older events.

use crate::bindings::summarizers::exports::hatchery::agent::guest_summarizers as wit;
use crate::bindings::wit::types;
use crate::content::Content;
use crate::context::Context;
use crate::event::Event;
use crate::export::{ExportList, Handler, find};

/// A summarizer, made from an async function by [`#[summarizer]`](macro@crate::summarizer).
#[derive(Debug, Clone, Copy)]
pub struct Summarizer {
    /// Name of the summarizer.
    pub name: &'static str,
    #[doc(hidden)]
    pub run: Handler<Vec<Event>, Option<Content>>,
}

impl<S: ExportList<Summarizer>> wit::Guest for S {
    fn describe() -> Vec<String> {
        S::items().into_iter().map(|summarizer| summarizer.name.into()).collect()
    }

    async fn summarize(name: String, events: Vec<types::Event>) -> Result<Option<types::Content>, types::Error> {
        let summarizer = find(S::items(), "summarizer", &name, |summarizer| summarizer.name)?;
        let events = events.into_iter().map(Event::try_from).collect::<Result<_, _>>()?;
        Ok((summarizer.run)(events, Context::new()).await?.map(Into::into))
    }
}
