//! Conversations with summaries. An event in these tables is its time; an event of another agent's branch is not needed here.

use imbl::Vector;

use super::*;

/// `3` is an event at that time, `C1-3` a compaction of the events from 1 to 3.
fn log(words: &str) -> Vec<Arc<Event>> {
    let time = |word: &str| word.trim_end_matches(char::is_alphabetic).parse::<i64>().unwrap();
    let event = |word: &str| match word.strip_prefix('C').and_then(|range| range.split_once('-')) {
        Some((start, end)) => compaction(time(start), time(end)),
        None => at(time(word), ME, Content::model(word)),
    };
    words.split_whitespace().map(event).collect()
}

fn texts(events: &[Arc<Event>]) -> String {
    shown(events).iter().map(|text| text.trim_start_matches("m:")).collect::<Vec<_>>().join(" ")
}

#[test]
fn summaries_take_the_places_of_what_they_stand_for() {
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
        assert_eq!(texts(&log(events)), expected, "{events}");
    }
}

#[test]
fn a_summary_hides_nothing_that_comes_after_it_in_the_log() {
    assert_eq!(texts(&log("1 3 C1-3 2 4")), "C1-3 2 4");
}

#[test]
fn a_summary_that_ends_before_it_begins_says_and_hides_nothing() {
    assert_eq!(texts(&log("1 2 C2-1 3")), "1 2 3");
}

#[test]
fn of_two_summaries_of_the_same_time_the_later_is_shown_and_of_overlapping_ones_both() {
    assert_eq!(texts(&log("1 2 3 C1-2 C1-2 4")), "C1-2 3 4");
    assert_eq!(texts(&log("1 2 3 4 C1-3 C2-4 5")), "C1-3 C2-4 5");
    assert_eq!(texts(&log("1 2 3 4 C2-4 C1-3 5")), "C1-3 C2-4 5");
    assert_eq!(texts(&log("1 2 3 4 C1-4 C2-3 5")), "C2-3 C1-4 5", "the later one, although the earlier holds more");
}

#[test]
fn a_summary_is_the_models_and_every_agent_sees_it_whatever_its_branch() {
    let event = compaction(1, 2);
    let foreign = Event::new(EventData {
        author: "other".into(),
        branch: Some("elsewhere".into()),
        actions: event.actions.clone(),
        ..EventData::default()
    });
    for branch in [None, Some("all.mine")] {
        let mut view = View::new(ME.into(), branch.map(Into::into), Grouping::ByCall);
        view.read(&[at(1, "third", Content::model("x")), foreign.clone()].into_iter().collect());
        assert_eq!(briefs(&view), ["m:C1-2"]);
    }
}

#[test]
fn a_new_summary_changes_a_view_that_has_been_read() {
    let mut events: Vector<_> = log("1 2 3").into_iter().collect();
    let mut view = View::new(ME.into(), None, Grouping::ByCall);
    view.read(&events);
    events.append(log("C1-2 4").into_iter().collect());
    view.read(&events);
    assert_eq!(briefs(&view), ["m:C1-2", "m:3", "m:4"]);
}

#[test]
fn a_call_whose_answer_alone_is_summarized_has_a_stand_in_for_it_and_an_answer_alone_is_left_out() {
    let call = at(1, ME, Content::new("model", vec![call_part("1")]));
    let answer = at(2, ME, Content::new("user", vec![answer_part("1", "a")]));
    let next = at(3, "user", Content::user("next"));
    let log = |range| [call.clone(), answer.clone(), range, next.clone()];
    assert_eq!(shown(&log(compaction(2, 2))), ["call(1)", "answer(1=no answer yet)", "m:C2-2", "u:next"]);
    assert_eq!(shown(&log(compaction(1, 1))), ["m:C1-1", "u:next"]);
}

#[test]
fn without_history_a_turn_whose_beginning_is_summarized_begins_at_the_summary() {
    let said = |time: i64, author: &str| {
        at(time, author, if author == ME { Content::model(time.to_string()) } else { Content::user(time.to_string()) })
    };
    let turns = |range| [said(1, "user"), said(2, ME), said(3, "user"), said(4, ME), range, said(5, ME)];
    assert_eq!(current_turn(&turns(compaction(1, 2))), ["u:3", "m:4", "m:5"]);
    assert_eq!(current_turn(&turns(compaction(4, 4))), ["u:3", "m:C4-4", "m:5"]);
    assert_eq!(current_turn(&turns(compaction(2, 3))), ["m:C2-3", "m:4", "m:5"]);
}
