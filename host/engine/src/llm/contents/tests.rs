//! The cases of the contents processor that this one follows: events in, contents out.

use std::sync::Arc;

use hatchery_core::{Content, Event, EventData, FunctionCall, FunctionResponse, JsonMap, Part, PartData};
use imbl::Vector;
use proptest::prelude::*;
use serde_json::json;

use super::View;
use super::arrange::{all, ends_in_late_answer, up_to_call};
use super::visible::visible;

const ME: &str = "agent";

fn event(author: &str, content: Content) -> Arc<Event> {
    Event::new(EventData { author: author.into(), content: Some(Arc::new(content)), ..EventData::default() })
}

fn user(text: &str) -> Arc<Event> {
    event("user", Content::user(text))
}

fn model(text: &str) -> Arc<Event> {
    event(ME, Content::model(text))
}

fn call(ids: &[&str]) -> Arc<Event> {
    event(ME, Content::new("model", ids.iter().map(|id| call_part(id)).collect()))
}

fn call_part(id: &str) -> Part {
    PartData::FunctionCall(FunctionCall { id: Some(id.into()), name: format!("tool{id}"), ..FunctionCall::default() })
        .into()
}

fn answer(id: &str, text: &str) -> Arc<Event> {
    event(ME, Content::new("user", vec![answer_part(id, text)]))
}

fn answer_part(id: &str, text: &str) -> Part {
    let response = JsonMap::from_iter([("result".to_owned(), json!(text))]);
    PartData::FunctionResponse(FunctionResponse {
        id: Some(id.into()),
        name: format!("tool{id}"),
        response,
        ..Default::default()
    })
    .into()
}

/// A content in a word: `u:hi`, `m:hi`, `call(1,2)`, `answer(1=done)`.
fn brief(content: &Content) -> String {
    let calls: Vec<_> = content.function_calls().filter_map(|call| call.id.clone()).collect();
    let answers: Vec<_> = content
        .function_responses()
        .map(|response| {
            format!(
                "{}={}",
                response.id.as_deref().unwrap_or("?"),
                response.response.values().next().and_then(|value| value.as_str()).unwrap_or("")
            )
        })
        .collect();
    if !calls.is_empty() {
        return format!("call({})", calls.join(","));
    }
    if !answers.is_empty() {
        return format!("answer({})", answers.join(","));
    }
    let role = if content.role.as_deref() == Some("user") { "u" } else { "m" };
    let texts: Vec<_> = content.parts.iter().filter_map(Part::as_text).collect();
    format!("{role}:{}", texts.join("|"))
}

fn shown(events: &[Arc<Event>]) -> Vec<String> {
    let mut view = View::new(ME.into(), None);
    view.read(&events.iter().cloned().collect());
    view.contents().iter().map(|content| brief(content)).collect()
}

fn current_turn(events: &[Arc<Event>]) -> Vec<String> {
    let mut view = View::new(ME.into(), None);
    view.read(&events.iter().cloned().collect());
    view.current_turn().iter().map(|content| brief(content)).collect()
}

#[test]
fn nothing_gives_nothing() {
    assert!(shown(&[]).is_empty());
}

#[test]
fn a_plain_conversation_stays_as_it_is() {
    assert_eq!(shown(&[user("1"), model("1")]), ["u:1", "m:1"]);
    assert_eq!(shown(&[user("1"), call(&["1"]), answer("1", "ok")]), ["u:1", "call(1)", "answer(1=ok)"]);
}

#[test]
fn a_late_answer_hides_what_was_said_since_its_call_while_it_is_the_newest() {
    let mut events = vec![user("1"), call(&["1"]), user("2"), answer("1", "done")];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=done)"]);
    events.push(user("3"));
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=done)", "u:2", "u:3"]);
}

