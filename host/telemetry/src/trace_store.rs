//! A bounded store of spans in memory, for the developer UI and ADK's clients.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{FastHashMap, SpanData, SpanExporter, SpanOperation, TraceParent};

/// Maximum number of stored spans.
const MAX_SPANS: usize = 10_000;

/// Maximum size of the stored spans in bytes.
const MAX_BYTES: usize = 64 << 20;

/// A ring buffer of the newest spans of all runs, with the content of model and tool calls: at most 10,000 spans and
/// 64 MiB. Cheap to clone; clones share them.
#[derive(Clone, Default)]
pub struct TraceStore(Arc<Mutex<Spans>>);

#[derive(Default)]
struct Spans {
    /// In the order in which they ended.
    spans: VecDeque<Arc<SpanData>>,
    /// By the id of their session, in the same order. Sessions of several apps may share an id.
    sessions: FastHashMap<Arc<str>, VecDeque<Arc<SpanData>>>,
    /// The span that led to an event.
    events: FastHashMap<String, Arc<SpanData>>,
    bytes: usize,
    is_disabled: bool,
}

impl TraceStore {
    /// Sets whether spans are stored. Default: true. When disabled, stored spans are removed.
    pub fn set_enabled(&self, is_enabled: bool) {
        let mut store = self.0.lock_unpoisoned();
        if is_enabled {
            store.is_disabled = false;
        } else {
            *store = Spans { is_disabled: true, ..Spans::default() };
        }
    }

    /// Returns the spans of the sessions with this id, in the order in which they began; of one app if it is named.
    pub fn session(&self, app: Option<&str>, session: &str) -> Vec<Arc<SpanData>> {
        let is_of_app = |span: &&Arc<SpanData>| app.is_none_or(|app| &*span.trace.session.app == app);
        let mut spans: Vec<_> = {
            let store = self.0.lock_unpoisoned();
            store.sessions.get(session).into_iter().flatten().filter(is_of_app).cloned().collect()
        };
        spans.sort_by_key(|span| span.start);
        spans
    }

    /// Returns the span that led to an event: the call of a model, or else the run of its agent; of one app if it is
    /// named.
    pub fn event(&self, app: Option<&str>, event: &str) -> Option<Arc<SpanData>> {
        let span = self.0.lock_unpoisoned().events.get(event).cloned()?;
        app.is_none_or(|app| &*span.trace.session.app == app).then_some(span)
    }
}

impl Spans {
    fn add(&mut self, span: &Arc<SpanData>) {
        self.bytes += span.size();
        self.spans.push_back(span.clone());
        self.sessions.entry(span.trace.session.id.clone()).or_default().push_back(span.clone());
        for id in event_ids(span) {
            match self.events.entry(id.to_owned()) {
                Entry::Occupied(known) if known.get().operation == SpanOperation::Model => {}
                Entry::Occupied(mut known) => drop(known.insert(span.clone())),
                Entry::Vacant(place) => drop(place.insert(span.clone())),
            }
        }
    }

    fn remove_oldest(&mut self) {
        let Some(oldest) = self.spans.pop_front() else { return };
        self.bytes = self.bytes.saturating_sub(oldest.size());
        if let Entry::Occupied(mut session) = self.sessions.entry(oldest.trace.session.id.clone()) {
            // It is the oldest of its session too.
            session.get_mut().pop_front();
            if session.get().is_empty() {
                session.remove();
            }
        }
        for id in event_ids(&oldest) {
            if self.events.get(id).is_some_and(|span| Arc::ptr_eq(span, &oldest)) {
                self.events.remove(id);
            }
        }
    }
}

/// Returns the id of a model call's event, and the ids of an agent's events.
fn event_ids(span: &SpanData) -> impl Iterator<Item = &str> {
    let result = span.get("gcp.vertex.agent.event_id").and_then(|id| id.as_str());
    result.into_iter().chain(span.event_ids.iter().map(String::as_str))
}

impl SpanExporter for TraceStore {
    fn export(&self, span: &Arc<SpanData>) {
        let mut store = self.0.lock_unpoisoned();
        if store.is_disabled {
            return;
        }
        store.add(span);
        while store.spans.len() > MAX_SPANS || store.bytes > MAX_BYTES {
            store.remove_oldest();
        }
    }

