//! Tests of the selection of events to summarize, as tables.
//!
//! An event is written `kind`, `invocation/kind` or `kind@time`. The default timestamp is the position in the log,
//! counted from 1. The kinds are: `C1-3` a summary, `call:x` a call, `slow:x` a call of a long-running tool, `ans:x` a
//! response of the agent, `got:x` a response of the user, `asks:x` a response that requests a confirmation, `back:x` a
//! rewind to before the invocation `x`. Everything else is a text.

use std::num::NonZeroU32;
use std::sync::Arc;

use hatchery_core::{
    Compaction, Content, Event, EventActions, EventData, FunctionCall, FunctionResponse, Part, PartData, Timestamp,
    UsageMetadata,
};
use imbl::Vector;
use proptest::prelude::*;
use serde_json::json;

use super::window::{CompactionPlan, plan_sliding, plan_tail};
use super::{HistoryItem, PromptSize, SlidingWindow, TailRetention, effective_history};

fn parse_event(index: usize, word: &str) -> Arc<Event> {
    let (word, time) = match word.split_once('@') {
        Some((word, time)) => (word, time.parse().unwrap()),
        None => (word, i64::try_from(index + 1).unwrap()),
    };
    let (invocation, what) = word.split_once('/').unwrap_or(("", word));
    let mut data = EventData {
        id: word.into(),
        invocation_id: invocation.into(),
        author: "agent".into(),
        timestamp: Timestamp::from_micros(time),
        ..EventData::default()
    };
    if let Some((start, end)) = what.strip_prefix('C').and_then(|range| range.split_once('-')) {
        data.actions.compaction = Some(Box::new(Compaction {
            start_timestamp: Timestamp::from_micros(start.parse().unwrap()),
            end_timestamp: Timestamp::from_micros(end.parse().unwrap()),
            compacted_content: Content::model(what),
            ..Compaction::default()
        }));
        return Event::new(data);
    }
    let (kind, id) = what.split_once(':').unwrap_or(("says", what));
    if kind == "back" {
        data.author = "user".into();
        data.actions.extra.insert("rewindBeforeInvocationId".into(), json!(id));
        return Event::new(data);
    }
    let part: Part = match kind {
        "call" | "slow" => {
            PartData::FunctionCall(FunctionCall { id: Some(id.into()), ..FunctionCall::default() }).into()
        }
        "ans" | "got" | "asks" => {
            PartData::FunctionResponse(FunctionResponse { id: Some(id.into()), ..FunctionResponse::default() }).into()
        }
        _ => Part::text(what),
    };
    if kind == "slow" {
        data.long_running_tool_ids.push(id.into());
    }
    if kind == "got" {
        data.author = "user".into();
    }
    if kind == "asks" {
        data.actions.requested_tool_confirmations.insert(id.into(), json!({}));
    }
    data.content = Some(Arc::new(Content::new("model", vec![part])));
    Event::new(data)
}

fn parse_log(words: &str) -> Vector<Arc<Event>> {
    words.split_whitespace().enumerate().map(|(index, word)| parse_event(index, word)).collect()
}

/// Formats the events of a plan.
fn words(plan: Option<CompactionPlan>) -> String {
    let word = |event: &Arc<Event>| {
        if event.author == "model" { event.content.as_ref().unwrap().text() } else { event.id.clone() }
    };
    plan.map(|plan| plan.events.iter().map(word).collect::<Vec<_>>().join(" ")).unwrap_or_default()
}

fn sliding_plan(interval: u32, overlap: u32, events: &str) -> String {
    words(plan_sliding(&parse_log(events), SlidingWindow { interval: NonZeroU32::new(interval).unwrap(), overlap }))
}

fn tail_plan(retention: usize, events: &str) -> String {
    words(plan_tail(&parse_log(events), TailRetention { token_threshold: 1, retention }))
}

