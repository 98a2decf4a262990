//! Time to update a prompt with one new event: at turn 8, at turn 800, and at turn 800 of a session with summaries.
//!
//! `cargo bench -p hatchery-engine --bench contents`. After the criterion report it prints each mean with its ratio to
//! turn 8.
#![allow(clippy::expect_used, missing_docs)]

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group};
use hatchery_core::{
    Compaction, Content, Event, EventActions, EventData, FunctionCall, FunctionResponse, PartData, ResponseGrouping,
    Timestamp,
};
use hatchery_engine::contents::PromptView;
use imbl::Vector;

/// The number of events that are added to a history before it is reset, so that "turn 800" stays turn 800.
const EVENTS_PER_HISTORY: usize = 32;
/// The number of turns per summary.
const TURNS_PER_SUMMARY: usize = 10;

/// A turn with one tool call.
fn turn(number: usize) -> [Arc<Event>; 4] {
    let id = Some(format!("call-{number}"));
    let call = FunctionCall { id: id.clone(), name: "add".into(), ..FunctionCall::default() };
    let response = FunctionResponse { id, name: "add".into(), ..FunctionResponse::default() };
    [
        event("user", Content::user("What is one and two?")),
        event("adder", Content::new("model", vec![PartData::FunctionCall(call).into()])),
        event("adder", Content::new("user", vec![PartData::FunctionResponse(response).into()])),
        event("adder", Content::model("The sum is three.")),
    ]
}

fn event(author: &str, content: Content) -> Arc<Event> {
    Event::new(EventData { author: author.into(), content: Some(Arc::new(content)), ..EventData::default() })
}

fn summary(start: Timestamp, end: Timestamp) -> Arc<Event> {
    let compaction = Compaction {
        start_timestamp: start,
        end_timestamp: end,
        compacted_content: Content::model("The user asked for sums."),
        ..Compaction::default()
    };
    let actions = EventActions { compaction: Some(Box::new(compaction)), ..EventActions::default() };
    Event::new(EventData { author: "user".into(), actions, ..EventData::default() })
}

fn history(turns: usize, summaries: bool) -> Vector<Arc<Event>> {
    let mut events: Vector<Arc<Event>> = Vector::new();
    let mut begin = Timestamp::now();
    for number in 0..turns {
        events.extend(turn(number));
        if summaries && number % TURNS_PER_SUMMARY == TURNS_PER_SUMMARY - 1 {
            let end = Timestamp::now();
            events.push_back(summary(begin, end));
            begin = Timestamp::now();
        }
    }
    events
}

/// Means by label, for the table at the end.
static MEANS: Mutex<Vec<(String, f64)>> = Mutex::new(Vec::new());

fn note(label: &str, total: Duration, count: u64) {
    let mut means = MEANS.lock().expect("no bench panics");
    means.retain(|(known, _)| known != label);
    means.push((label.into(), total.as_secs_f64() * 1e9 / count as f64));
}

fn new_events(c: &mut Criterion) {
    for (label, turns, summaries) in
        [("turn 8", 8, false), ("turn 800", 800, false), ("turn 800 with summaries", 800, true)]
    {
        let events = history(turns, summaries);
        let mut view = PromptView::new("adder".into(), None, ResponseGrouping::PerCall);
        view.read(&events);
        let new: Vec<_> = (0..EVENTS_PER_HISTORY / 4).flat_map(|number| turn(turns + number)).collect();
        c.bench_function(&format!("one new event at {label}"), |bencher| {
            bencher.iter_custom(|count| {
                let mut total = Duration::ZERO;
                let mut left = count as usize;
                while left > 0 {
                    let (mut events, mut view) = (events.clone(), view.clone());
                    let now = left.min(EVENTS_PER_HISTORY);
                    let begin = Instant::now();
                    for event in new.iter().take(now) {
                        events.push_back(event.clone());
                        view.read(&events);
                        black_box(view.contents());
                    }
                    total += begin.elapsed();
                    left -= now;
                }
                note(label, total, count);
                total
            });
        });
    }
}

/// Time to update a prompt with a new summary, which rebuilds the view.
fn new_summaries(c: &mut Criterion) {
    for (label, turns) in [("new summary at turn 8", 8), ("new summary at turn 800", 800)] {
        let mut events = history(turns, true);
        let mut view = PromptView::new("adder".into(), None, ResponseGrouping::PerCall);
        view.read(&events);
        let now = Timestamp::now();
        events.push_back(summary(now, now));
        c.bench_function(label, |bencher| {
            bencher.iter_custom(|count| {
                let mut total = Duration::ZERO;
                for _ in 0..count {
                    let mut view = view.clone();
                    let begin = Instant::now();
                    view.read(&events);
                    black_box(view.contents());
                    total += begin.elapsed();
                }
                note(label, total, count);
                total
            });
        });
    }
}

fn table() {
    let means = MEANS.lock().expect("no bench panics");
    let base = means.first().map_or(1.0, |(_, nanos)| *nanos);
    println!("\n{:<34} {:>10} {:>8}", "mean of the last sample", "ns", "ratio");
    for (label, nanos) in means.iter() {
        println!("{label:<34} {nanos:>10.1} {:>8.2}", nanos / base);
    }
}

criterion_group!(benches, new_events, new_summaries);

fn main() {
    benches();
    Criterion::default().configure_from_args().final_summary();
    table();
}
