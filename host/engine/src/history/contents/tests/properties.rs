//! What holds for all histories.

use hatchery_core::REQUEST_CONFIRMATION;
use imbl::Vector;
use proptest::prelude::*;

use super::*;

/// What can happen next in a made-up history.
#[derive(Debug, Clone)]
enum Step {
    User,
    Model,
    Other,
    Branch,
    Question,
    Call(u8),
    /// Of the calls so far, these are answered in one event.
    Answer(Vec<u8>),
    /// From so long ago, for so long.
    Compaction(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::User),
        1 => Just(Step::Model),
        1 => Just(Step::Other),
        1 => Just(Step::Branch),
        1 => Just(Step::Question),
        3 => (1..3u8).prop_map(Step::Call),
        4 => prop::collection::vec(any::<u8>(), 1..3).prop_map(Step::Answer),
        1 => (0..20u8, 0..20u8).prop_map(|(ago, length)| Step::Compaction(ago, length)),
    ]
}

/// The step's number is the event's time; a clock that stands still every third step gives equal ones.
fn history(steps: &[Step]) -> Vec<Arc<Event>> {
    let mut ids: Vec<String> = Vec::new();
    let mut events = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let time = 1 + i64::try_from(number - usize::from(number % 3 == 2)).unwrap();
        let said = number.to_string();
        events.push(match step {
            Step::User => at(time, "user", odd(number, Content::user(said))),
            Step::Model => at(time, ME, odd(number, Content::model(said))),
            Step::Other => at(time, "other", Content::model(said)),
            Step::Branch => Event::new(EventData {
                author: ME.into(),
                branch: Some("elsewhere".into()),
                content: Some(Arc::new(Content::model(said))),
                timestamp: Timestamp::from_micros(time),
                ..EventData::default()
            }),
            Step::Question => {
                let question = FunctionCall { name: REQUEST_CONFIRMATION.into(), ..FunctionCall::default() };
                at(time, ME, Content::new("model", vec![PartData::FunctionCall(question).into()]))
            }
            Step::Call(count) => {
                // Some come without an id.
                let id = |part| if number % 5 == 0 { String::new() } else { format!("{number}.{part}") };
                let new: Vec<_> = (0..*count).map(id).collect();
                let parts = new.iter().map(|id| call_part(id)).collect();
                ids.extend(new);
                at(time, ME, Content::new("model", parts))
            }
            Step::Answer(which) => {
                let known = which.iter().filter_map(|which| ids.get(usize::from(*which) % ids.len().max(1)));
                let mut parts: Vec<_> = known.map(|id| answer_part(id, &said)).collect();
                if parts.is_empty() {
                    parts.push(answer_part("nobody's", &said));
                }
                at(time, ME, Content::new("user", parts))
            }
            Step::Compaction(ago, length) => {
                compaction(time - i64::from(*ago), time - i64::from(*ago) + i64::from(*length))
            }
        });
    }
    events
}

/// The content as careless clients and models send it.
fn odd(number: usize, content: Content) -> Content {
    let blank = [Part::text(""), Part::default(), Part::text("")].into_iter().take(number % 4);
    let role = [content.role, Some("system".into()), Some(String::new()), None].into_iter().nth(number % 4).flatten();
    Content { role, parts: blank.chain(content.parts).collect() }
}

/// The view that is made of all events at once.
fn at_once(grouping: Grouping, events: &Vector<Arc<Event>>) -> View {
    let mut view = View::new(ME.into(), Some("mine".into()), grouping);
    view.start_over(events);
    view
}

fn grouping() -> impl Strategy<Value = Grouping> {
    prop_oneof![Just(Grouping::ByCall), Just(Grouping::ByRow)]
}

proptest! {
    #[test]
    fn a_view_that_reads_event_by_event_shows_at_every_point_what_one_made_at_once_shows(
        steps in prop::collection::vec(step(), 0..40),
        grouping in grouping(),
    ) {
        let mut view = View::new(ME.into(), Some("mine".into()), grouping);
        let mut seen = Vector::new();
        for event in history(&steps) {
            seen.push_back(event);
            view.read(&seen);
            let at_once = at_once(grouping, &seen);
            prop_assert_eq!(view.contents(), at_once.contents());
            prop_assert_eq!(view.current_turn(), at_once.current_turn());
        }
    }

    #[test]
    fn calls_are_followed_by_answers_to_all_of_them_and_answers_stand_nowhere_else(
        steps in prop::collection::vec(step(), 0..40),
        grouping in grouping(),
    ) {
        let contents = at_once(grouping, &history(&steps).into_iter().collect()).contents();
        let mut open: Vec<String> = Vec::new();
        for content in &contents {
            let answered: Vec<_> = content.function_responses().filter_map(|response| response.id.clone()).collect();
            let called: Vec<_> = content.function_calls().filter_map(|call| call.id.clone()).collect();
            if !answered.is_empty() {
                prop_assert_eq!(&answered, &std::mem::take(&mut open));
            } else if called.is_empty() || grouping == Grouping::ByCall {
                prop_assert!(open.is_empty(), "{:?} is not answered at {:?}", open, content);
            }
            open.extend(called);
        }
    }

    #[test]
    fn every_content_has_a_role_that_models_know_and_parts_with_something_in_them(
        steps in prop::collection::vec(step(), 0..40),
        grouping in grouping(),
    ) {
        for content in &at_once(grouping, &history(&steps).into_iter().collect()).contents() {
            let calls = content.function_calls().next().is_some();
            let answers = content.function_responses().next().is_some();
            prop_assert!(content.role.as_deref() == Some("model") && !answers || content.role.as_deref() == Some("user") && !calls);
            prop_assert!(!content.parts.is_empty());
            prop_assert!(!content.parts.iter().any(|part| *part == Part::text("") || *part == Part::default()));
        }
    }

    #[test]
    fn nothing_that_a_summary_stands_for_is_shown(steps in prop::collection::vec(step(), 0..40)) {
        let events = history(&steps);
        let contents = at_once(Grouping::ByCall, &events.iter().cloned().collect()).contents();
        let shown: Vec<_> = contents.iter().map(|content| brief(content)).collect();
        for (place, event) in events.iter().enumerate() {
            let covered = events[place..].iter().filter_map(|later| later.actions.compaction.as_ref()).any(|later| {
                (later.start_timestamp..=later.end_timestamp).contains(&event.timestamp)
            });
            let text = event.content.as_ref().map(|content| content.text()).unwrap_or_default();
            if covered && !text.is_empty() {
                let told = [format!("u:{text}"), format!("m:{text}"), format!("u:For context:|[other] said: {text}")];
                prop_assert!(!told.iter().any(|told| shown.contains(told)), "{} in {:?}", text, shown);
            }
            if covered && event.function_calls().any(|call| call.name != REQUEST_CONFIRMATION) {
                let ids: Vec<_> = event.function_calls().filter_map(|call| call.id.clone()).collect();
                let call = format!("call({})", ids.join(","));
                prop_assert!(ids.concat().is_empty() || !shown.contains(&call), "{} in {:?}", call, shown);
            }
        }
    }
}
