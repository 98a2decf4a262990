//! Conversations that ADK's runner has rewound.

use imbl::Vector;

use super::*;

/// Two turns, each with a message of the user and an answer.
fn two_turns() -> Vec<Arc<Event>> {
    let in_run = |run: &str, author: &str, content| {
        let (invocation_id, author) = (run.into(), author.into());
        Event::new(EventData { invocation_id, author, content: Some(Arc::new(content)), ..EventData::default() })
    };
    vec![
        in_run("1", "user", Content::user("a")),
        in_run("1", ME, Content::model("b")),
        in_run("2", "user", Content::user("c")),
        in_run("2", ME, Content::model("d")),
    ]
}

fn rewind(author: &str, run: &str) -> Arc<Event> {
    let mut actions = EventActions::default();
    actions.extra.insert("rewindBeforeInvocationId".into(), json!(run));
    Event::new(EventData { author: author.into(), actions, ..EventData::default() })
}

#[test]
fn the_turns_that_a_rewind_annuls_are_left_out_also_of_a_view_that_has_them() {
    let turns = two_turns();
    let later = [rewind("user", "2"), user("e")];
    assert_eq!(contents(&[turns.as_slice(), &later].concat()), ["u:a", "m:b", "u:e"]);
    let mut events: Vector<_> = turns.into_iter().collect();
    let mut view = PromptView::new(ME.into(), None, ResponseGrouping::PerCall);
    view.read(&events);
    assert_eq!(briefs(&view), ["u:a", "m:b", "u:c", "m:d"]);
    events.append(later.into_iter().collect());
    view.read(&events);
    assert_eq!(briefs(&view), ["u:a", "m:b", "u:e"]);
}

#[test]
fn a_rewind_that_is_annulled_itself_annuls_nothing_more() {
    let later = [rewind("user", "2"), user("e"), rewind("user", "1"), user("f")];
    assert_eq!(contents(&[two_turns().as_slice(), &later].concat()), ["u:f"]);
}

#[test]
fn a_rewind_by_an_agent_or_to_an_unknown_run_annuls_nothing() {
    for rewind in [rewind(ME, "2"), rewind("user", "3")] {
        assert_eq!(contents(&[two_turns().as_slice(), &[rewind]].concat()), ["u:a", "m:b", "u:c", "m:d"]);
    }
}

#[test]
fn many_rewinds_leave_the_turns_before_them() {
    // If each searched the history for its run, the test would take hours.
    let events: Vec<_> = two_turns().into_iter().chain((0..1_000_000).map(|_| rewind("user", "3"))).collect();
    assert_eq!(contents(&events), ["u:a", "m:b", "u:c", "m:d"]);
}