#[test]
fn the_sliding_window_selects_invocations() {
    let cases = [
        (2, 1, "a/1", ""),
        (2, 0, "a/1 b/2 C1-2 c/4", ""),
        (2, 1, "a/1 b/2 c/3 d/4", "a/1 b/2 c/3 d/4"),
        (2, 0, "a/1 b/2 c/3 d/4", "a/1 b/2 c/3 d/4"),
        (2, 1, "a/1 b/2 C1-2 c/4 d/5 e/6", "b/2 c/4 d/5 e/6"),
        (2, 0, "a/1 b/2 C1-2 c/4 d/5 e/6", "c/4 d/5 e/6"),
        (1, 1, "a/1 a/2 C1-2 b/4 b/5", "a/1 a/2 b/4 b/5"),
        (2, 0, "a/1 a/2 a/3", ""),
        (1, 1, "a/1 b/2 c/3 C1-3 d/5", "c/3 d/5"),
        (1, 9, "a/1 b/2 C1-2 c/4", "a/1 b/2 c/4"),
    ];
    for (interval, overlap, events, expected) in cases {
        assert_eq!(sliding_plan(interval, overlap, events), expected, "({interval},{overlap}) {events}");
    }
}

#[test]
fn events_that_a_rewind_annuls_are_not_summarized() {
    assert_eq!(sliding_plan(2, 0, "a/1 b/2 back:b c/4"), "a/1 c/4");
    assert_eq!(tail_plan(1, "a/1 b/2 back:b c/4 d/5"), "a/1 c/4");
}

#[test]
fn a_window_without_new_compactable_events_is_not_summarized() {
    assert_eq!(sliding_plan(1, 1, "a/1 C1-1 b/call:x"), "");
    assert_eq!(sliding_plan(1, 0, "a/1 a/slow:x a/ans:x a/4 C1-1 b/6 b/7"), "a/4 b/6 b/7");
    assert_eq!(sliding_plan(1, 1, "a/1 b/2 b/slow:x C1-2 c/5"), "c/5");
}

#[test]
fn the_tail_is_kept_and_the_previous_summary_is_included() {
    let cases = [
        (2, "1 2 3", "1"),
        (5, "1 2 3", ""),
        (3, "1 2 3", ""),
        (1, "1 2 3 C1-2@4 5 6", "C1-2 3 5"),
        (3, "1 2 3 4 C1-1@5 6 7 C1-3@8 9", "C1-3 4"),
        (3, "1 2 C1-2 4 5 6", ""),
    ];
    for (retention, events, expected) in cases {
        assert_eq!(tail_plan(retention, events), expected, "{retention} of {events}");
    }
}

#[test]
fn a_call_and_its_responses_are_never_separated() {
    let cases = [
        (1, "1 call:x ans:x", "1"),
        (1, "1 call:x ans:x 4", "1 call:x ans:x"),
        (1, "1 call:x call:y ans:x ans:y 6", "1 call:x call:y ans:x ans:y"),
        (2, "1 call:x call:y ans:x ans:y 6", "1"),
        (1, "call:x 2 3 ans:x", ""),
        (1, "1 call:x ans:x 4 5 got:x 7", "1 call:x ans:x 4 5 got:x"),
        (2, "1 call:x ans:x 4 5 got:x 7", "1"),
    ];
    for (retention, events, expected) in cases {
        assert_eq!(tail_plan(retention, events), expected, "{retention} of {events}");
    }
}

#[test]
fn pending_calls_are_kept() {
    let cases = [
        ("1 call:x 3 4 5", "1"),
        ("C0-1 call:x 3 4 5", "3 4"),
        ("call:x 2 3 C2-3@4 5 6", "C2-3 5"),
        ("1 slow:x ans:x 4 5", "1"),
        ("1 slow:x ans:x got:x 5", "1 slow:x ans:x got:x"),
        ("1 call:x asks:x 4 5", "1"),
        ("1 call:x asks:x 4 ans:x 6", "1 call:x asks:x 4 ans:x"),
        ("call:x call:y ans:y 4 5", "call:y ans:y 4"),
        ("ans:x 2 3", "2"),
    ];
    for (events, expected) in cases {
        assert_eq!(tail_plan(1, events), expected, "{events}");
    }
}

