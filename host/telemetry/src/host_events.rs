//! A bounded log of the events of a host, such as loaded components, which clients follow.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use hatchery_core::sync::MutexExt;
use hatchery_core::{SpanData, SpanExporter, SpanOperation, Timestamp, TraceParent};
use serde::Serialize;
use tokio::sync::watch;

/// Maximum number of stored events.
const MAX_EVENTS: usize = 1000;

/// The newest events of a host. Cheap to clone; clones share them. Of more than 1,000 the oldest are dropped.
#[derive(Clone)]
pub struct HostEvents(Arc<Inner>);

struct Inner {
    log: Mutex<Log>,
    /// The id of the newest event.
    newest: watch::Sender<u64>,
}

struct Log {
    events: VecDeque<Arc<HostEvent>>,
    next: u64,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostEvent {
    /// Increases with each event, also over restarts of the host.
    pub id: u64,
    pub time: Timestamp,
    #[serde(flatten)]
    pub kind: HostEventKind,
}

/// The kind of an event, with its data.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum HostEventKind {
    /// A file was found or has changed, and is being loaded.
    FileLoading {
        path: String,
        name: String,
    },
    FileLoaded {
        path: String,
        name: String,
    },
    /// A file cannot be used, or another one has its name.
    FileRejected {
        path: String,
        name: String,
        reason: String,
        previous_serves: bool,
    },
    /// A file was removed.
    FileRemoved {
        path: String,
        name: String,
    },
    /// A new component serves.
    ComponentAdded {
        name: String,
        sha256: String,
    },
    /// A component serves with new code.
    ComponentReplaced {
        name: String,
        from: String,
        to: String,
    },
    /// A component was removed.
    ComponentRemoved {
        name: String,
        sha256: String,
    },
    /// The last run with a replaced revision has ended.
    RevisionDrained {
        name: String,
        sha256: String,
    },
    /// A run has ended or waits.
    RunEnded {
        app: String,
        user: String,
        session: String,
        run: String,
        seconds: f64,
        /// The stable code of its failure.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A call into a component has failed: by its code, a limit or a missing grant.
    CallFailed {
        component: String,
        app: String,
        user: String,
        session: String,
        run: String,
        error: String,
        message: String,
    },
}

/// The events after an id.
#[derive(Debug, Default, PartialEq)]
pub struct HostEventBatch {
    /// True if some of them are no longer stored.
    pub has_gap: bool,
    pub events: Vec<Arc<HostEvent>>,
}

impl Default for HostEvents {
    fn default() -> Self {
        // Ids are larger than the ids of the previous process, unless it had more than one in each microsecond.
        let first = u64::try_from(Timestamp::now().as_micros()).unwrap_or_default().max(1);
        let log = Mutex::new(Log { events: VecDeque::new(), next: first });
        Self(Arc::new(Inner { log, newest: watch::Sender::new(first - 1) }))
    }
}

impl HostEvents {
    /// Adds an event.
    pub fn add(&self, kind: HostEventKind) {
        let mut log = self.0.log.lock_unpoisoned();
        let id = log.next;
        log.next += 1;
        log.events.push_back(Arc::new(HostEvent { id, time: Timestamp::now(), kind }));
        if log.events.len() > MAX_EVENTS {
            log.events.pop_front();
        }
        // Within the lock, so that the ids arrive in order.
        self.0.newest.send_replace(id);
    }

    /// Returns a receiver of the id of the newest event.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.newest.subscribe()
    }

    /// Returns the stored events after the event with this id; all of them if it is 0.
    pub fn after(&self, id: u64) -> HostEventBatch {
        let log = self.0.log.lock_unpoisoned();
        let oldest = log.events.front().map_or(log.next, |event| event.id);
        let events = log.events.iter().filter(|event| event.id > id).cloned().collect();
        HostEventBatch { has_gap: id != 0 && id.saturating_add(1) < oldest, events }
    }
}