#[test]
fn the_newest_of_several_answers_counts() {
    let events = [user("1"), call(&["1"]), user("2"), answer("1", "running"), user("3"), answer("1", "done")];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=done)"]);
    let chatter = [
        user("1"),
        call(&["1"]),
        answer("1", "pending"),
        user("2"),
        user("3"),
        answer("1", "running"),
        answer("1", "done"),
        user("4"),
    ];
    assert_eq!(shown(&chatter), ["u:1", "call(1)", "answer(1=done)", "u:2", "u:3", "u:4"]);
}

#[test]
fn answers_of_parallel_calls_are_merged_in_the_order_of_the_calls() {
    let events = [user("1"), call(&["1", "2"]), answer("2", "b"), answer("1", "a")];
    assert_eq!(shown(&events), ["u:1", "call(1,2)", "answer(1=a,2=b)"]);
    let apart = [user("1"), call(&["1", "2"]), user("x"), answer("1", "a"), user("y"), answer("2", "b"), user("z")];
    assert_eq!(shown(&apart), ["u:1", "call(1,2)", "answer(1=a,2=b)", "u:x", "u:y", "u:z"]);
}

#[test]
fn a_call_without_answer_gets_one_that_says_so_once_something_follows() {
    assert_eq!(shown(&[user("1"), call(&["1"])]), ["u:1", "call(1)"]);
    let events = [user("1"), call(&["1"]), user("2"), call(&["2"]), answer("2", "ok")];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=no answer yet)", "u:2", "call(2)", "answer(2=ok)"]);
    let one_of_two = [user("1"), call(&["1", "2"]), answer("2", "b"), user("2")];
    assert_eq!(shown(&one_of_two), ["u:1", "call(1,2)", "answer(1=no answer yet,2=b)", "u:2"]);
}

#[test]
fn an_answer_in_the_hidden_middle_is_hidden_too() {
    let events =
        [user("1"), call(&["1"]), user("2"), call(&["2"]), user("3"), answer("1", "a"), user("4"), answer("2", "b")];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=no answer yet)", "u:2", "call(2)", "answer(2=b)"]);
}

#[test]
fn an_answer_to_no_call_is_left_out() {
    assert_eq!(shown(&[user("1"), answer("9", "x")]), ["u:1"]);
    assert_eq!(shown(&[user("1"), answer("9", "x"), user("2")]), ["u:1", "u:2"]);
}

#[test]
fn other_agents_are_retold_by_the_user() {
    let args = json!({"arg1": "value", "arg2": [1, 2]});
    let call =
        FunctionCall { name: "tool1".into(), args: args.as_object().unwrap().clone(), ..FunctionCall::default() };
    let said = Content::new("model", vec![Part::text("Some text"), PartData::FunctionCall(call).into()]);
    assert_eq!(
        shown(&[user("1"), event("other", said)]),
        [
            "u:1",
            "u:For context:|[other] said: Some text|[other] called tool `tool1` with parameters: {\"arg1\":\"value\",\"arg2\":[1,2]}"
        ]
    );
}

#[test]
fn other_agents_thoughts_and_blanks_are_not_told() {
    let thought = Part { thought: true, ..Part::text("hm") };
    assert!(shown(&[event("other", Content::new("model", vec![thought, Part::text("  ")]))]).is_empty());
}

#[test]
fn without_history_only_the_current_turn_is_shown() {
    assert_eq!(current_turn(&[user("1"), model("1"), user("2")]), ["u:2"]);
    assert_eq!(
        current_turn(&[user("1"), model("1"), event("other", Content::model("hi"))]),
        ["u:For context:|[other] said: hi"]
    );
    assert_eq!(current_turn(&[user("1"), call(&["1"]), answer("1", "ok")]), ["u:1", "call(1)", "answer(1=ok)"]);
}

#[test]
fn a_message_without_role_counts_as_the_users() {
    let mut content = Content::user("1");
    content.role = None;
    assert_eq!(shown(&[event("user", content)]), ["u:1"]);
}