#[test]
fn events_with_equal_timestamps_are_not_separated() {
    let cases = [
        (1, "1@1 2@2 3@2", "1"),
        (1, "1@1 2@1 3@1", ""),
        (1, "1@1 2@5 3@3 4@6", "1 2 3"),
        (2, "1@1 2@5 3@3 4@6", "1"),
        (1, "call:x@1 2@1 3@2 4@3", "3"),
    ];
    for (retention, events, expected) in cases {
        assert_eq!(tail_plan(retention, events), expected, "{retention} of {events}");
    }
}

#[test]
fn calls_and_equal_timestamps_together_limit_a_range() {
    let cases = [
        // The call cannot be split, and the event of its time stays with it.
        (1, "1@1 2@2 call:x@2 3@3 ans:x@4", "1"),
        (1, "1@1 call:x@2 2@3 3@3 ans:x@3", "1"),
        (2, "1@1 call:x@1 2@2 ans:x@2 3@3 4@3 5@4", "1 call:x 2 ans:x"),
        (1, "call:x@1 call:y@2 ans:x@2 3@3 ans:y@4", ""),
        // Nothing can be covered until a later event has another time.
        (1, "1@1 2@1 3@1 4@1 5@1 6@1", ""),
        (1, "1@1 2@1 3@1 4@1 5@1 6@2", "1 2 3 4 5"),
    ];
    for (retention, events, expected) in cases {
        assert_eq!(tail_plan(retention, events), expected, "{retention} of {events}");
    }
}

#[test]
fn a_plan_detects_events_that_it_would_hide() {
    let plan = plan_tail(&parse_log("1@1 2@5 3@9"), TailRetention { token_threshold: 1, retention: 1 }).unwrap();
    assert!(!plan.hides_other_events(&parse_log("1@1 2@5 3@9")));
    assert!(plan.hides_other_events(&parse_log("1@1 2@5 3@9 late@4")));
    assert!(!plan.hides_other_events(&parse_log("1@1 2@5 3@9 late@4 C2-4")), "another summary covers it");
}

fn size_of(events: &str) -> PromptSize {
    let mut size = PromptSize::default();
    size.read(&parse_log(events));
    size
}

fn with_usage(word: &str, tokens: u64) -> Arc<Event> {
    let usage = UsageMetadata { prompt_token_count: Some(tokens), ..UsageMetadata::default() };
    Event::new(EventData { id: word.into(), usage_metadata: Some(Box::new(usage)), ..EventData::default() })
}

#[test]
fn without_a_report_the_size_is_estimated_as_a_quarter_of_the_bytes() {
    let size = size_of("sixsix seven77 seven78");
    assert!(size.is_over(4) && !size.is_over(5));
    let size = size_of("sixsix seven77 C1-2 seven78");
    assert!(size.is_over(1) && !size.is_over(2), "the summary and the remaining events");
}

#[test]
fn the_newest_report_replaces_the_estimate() {
    let mut events = parse_log("1 2");
    let mut size = PromptSize::default();
    for (tokens, is_over) in [(200, false), (400, true), (200, false)] {
        events.push_back(with_usage("a", tokens));
        size.read(&events);
        assert_eq!(size.is_over(300), is_over, "{tokens}");
    }
}

#[test]
fn a_report_for_a_prompt_before_the_newest_compaction_is_ignored() {
    let mut events = parse_log("1 2");
    let mut size = PromptSize::default();
    size.read(&events);
    size.record_sent_prompt();
    events.push_back(parse_event(2, "C1-2"));
    events.push_back(with_usage("late", 400));
    size.read(&events);
    assert!(!size.is_over(300));
    size.record_sent_prompt();
    events.push_back(with_usage("new", 400));
    size.read(&events);
    assert!(size.is_over(300));
}