impl SpanExporter for HostEvents {
    fn export(&self, span: &Arc<SpanData>) {
        let (session, run) = (&span.trace.session, &span.trace.invocation_id);
        let [app, user, id] = [&session.app, &session.user, &session.id].map(|part| part.to_string());
        match (span.operation, &span.error) {
            (SpanOperation::Run, error) => self.add(HostEventKind::RunEnded {
                app,
                user,
                session: id,
                run: run.clone(),
                seconds: span.duration.as_secs_f64(),
                error: error.as_ref().map(|error| error.code.to_string()),
                message: error.as_ref().map(|error| error.message.to_string()),
            }),
            (SpanOperation::Guest, Some(error)) => self.add(HostEventKind::CallFailed {
                component: span.get("hatchery.component").and_then(|name| name.as_str()).unwrap_or_default().to_owned(),
                app,
                user,
                session: id,
                run: run.clone(),
                error: error.code.to_string(),
                message: error.message.to_string(),
            }),
            (
                SpanOperation::Agent
                | SpanOperation::Model
                | SpanOperation::CodeModel
                | SpanOperation::ModelAttempt
                | SpanOperation::Tool
                | SpanOperation::Guest
                | SpanOperation::Http,
                _,
            ) => {}
        }
    }

    fn captures_content(&self) -> bool {
        false
    }

    /// Always false: the events are only read on this host.
    fn is_sampled(&self, _: u128, _: Option<&TraceParent>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::{RunError, SessionKey, SpanContext};

    use super::*;

    fn loaded(name: &str) -> HostEventKind {
        HostEventKind::FileLoaded { path: format!("{name}.wasm"), name: name.into() }
    }

    fn names(update: &HostEventBatch) -> Vec<String> {
        let name = |event: &Arc<HostEvent>| match &event.kind {
            HostEventKind::FileLoaded { name, .. } => name.clone(),
            other => format!("{other:?}"),
        };
        update.events.iter().map(name).collect()
    }

    #[test]
    fn the_log_is_read_from_any_place_and_reports_gaps() {
        let log = HostEvents::default();
        assert_eq!(log.after(0), HostEventBatch::default());
        (0..3).for_each(|number| log.add(loaded(&number.to_string())));
        let all = log.after(0);
        assert_eq!((names(&all), all.has_gap), (vec!["0".into(), "1".into(), "2".into()], false));
        let first = all.events[0].id;
        assert_eq!(names(&log.after(first + 1)), ["2"]);
        for last in [first + 2, u64::MAX] {
            assert_eq!(log.after(last), HostEventBatch::default());
        }
        (3..1002).for_each(|number| log.add(loaded(&number.to_string())));
        let later = log.after(first);
        assert!(later.has_gap && names(&later)[0] == "2" && later.events.len() == 1000);
        assert!(!log.after(first + 1).has_gap, "the one after it is the oldest that is kept");
    }

    #[tokio::test]
    async fn a_follower_is_told_of_the_newest() {
        let log = HostEvents::default();
        let mut newest = log.subscribe();
        newest.mark_unchanged();
        log.add(loaded("dice"));
        newest.changed().await.unwrap();
        assert_eq!(*newest.borrow(), log.after(0).events[0].id);
    }

    #[test]
    fn ends_of_runs_and_failed_calls_of_components_happen() {
        let log = HostEvents::default();
        let trace = SpanContext::new(Arc::new(log.clone()), SessionKey::new("dice", "ada", "s"), "e-1", None);
        let mut run = trace.start(SpanOperation::Run, "");
        run.context().start(SpanOperation::Guest, "dice").finish();
        let mut call = run.context().start(SpanOperation::Guest, "dice");
        call.record(|data| data.set("hatchery.component", "dice"));
        call.fail("COMPONENT_CPU", || "it exceeded its limit".into());
        drop(call);
        run.set_error(&RunError::Cancelled);
        drop(run);
        let json = serde_json::to_value(log.after(0).events).unwrap();
        let (call, run) = (&json[0], &json[1]);
        assert_eq!(
            (&call["kind"], &call["component"], &call["error"]),
            (&"callFailed".into(), &"dice".into(), &"COMPONENT_CPU".into())
        );
        assert_eq!(
            (&run["kind"], &run["run"], &run["error"]),
            (&"runEnded".into(), &"e-1".into(), &"CANCELLED".into())
        );
        assert!(json[2].is_null());
    }
}
