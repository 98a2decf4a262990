//! Conversations with summaries. The tables denote an event by its timestamp.

use imbl::Vector;

use super::*;

/// Parses a log: `3` is an event with that timestamp, `C1-3` a summary of the events from 1 to 3.
fn parse_log(words: &str) -> Vec<Arc<Event>> {
    let time = |word: &str| word.trim_end_matches(char::is_alphabetic).parse::<i64>().unwrap();
    let event = |word: &str| match word.strip_prefix('C').and_then(|range| range.split_once('-')) {
        Some((start, end)) => compaction(time(start), time(end)),
        None => event_at(time(word), ME, Content::model(word)),
    };
    words.split_whitespace().map(event).collect()
}

fn texts(events: &[Arc<Event>]) -> String {
    contents(events).iter().map(|text| text.trim_start_matches("m:")).collect::<Vec<_>>().join(" ")
}

#[test]
fn summaries_replace_the_events_that_they_cover() {
    let cases = [
        ("1 2 C1-2 3", "C1-2 3"),
        ("C1-2 3 4", "C1-2 3 4"),
        ("1 2a 2b C2-3", "1 C2-3"),
        ("1 2 3 4 C1-4 5 6 7a 7b 9 C6-9 10", "C1-4 5 C6-9 10"),
        ("1 2 3 C1-2", "C1-2 3"),
        ("1 C1-1 3 C1-3", "C1-3"),
        ("1 2 3 4 C1-1 6 7 C1-3 9", "C1-3 4 6 7 9"),
        ("1 2 3 4 C2-2 6 7 C2-3 9", "1 C2-3 4 6 7 9"),
        ("1 2 3 C1-2 5 C2-3 7", "C1-2 C2-3 5 7"),
    ];
    for (events, expected) in cases {
        assert_eq!(texts(&parse_log(events)), expected, "{events}");
    }
}

#[test]
fn a_summary_does_not_cover_events_after_it_in_the_log() {
    assert_eq!(texts(&parse_log("1 3 C1-3 2 4")), "C1-3 2 4");
}

#[test]
fn a_summary_that_ends_before_it_starts_is_ignored() {
    assert_eq!(texts(&parse_log("1 2 C2-1 3")), "1 2 3");
}

#[test]
fn of_two_equal_ranges_the_later_summary_is_visible_and_of_overlapping_ranges_both_are() {
    assert_eq!(texts(&parse_log("1 2 3 C1-2 C1-2 4")), "C1-2 3 4");
    assert_eq!(texts(&parse_log("1 2 3 4 C1-3 C2-4 5")), "C1-3 C2-4 5");
    assert_eq!(texts(&parse_log("1 2 3 4 C2-4 C1-3 5")), "C1-3 C2-4 5");
    assert_eq!(
        texts(&parse_log("1 2 3 4 C1-4 C2-3 5")),
        "C2-3 C1-4 5",
        "the later one, although the earlier one covers more"
    );
}

#[test]
fn a_summary_has_the_role_of_the_model_and_is_visible_in_every_branch() {
    let event = compaction(1, 2);
    let foreign = Event::new(EventData {
        author: "other".into(),
        branch: Some("elsewhere".into()),
        actions: event.actions.clone(),
        ..EventData::default()
    });
    for branch in [None, Some("all.mine")] {
        let mut view = PromptView::new(ME.into(), branch.map(Into::into), ResponseGrouping::PerCall);
        view.read(&[event_at(1, "third", Content::model("x")), foreign.clone()].into_iter().collect());
        assert_eq!(briefs(&view), ["m:C1-2"]);
    }
}

#[test]
fn a_new_summary_changes_an_existing_view() {
    let mut events: Vector<_> = parse_log("1 2 3").into_iter().collect();
    let mut view = PromptView::new(ME.into(), None, ResponseGrouping::PerCall);
    view.read(&events);
    events.append(parse_log("C1-2 4").into_iter().collect());
    view.read(&events);
    assert_eq!(briefs(&view), ["m:C1-2", "m:3", "m:4"]);
}

#[test]
fn a_call_whose_response_is_covered_has_a_placeholder_and_a_response_whose_call_is_covered_is_left_out() {
    let call = event_at(1, ME, Content::new("model", vec![call_part("1")]));
    let answer = event_at(2, ME, Content::new("user", vec![answer_part("1", "a")]));
    let next = event_at(3, "user", Content::user("next"));
    let events_with = |range| [call.clone(), answer.clone(), range, next.clone()];
    assert_eq!(contents(&events_with(compaction(2, 2))), ["call(1)", "answer(1=no answer yet)", "m:C2-2", "u:next"]);
    assert_eq!(contents(&events_with(compaction(1, 1))), ["m:C1-1", "u:next"]);
}

#[test]
fn without_history_a_turn_whose_start_is_covered_starts_at_the_summary() {
    let message = |time: i64, author: &str| {
        event_at(
            time,
            author,
            if author == ME { Content::model(time.to_string()) } else { Content::user(time.to_string()) },
        )
    };
    let turns = |range| [message(1, "user"), message(2, ME), message(3, "user"), message(4, ME), range, message(5, ME)];
    assert_eq!(current_turn(&turns(compaction(1, 2))), ["u:3", "m:4", "m:5"]);
    assert_eq!(current_turn(&turns(compaction(4, 4))), ["u:3", "m:C4-4", "m:5"]);
    assert_eq!(current_turn(&turns(compaction(2, 3))), ["m:C2-3", "m:4", "m:5"]);
}