fn word() -> impl Strategy<Value = String> {
    let id = (0..4u8).prop_map(|id| id.to_string());
    prop_oneof![
        3 => Just("says".to_owned()),
        2 => (prop_oneof![Just("call"), Just("slow")], id.clone()).prop_map(|(kind, id)| format!("{kind}:{id}")),
        3 => (prop_oneof![Just("ans"), Just("got"), Just("asks")], id).prop_map(|(kind, id)| format!("{kind}:{id}")),
    ]
}

proptest! {
    /// Compacts a growing log repeatedly.
    #[test]
    fn exactly_the_summarized_events_are_covered(
        steps in prop::collection::vec((word(), 0..3i64), 1..40),
        retention in 0..4usize,
    ) {
        let mut events = Vector::new();
        let mut time = 1;
        let mut summarized: Vec<String> = Vec::new();
        for (number, (word, passes)) in steps.iter().enumerate() {
            time += passes;
            let mut data = EventData { id: number.to_string(), author: "agent".into(), ..EventData::default() };
            let template = parse_event(0, word);
            data.content.clone_from(&template.content);
            data.author.clone_from(&template.author);
            data.long_running_tool_ids.clone_from(&template.long_running_tool_ids);
            data.actions = template.actions.clone();
            data.timestamp = Timestamp::from_micros(time);
            events.push_back(Event::new(data));
            let plan = plan_tail(&events, TailRetention { token_threshold: 1, retention });
            let Some(plan) = plan.filter(|plan| !plan.hides_other_events(&events)) else { continue };
            summarized.extend(plan.events.iter().map(|event| event.id.clone()));
            events.push_back(plan.compaction_event("e-1".into(), Content::model("summary")));
        }
        for item in effective_history(&events) {
            match item {
                HistoryItem::Covered(event) => prop_assert!(summarized.contains(&event.id), "{} is covered but not summarized", event.id),
                HistoryItem::Event(event) => prop_assert!(!summarized.contains(&event.id), "{} is visible although it is summarized", event.id),
                HistoryItem::Summary(_) | HistoryItem::Annulled(_) => {}
            }
        }
    }
}

#[test]
fn a_compaction_is_an_event_of_the_user_with_a_new_invocation() {
    let plan = plan_tail(&parse_log("1@3 2@5 3@9"), TailRetention { token_threshold: 1, retention: 1 }).unwrap();
    let event = plan.compaction_event("e-9".into(), Content::user("sum"));
    let expected = Compaction {
        start_timestamp: Timestamp::from_micros(3),
        end_timestamp: Timestamp::from_micros(5),
        compacted_content: Content::model("sum"),
        ..Compaction::default()
    };
    assert_eq!((event.author.as_str(), event.invocation_id.as_str(), event.content.is_none()), ("user", "e-9", true));
    let actions = EventActions { compaction: Some(Box::new(expected)), ..EventActions::default() };
    assert_eq!(event.actions, actions);
}

#[test]
fn an_event_with_a_time_in_the_future_stops_no_compaction() {
    let future = 4_000_000_000_000_000_i64;
    let log = |rest: &str| format!("1/a 2/b@{future} {rest}");
    assert_eq!(sliding_plan(2, 0, &log("3/c 4/d")), "1/a 3/c 4/d");
    assert_eq!(
        words(plan_tail(&parse_log(&log("3/c 4/d 5/e")), TailRetention { retention: 1, token_threshold: 0 })),
        "1/a 3/c 4/d"
    );
    let summary = format!("1/a 2/b C1-{future} 3/c 4/d");
    assert_eq!(sliding_plan(2, 0, &summary), "3/c 4/d", "nor a summary that ends there");
}