#[test]
fn an_agent_sees_its_branch_and_those_around_it() {
    let in_branch = |branch: Option<&str>, text: &str| {
        Event::new(EventData {
            author: "user".into(),
            branch: branch.map(Into::into),
            content: Some(Arc::new(Content::user(text))),
            ..EventData::default()
        })
    };
    let events: Vector<_> = [
        in_branch(None, "none"),
        in_branch(Some("root"), "around"),
        in_branch(Some("root.agent_1"), "own"),
        in_branch(Some("root.agent_10"), "sibling"),
        in_branch(Some("root.agent_1.deeper"), "below"),
    ]
    .into_iter()
    .collect();
    let texts = |branch: Option<&str>| -> Vec<String> {
        let mut view = View::new(ME.into(), branch.map(Into::into));
        view.read(&events);
        view.contents().iter().map(|content| content.text()).collect()
    };
    assert_eq!(texts(Some("root.agent_1")), ["none", "around", "own"]);
    assert_eq!(texts(None), ["none", "around", "own", "sibling", "below"]);
}

#[test]
fn empty_parts_are_invisible_but_signatures_are_not() {
    let signed = Part { thought_signature: Some("s".into()), ..Part::default() };
    assert!(shown(&[event(ME, Content::new("model", vec![Part::text("")]))]).is_empty());
    assert_eq!(shown(&[event(ME, Content::new("model", vec![signed]))]), ["m:"]);
}

/// The same without reading step by step.
fn arranged_at_once(events: &[Arc<Event>]) -> Vec<String> {
    let visible: Vec<_> = events.iter().filter_map(|event| visible(event, ME, None)).collect();
    let late = if ends_in_late_answer(&visible) { up_to_call(&visible) } else { None };
    late.unwrap_or_else(|| all(&visible)).contents.iter().map(|content| brief(content)).collect()
}

/// What can happen next in a made-up history.
#[derive(Debug, Clone)]
enum Step {
    User,
    Model,
    Call(u8),
    Answer(u8),
    Other,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::User),
        Just(Step::Model),
        (1..3u8).prop_map(Step::Call),
        any::<u8>().prop_map(Step::Answer),
        Just(Step::Other)
    ]
}

fn history(steps: &[Step]) -> Vec<Arc<Event>> {
    let mut ids: Vec<String> = Vec::new();
    let mut events = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        events.push(match step {
            Step::User => user(&number.to_string()),
            Step::Model => model(&number.to_string()),
            Step::Other => event("other", Content::model(number.to_string())),
            Step::Call(count) => {
                let new: Vec<_> = (0..*count).map(|part| format!("{number}.{part}")).collect();
                ids.extend(new.iter().cloned());
                call(&new.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Step::Answer(which) if ids.is_empty() => user(&format!("nothing to answer {which}")),
            Step::Answer(which) => answer(&ids[usize::from(*which) % ids.len()].clone(), &number.to_string()),
        });
    }
    events
}

proptest! {
    #[test]
    fn reading_event_by_event_shows_what_arranging_all_at_once_shows(steps in prop::collection::vec(step(), 0..40)) {
        let events = history(&steps);
        let mut view = View::new(ME.into(), None);
        let mut seen = Vector::new();
        for event in &events {
            seen.push_back(event.clone());
            view.read(&seen);
        }
        let step_by_step: Vec<_> = view.contents().iter().map(|content| brief(content)).collect();
        prop_assert_eq!(step_by_step, arranged_at_once(&events));
    }

    #[test]
    fn answers_always_follow_their_calls(steps in prop::collection::vec(step(), 0..40)) {
        let contents = shown(&history(&steps));
        for (index, content) in contents.iter().enumerate() {
            if let Some(answer) = content.strip_prefix("answer(") {
                let call = &contents[index - 1];
                prop_assert!(call.starts_with("call("), "{} after {}", answer, call);
            }
        }
    }
}
