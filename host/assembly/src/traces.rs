//! A bounded store of spans in memory, for the developer UI.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{SPAN_EVENT_ID, SPAN_EVENT_IDS, SpanData, SpanExporter};

/// Most spans that are kept.
const MAX_SPANS: usize = 10_000;

/// Most bytes that the kept spans take.
const MAX_BYTES: usize = 64 << 20;

/// The newest spans of all runs. Cheap to clone; clones share them. Of more than 10,000 spans or 64 MiB the oldest are
/// dropped.
#[derive(Clone, Default)]
pub struct TraceStore(Arc<Mutex<Spans>>);

#[derive(Default)]
struct Spans {
    /// In the order in which they ended.
    spans: VecDeque<Arc<SpanData>>,
    bytes: usize,
}

impl TraceStore {
    /// Returns the spans of the sessions with this id, in the order in which they began; of one app if it is named.
    pub fn session(&self, app: Option<&str>, session: &str) -> Vec<Arc<SpanData>> {
        let mut spans = self.select(app, |span| &*span.session.id == session);
        spans.sort_by_key(|span| span.start);
        spans
    }

    /// Returns the span that led to an event: the call of a model, or else the run of its agent; of one app if it is
    /// named.
    pub fn event(&self, app: Option<&str>, event: &str) -> Option<Arc<SpanData>> {
        let is_result = |span: &SpanData| span.attributes.get(SPAN_EVENT_ID).is_some_and(|id| id == event);
        let is_part = |span: &SpanData| {
            let ids = span.attributes.get(SPAN_EVENT_IDS).and_then(|ids| ids.as_array());
            ids.is_some_and(|ids| ids.iter().any(|id| id == event))
        };
        self.select(app, is_result).pop().or_else(|| self.select(app, is_part).pop())
    }

    fn select(&self, app: Option<&str>, is_selected: impl Fn(&SpanData) -> bool) -> Vec<Arc<SpanData>> {
        let store = self.0.lock_unpoisoned();
        let of_app = store.spans.iter().filter(|span| app.is_none_or(|app| &*span.session.app == app));
        of_app.filter(|span| is_selected(span)).cloned().collect()
    }
}

impl SpanExporter for TraceStore {
    fn export(&self, span: SpanData) {
        let mut store = self.0.lock_unpoisoned();
        store.bytes += span.size();
        store.spans.push_back(Arc::new(span));
        while store.spans.len() > MAX_SPANS || store.bytes > MAX_BYTES {
            let Some(oldest) = store.spans.pop_front() else { return };
            store.bytes = store.bytes.saturating_sub(oldest.size());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use hatchery_core::SessionKey;
    use serde_json::json;

    use super::*;

    fn span(number: u64, app: &str, attributes: serde_json::Value) -> SpanData {
        SpanData {
            name: number.to_string(),
            trace_id: 1,
            span_id: number,
            parent_span_id: None,
            start: SystemTime::UNIX_EPOCH + Duration::from_secs(100_000 - number),
            end: SystemTime::UNIX_EPOCH,
            session: SessionKey::new(app, "ada", "s"),
            attributes: attributes.as_object().cloned().unwrap_or_default(),
        }
    }

    fn ids(spans: Vec<Arc<SpanData>>) -> Vec<u64> {
        spans.iter().map(|span| span.span_id).collect()
    }

    #[test]
    fn spans_are_found_by_session_in_the_order_of_their_beginning() {
        let store = TraceStore::default();
        for (number, app) in [(1, "a"), (2, "b"), (3, "a")] {
            store.export(span(number, app, json!({})));
        }
        assert_eq!(ids(store.session(None, "s")), [3, 2, 1]);
        assert_eq!(ids(store.session(Some("a"), "s")), [3, 1]);
        assert_eq!(ids(store.session(None, "other")), Vec::<u64>::new());
    }

    #[test]
    fn the_call_of_a_model_is_found_before_the_run_of_its_agent() {
        let store = TraceStore::default();
        store.export(span(1, "a", json!({SPAN_EVENT_ID: "e1"})));
        store.export(span(2, "a", json!({SPAN_EVENT_IDS: ["e1", "e2"]})));
        let found = |app, event| store.event(app, event).map(|span| span.span_id);
        assert_eq!((found(None, "e1"), found(Some("a"), "e2"), found(None, "e3")), (Some(1), Some(2), None));
        assert_eq!(found(Some("b"), "e1"), None);
    }

    #[test]
    fn the_oldest_spans_are_dropped() {
        let store = TraceStore::default();
        for number in 0..10_002 {
            store.export(span(number, "a", json!({})));
        }
        let kept = ids(store.session(None, "s"));
        assert_eq!((kept.len(), kept[kept.len() - 1]), (10_000, 2));

        let store = TraceStore::default();
        for number in 0..5 {
            store.export(span(number, "a", json!({"text": "x".repeat(20 << 20)})));
        }
        assert_eq!(ids(store.session(None, "s")), [4, 3, 2]);
    }
}