    fn captures_content(&self) -> bool {
        !self.0.lock_unpoisoned().is_disabled
    }

    /// Always false: the spans are only read on this host.
    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{LlmRequest, SessionKey, Span, SpanContext};

    use super::*;

    fn trace(store: &TraceStore, app: &str) -> SpanContext {
        SpanContext::new(Arc::new(store.clone()), SessionKey::new(app, "ada", "s"), "e-1", None)
    }

    fn tool(place: &SpanContext, name: impl std::fmt::Display) -> Span {
        place.start(SpanOperation::Tool, name)
    }

    fn names(spans: Vec<Arc<SpanData>>) -> Vec<String> {
        spans.iter().map(|span| span.name.to_string()).collect()
    }

    #[test]
    fn a_store_that_is_disabled_keeps_no_span() {
        let store = TraceStore::default();
        drop(tool(&trace(&store, "a"), "one"));
        store.set_enabled(false);
        assert!(!store.captures_content());
        drop(tool(&trace(&store, "a"), "two"));
        assert!(store.session(None, "s").is_empty());
        store.set_enabled(true);
        drop(tool(&trace(&store, "a"), "three"));
        assert_eq!(names(store.session(None, "s")), ["execute_tool three"]);
    }

    #[test]
    fn spans_are_found_by_session_in_the_order_of_their_beginning() {
        let store = TraceStore::default();
        let (a, b) = (trace(&store, "a"), trace(&store, "b"));
        let first = tool(&a, 1);
        drop(tool(&b, 2));
        drop(tool(first.context(), 3));
        drop(first);
        assert_eq!(names(store.session(None, "s")), ["execute_tool 1", "execute_tool 2", "execute_tool 3"]);
        assert_eq!(names(store.session(Some("a"), "s")), ["execute_tool 1", "execute_tool 3"]);
        assert!(store.session(None, "other").is_empty());
    }

    #[test]
    fn the_call_of_a_model_is_found_before_the_run_of_its_agent() {
        let store = TraceStore::default();
        let trace = trace(&store, "a");
        let agent = trace.start(SpanOperation::Agent, "dice");
        let mut call = agent.context().start(SpanOperation::Model, "");
        call.record(|data| data.set("gcp.vertex.agent.event_id", "e1"));
        drop(call);
        ["e1", "e2"].iter().for_each(|id| agent.context().add_event(id));
        drop(agent);
        let found = |app, event| store.event(app, event).map(|span| span.name.to_string());
        assert_eq!(found(None, "e1").as_deref(), Some("call_llm"));
        assert_eq!(found(Some("a"), "e2").as_deref(), Some("invoke_agent dice"));
        assert_eq!((found(None, "e3"), found(Some("b"), "e1")), (None, None));
    }

    #[test]
    fn of_more_than_10_000_spans_the_oldest_are_dropped() {
        let store = TraceStore::default();
        let trace = trace(&store, "a");
        for number in 0..10_002 {
            let mut span = tool(&trace, number);
            span.record(|data| data.set("gcp.vertex.agent.event_id", number.to_string()));
        }
        let kept = names(store.session(None, "s"));
        assert_eq!((kept.len(), &*kept[0]), (10_000, "execute_tool 2"));
        assert!(store.event(None, "1").is_none() && store.event(None, "2").is_some());
    }

    #[test]
    fn of_more_than_64_mib_the_oldest_are_dropped() {
        let store = TraceStore::default();
        let trace = trace(&store, "a");
        for number in 0..5 {
            let mut span = trace.start(SpanOperation::Model, "");
            span.record(|data| data.set("gcp.vertex.agent.event_id", number.to_string()));
            let system_instructions = vec!["x".repeat(20 << 20)];
            span.set_request(&Arc::new(LlmRequest { system_instructions, ..LlmRequest::default() }));
        }
        let kept: Vec<_> = (0..5).filter(|number| store.event(None, &number.to_string()).is_some()).collect();
        assert_eq!(kept, [2, 3, 4]);
        assert_eq!(store.session(None, "s").len(), 3);
    }
}
