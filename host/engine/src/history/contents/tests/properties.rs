//! Property tests over random histories.

use hatchery_core::REQUEST_CONFIRMATION;
use imbl::Vector;
use proptest::prelude::*;

use super::*;

/// A step of a random history.
#[derive(Debug, Clone)]
enum Step {
    User,
    Model,
    Other,
    Branch,
    Confirmation,
    Call(u8),
    /// One event with responses to these calls, as indices modulo the number of calls so far.
    Answer(Vec<u8>),
    /// The age of the start of the time range, and its length.
    Compaction(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::User),
        1 => Just(Step::Model),
        1 => Just(Step::Other),
        1 => Just(Step::Branch),
        1 => Just(Step::Confirmation),
        3 => (1..3u8).prop_map(Step::Call),
        4 => prop::collection::vec(any::<u8>(), 1..3).prop_map(Step::Answer),
        1 => (0..20u8, 0..20u8).prop_map(|(ago, length)| Step::Compaction(ago, length)),
    ]
}

/// Creates events from steps. The number of the step is the timestamp; every third step has the timestamp of the
/// previous one.
fn history(steps: &[Step]) -> Vec<Arc<Event>> {
    let mut ids: Vec<String> = Vec::new();
    let mut events = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let time = 1 + i64::try_from(number - usize::from(number % 3 == 2)).unwrap();
        let text = number.to_string();
        events.push(match step {
            Step::User => event_at(time, "user", with_oddities(number, Content::user(text))),
            Step::Model => event_at(time, ME, with_oddities(number, Content::model(text))),
            Step::Other => event_at(time, "other", Content::model(text)),
            Step::Branch => Event::new(EventData {
                author: ME.into(),
                branch: Some("elsewhere".into()),
                content: Some(Arc::new(Content::model(text))),
                timestamp: Timestamp::from_micros(time),
                ..EventData::default()
            }),
            Step::Confirmation => {
                let request = FunctionCall { name: REQUEST_CONFIRMATION.into(), ..FunctionCall::default() };
                event_at(time, ME, Content::new("model", vec![PartData::FunctionCall(request).into()]))
            }
            Step::Call(count) => {
                // Some calls have no id.
                let id = |part| if number % 5 == 0 { String::new() } else { format!("{number}.{part}") };
                let new: Vec<_> = (0..*count).map(id).collect();
                let parts = new.iter().map(|id| call_part(id)).collect();
                ids.extend(new);
                event_at(time, ME, Content::new("model", parts))
            }
            Step::Answer(which) => {
                let known = which.iter().filter_map(|which| ids.get(usize::from(*which) % ids.len().max(1)));
                let mut parts: Vec<_> = known.map(|id| answer_part(id, &text)).collect();
                if parts.is_empty() {
                    parts.push(answer_part("unknown", &text));
                }
                event_at(time, ME, Content::new("user", parts))
            }
            Step::Compaction(ago, length) => {
                compaction(time - i64::from(*ago), time - i64::from(*ago) + i64::from(*length))
            }
        });
    }
    events
}

/// Adds empty parts and an unusual role to some contents.
fn with_oddities(number: usize, content: Content) -> Content {
    let blank = [Part::text(""), Part::default(), Part::text("")].into_iter().take(number % 4);
    let role = [content.role, Some("system".into()), Some(String::new()), None].into_iter().nth(number % 4).flatten();
    Content { role, parts: blank.chain(content.parts).collect() }
}

/// Builds a view from all events at once.
fn build(grouping: ResponseGrouping, events: &Vector<Arc<Event>>) -> PromptView {
    let mut view = PromptView::new(ME.into(), Some("mine".into()), grouping);
    view.rebuild(events);
    view
}

fn grouping() -> impl Strategy<Value = ResponseGrouping> {
    prop_oneof![Just(ResponseGrouping::PerCall), Just(ResponseGrouping::Batched)]
}

proptest! {
    #[test]
    fn an_incremental_view_always_equals_a_view_built_at_once(
        steps in prop::collection::vec(step(), 0..40),
        grouping in grouping(),
    ) {
        let mut view = PromptView::new(ME.into(), Some("mine".into()), grouping);
        let mut events = Vector::new();
        for event in history(&steps) {
            events.push_back(event);
            view.read(&events);
            let expected = build(grouping, &events);
            prop_assert_eq!(view.contents(), expected.contents());
            prop_assert_eq!(view.current_turn(), expected.current_turn());
        }
    }

    #[test]
    fn calls_are_followed_by_all_their_responses_and_responses_are_nowhere_else(
        steps in prop::collection::vec(step(), 0..40),
        grouping in grouping(),
    ) {
        let contents = build(grouping, &history(&steps).into_iter().collect()).contents();
        let mut open: Vec<String> = Vec::new();
        for content in &contents {
            let answered: Vec<_> = content.function_responses().filter_map(|response| response.id.clone()).collect();
            let called: Vec<_> = content.function_calls().filter_map(|call| call.id.clone()).collect();
            if !answered.is_empty() {
                prop_assert_eq!(&answered, &std::mem::take(&mut open));
            } else if called.is_empty() || grouping == ResponseGrouping::PerCall {
                prop_assert!(open.is_empty(), "{:?} is not answered at {:?}", open, content);
            }
            open.extend(called);
        }
    }

    #[test]
    fn every_content_has_a_known_role_and_no_empty_parts(
        steps in prop::collection::vec(step(), 0..40),
        grouping in grouping(),
    ) {
        for content in &build(grouping, &history(&steps).into_iter().collect()).contents() {
            let calls = content.function_calls().next().is_some();
            let answers = content.function_responses().next().is_some();
            prop_assert!(content.role.as_deref() == Some("model") && !answers || content.role.as_deref() == Some("user") && !calls);
            prop_assert!(!content.parts.is_empty());
            prop_assert!(!content.parts.iter().any(|part| *part == Part::text("") || *part == Part::default()));
        }
    }

    #[test]
    fn covered_events_are_not_visible(steps in prop::collection::vec(step(), 0..40)) {
        let events = history(&steps);
        let contents = build(ResponseGrouping::PerCall, &events.iter().cloned().collect()).contents();
        let visible: Vec<_> = contents.iter().map(|content| brief(content)).collect();
        for (index, event) in events.iter().enumerate() {
            let covered = events[index..].iter().filter_map(|later| later.actions.compaction.as_ref()).any(|later| {
                (later.start_timestamp..=later.end_timestamp).contains(&event.timestamp)
            });
            let text = event.content.as_ref().map(|content| content.text()).unwrap_or_default();
            if covered && !text.is_empty() {
                let forms = [format!("u:{text}"), format!("m:{text}"), format!("u:For context:|[other] said: {text}")];
                prop_assert!(!forms.iter().any(|form| visible.contains(form)), "{} in {:?}", text, visible);
            }
            if covered && event.function_calls().any(|call| call.name != REQUEST_CONFIRMATION) {
                let ids: Vec<_> = event.function_calls().filter_map(|call| call.id.clone()).collect();
                let call = format!("call({})", ids.join(","));
                prop_assert!(ids.concat().is_empty() || !visible.contains(&call), "{} in {:?}", call, visible);
            }
        }
    }
}
