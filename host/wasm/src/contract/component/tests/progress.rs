//! The run that a call belongs to: its metadata, and progress that its clients see.

use std::sync::Mutex;

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Event, EventSink, RunConfig, RunError, StreamingMode, TOOL_PROGRESS_KEY, ToolProgress,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::*;
use crate::contract::progress::with_progress;
use crate::contract::sub_agent_relay::tests::call_with;

/// Keeps the reports in events, up to a number of events, and fails afterwards.
struct Recorder {
    reports: Mutex<Vec<Value>>,
    max: usize,
}

impl Recorder {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { reports: Mutex::default(), max })
    }

    /// Returns the amounts that are reported.
    fn progress(&self) -> Vec<f64> {
        self.reports.lock().unwrap().iter().filter_map(|report| report["progress"].as_f64()).collect()
    }
}

#[async_trait]
impl EventSink for Recorder {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        let mut reports = self.reports.lock().unwrap();
        if reports.len() == self.max {
            return Err(RunError::Stopped);
        }
        reports.push(event.custom_metadata.as_ref().unwrap()[TOOL_PROGRESS_KEY].clone());
        Ok(event)
    }
}

/// Returns the context of the function call `call-1` in a run with streaming.
fn streaming_call(sink: &Arc<Recorder>) -> CallContext {
    let config = RunConfig { streaming_mode: StreamingMode::On, ..RunConfig::default() };
    call_with(config).for_call(Some("call-1")).with_progress_sink(sink.clone())
}

/// Reports the numbers from 1 to 300 in three bursts, 60 ms apart.
async fn count(origin: CallOrigin) {
    let CallOrigin::Tool(_, reporter) = origin else { panic!("not a call of a tool") };
    for number in 1..=300_u32 {
        reporter.report(ToolProgress { progress: f64::from(number), ..ToolProgress::default() });
        if number % 100 == 0 {
            sleep(Duration::from_millis(60)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_newest_report_of_each_interval_is_sent_and_the_last_without_delay() {
    let (sink, start) = (Recorder::new(usize::MAX), Instant::now());
    with_progress(&streaming_call(&sink), "count", count).await;
    assert_eq!(sink.progress(), [100.0, 200.0, 300.0]);
    assert!(start.elapsed() < Duration::from_millis(190), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_as_usual_if_its_progress_cannot_be_sent() {
    let (sink, start) = (Recorder::new(1), Instant::now());
    with_progress(&streaming_call(&sink), "count", count).await;
    assert_eq!(sink.progress(), [100.0]);
    assert!(start.elapsed() >= Duration::from_millis(180), "{:?}", start.elapsed());
}

/// The arguments of `report-progress`.
type Report = (f64, Option<f64>, Option<String>);

/// Reports progress as a guest does. Returns the codes of the errors.
async fn report_from(origin: CallOrigin, reports: Vec<Report>) -> Vec<String> {
    let made = described("(component)", Limits::default()).await.unwrap();
    let reporting = made.sandbox.run(origin, |mut store, _| {
        Box::pin(async move {
            let mut codes = Vec::new();
            for (progress, total, message) in reports {
                let result = session::Host::report_progress(store.data_mut(), progress, total, message);
                codes.extend(result.err().map(|error| error.code));
            }
            Ok(codes)
        })
    });
    reporting.await.unwrap()
}

#[tokio::test]
async fn a_long_message_about_progress_is_cut_and_its_numbers_are_finite() {
    let sink = Recorder::new(usize::MAX);
    let reports = vec![
        (1.5, Some(4.0), Some("ä".repeat(1000))),
        (f64::NAN, None, None),
        (f64::INFINITY, None, None),
        (1.0, Some(f64::NEG_INFINITY), None),
    ];
    let errors = with_progress(&streaming_call(&sink), "count", |origin| report_from(origin, reports)).await;
    assert_eq!(errors, ["BAD_INPUT", "BAD_INPUT", "BAD_INPUT"]);
    let message = format!("{}…", "ä".repeat(250));
    let expected = json!({"progress": 1.5, "total": 4.0, "message": message, "name": "count", "id": "call-1"});
    assert_eq!(*sink.reports.lock().unwrap(), [expected]);
}

#[tokio::test]
async fn only_a_tool_call_reports_progress() {
    let cx = streaming_call(&Recorder::new(0));
    assert_eq!(report_from(CallOrigin::Call(cx), vec![(1.0, None, None)]).await, ["NOT_A_TOOL"]);
    assert_eq!(report_from(CallOrigin::Model(None), vec![(1.0, None, None)]).await, ["NO_SESSION"]);
}

#[tokio::test]
async fn the_metadata_of_a_run_has_no_reserved_keys() {
    let metadata = json!({"trace": {"id": 7}, "hatchery:proof": "x", "a2a:task_id": "t"});
    for (custom, expected) in [(Some(metadata), r#"{"trace":{"id":7}}"#), (None, "{}")] {
        let custom_metadata = custom.and_then(|metadata| metadata.as_object().cloned()).map(Arc::new);
        let cx = call_with(RunConfig { custom_metadata, ..RunConfig::default() });
        let made = described("(component)", Limits::default()).await.unwrap();
        let read = made.sandbox.run(CallOrigin::Call(cx), |mut store, _| {
            Box::pin(async move { Ok(session::Host::run_metadata(store.data_mut()).map_err(|error| error.code)) })
        });
        assert_eq!(read.await.unwrap().as_deref(), Ok(expected));
    }
}
