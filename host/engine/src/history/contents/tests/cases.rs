//! Conversations without summaries.

use hatchery_core::{Blob, CodeExecutionResult, ExecutableCode, FileData, REQUEST_CONFIRMATION};
use imbl::Vector;

use super::*;

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
    let more = [user("1"), call(&["1"]), user("2"), model("2"), user("3"), answer("1", "done")];
    assert_eq!(shown(&more), ["u:1", "call(1)", "answer(1=done)"]);
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

/// Elsewhere such a call stays as it is; models refuse that.
#[test]
fn a_call_without_answer_gets_one_that_says_so_once_something_follows() {
    assert_eq!(shown(&[user("1"), call(&["1"])]), ["u:1", "call(1)"]);
    let events = [user("1"), call(&["1"]), user("2"), call(&["2"]), answer("2", "ok")];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=no answer yet)", "u:2", "call(2)", "answer(2=ok)"]);
    let one_of_two = [user("1"), call(&["1", "2"]), answer("2", "b"), user("2")];
    assert_eq!(shown(&one_of_two), ["u:1", "call(1,2)", "answer(1=no answer yet,2=b)", "u:2"]);
}

#[test]
fn calls_that_are_answered_again_and_again_show_their_newest_answers_in_history() {
    let events = [
        user("1"),
        call(&["1"]),
        user("2"),
        answer("1", "pending"),
        user("3"),
        answer("1", "done"),
        user("4"),
        call(&["2"]),
        user("5"),
        answer("2", "pending"),
        user("6"),
        answer("2", "done"),
        user("7"),
    ];
    let expected =
        ["u:1", "call(1)", "answer(1=done)", "u:2", "u:3", "u:4", "call(2)", "answer(2=done)", "u:5", "u:6", "u:7"];
    assert_eq!(shown(&events), expected);
}

/// A model refuses a call without an answer in the middle of a conversation, so the other one gets an answer too.
#[test]
fn a_late_answer_to_one_of_two_parallel_calls_comes_with_a_stand_in_for_the_other() {
    let events = [user("1"), call(&["1", "2"]), user("2"), answer("1", "a")];
    assert_eq!(shown(&events), ["u:1", "call(1,2)", "answer(1=a,2=no answer yet)"]);
}

#[test]
fn one_event_may_answer_several_calls_late() {
    let both = event("user", Content::new("user", vec![answer_part("1", "a"), answer_part("2", "b")]));
    let events = [user("1"), call(&["1"]), user("2"), call(&["2"]), user("3"), both];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=a)", "u:2", "call(2)", "answer(2=b)"]);
}

/// Some models number their calls anew in every answer.
#[test]
fn an_answer_belongs_to_the_newest_call_of_its_id() {
    let again = [call(&["1"]), answer("1", "a"), user("2"), call(&["1"]), answer("1", "b"), user("3")];
    let expected = ["call(1)", "answer(1=a)", "u:2", "call(1)", "answer(1=b)", "u:3"];
    assert_eq!(shown(&again), expected);
    // An older answer that comes late has the whole arranged anew.
    let late = [&again[..], &[call(&["2"]), user("4"), answer("2", "c"), user("5")]].concat();
    assert_eq!(shown(&late), [&expected[..], &["call(2)", "answer(2=c)", "u:4", "u:5"]].concat());
}

#[test]
fn of_answers_that_come_several_in_one_event_each_ones_newest_counts() {
    let both = event(ME, Content::new("user", vec![answer_part("1", "a"), answer_part("2", "a")]));
    let events = [call(&["1", "2"]), user("1"), both, answer("1", "b"), user("2")];
    assert_eq!(shown(&events), ["call(1,2)", "answer(1=b,2=a)", "u:1", "u:2"]);
}

/// The call of the hidden answer has a stand-in for it, as every call without a visible answer.
#[test]
fn an_answer_in_the_hidden_middle_is_hidden_too() {
    let events =
        [user("1"), call(&["1"]), user("2"), call(&["2"]), user("3"), answer("1", "a"), user("4"), answer("2", "b")];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=no answer yet)", "u:2", "call(2)", "answer(2=b)"]);
}

/// Elsewhere this ends the run; but what a client sends by mistake, or what a compaction has cut in two, must not break a session for good.
#[test]
fn an_answer_to_no_call_is_left_out() {
    assert_eq!(shown(&[user("1"), answer("9", "x")]), ["u:1"]);
    assert_eq!(shown(&[user("1"), answer("9", "x"), answer("9", "y")]), ["u:1"]);
    assert_eq!(shown(&[user("1"), answer("9", "x"), user("2")]), ["u:1", "u:2"]);
}

#[test]
fn other_agents_are_retold_by_the_user() {
    let args = json!({"arg1": "value", "arg2": [1, 2]}).as_object().unwrap().clone();
    let id = Some("7".to_owned());
    let said = FunctionCall { id: id.clone(), name: "tool1".into(), args, ..FunctionCall::default() };
    let said = Content::new("model", vec![Part::text("Some text"), PartData::FunctionCall(said).into()]);
    let response = json!({"result": "ok"}).as_object().unwrap().clone();
    let result = FunctionResponse { id, name: "tool1".into(), response, ..FunctionResponse::default() };
    let result = Content::new("user", vec![PartData::FunctionResponse(result).into()]);
    let events =
        [user("1"), event("other", said), event("other", result), model("2"), call(&["1"]), answer("1", "mine")];
    let expected = [
        "u:1",
        "u:For context:|[other] said: Some text|[other] called tool `tool1` with parameters: {\"arg1\":\"value\",\"arg2\":[1,2]}",
        "u:For context:|[other] `tool1` tool returned result: {\"result\":\"ok\"}",
        "m:2",
        "call(1)",
        "answer(1=mine)",
    ];
    assert_eq!(shown(&events), expected);
}

#[test]
fn other_agents_calls_without_name_and_arguments_are_told_as_such() {
    let nameless = PartData::FunctionCall(FunctionCall::default()).into();
    let answer = PartData::FunctionResponse(FunctionResponse::default()).into();
    assert_eq!(
        shown(&[event("other", Content::new("model", vec![nameless, answer]))]),
        [
            "u:For context:|[other] called tool `unknown_tool` with parameters: {}|[other] `unknown_tool` tool returned result: {}"
        ]
    );
}

#[test]
fn of_other_agents_only_what_they_say_do_and_show_is_told() {
    let signed = |part: Part| Part { thought_signature: Some("s".into()), ..part };
    let thought = |part: Part| Part { thought: true, ..part };
    let image = Part::from(PartData::InlineData(Blob { mime_type: "image/png".into(), ..Blob::default() }));
    let file = Part::from(PartData::FileData(FileData { file_uri: "gs://f".into(), ..FileData::default() }));
    let code = Part::from(PartData::ExecutableCode(ExecutableCode { code: "1+1".into(), ..ExecutableCode::default() }));
    let output = Part::from(PartData::CodeExecutionResult(CodeExecutionResult::default()));
    let server_call: Part = serde_json::from_value(json!({"toolCall": {"id": "1"}})).unwrap();
    let hidden = [
        thought(Part::text("hm")),
        signed(thought(Part::text("hm"))),
        thought(call_part("1")),
        thought(image.clone()),
        Part::text("  "),
        signed(Part::text("")),
        signed(Part::default()),
        server_call.clone(),
        thought(server_call),
    ];
    for part in hidden {
        let told = shown(&[event("other", Content::new("model", vec![part.clone()]))]);
        assert!(told.is_empty(), "{part:?}: {told:?}");
    }
    for part in [image, file, code, output] {
        let mut view = View::new(ME.into(), None, Grouping::ByCall);
        view.read(&[event("other", Content::new("model", vec![part.clone()]))].into_iter().collect());
        assert_eq!(view.contents()[0].parts, [Part::text("For context:"), part]);
    }
}

#[test]
fn an_agents_own_events_are_shown_when_a_part_carries_something() {
    let signed = |part: Part| Part { thought_signature: Some("s".into()), ..part };
    let thought = |part: Part| Part { thought: true, ..part };
    let server_call: Part = serde_json::from_value(json!({"toolCall": {"id": "1"}})).unwrap();
    let server_answer: Part = serde_json::from_value(json!({"toolResponse": {"id": "1"}})).unwrap();
    let shown = |parts: &[Part]| !shown(&[event(ME, Content::new("model", parts.to_vec()))]).is_empty();
    assert!(!shown(&[]));
    assert!(!shown(&[Part::text("")]));
    assert!(!shown(&[thought(Part::text("hm"))]));
    assert!(!shown(&[thought(Part::text("")), Part::text("")]));
    assert!(shown(&[signed(thought(Part::text("hm")))]));
    assert!(shown(&[signed(Part::default())]));
    assert!(shown(&[signed(Part::text(""))]));
    assert!(shown(&[thought(Part::text("")), call_part("1")]));
    assert!(shown(std::slice::from_ref(&server_call)) && shown(&[thought(server_call)]));
    assert!(shown(std::slice::from_ref(&server_answer)) && shown(&[thought(server_answer)]));
}

#[test]
fn an_event_that_is_shown_keeps_its_thoughts_and_loses_its_empty_parts() {
    let parts = vec![Part { thought: true, ..Part::text("hm") }, Part::text(""), Part::default(), Part::text("so")];
    let said = Content::new("model", parts);
    assert_eq!(shown(&[event(ME, said.clone())]), ["m:hm|so"]);
    assert_eq!(shown(&[event("user", Content { role: None, ..said })]), ["u:hm|so"]);
    let call = Content::new("model", vec![Part::text(""), call_part("1"), Part::default()]);
    let mut view = View::new(ME.into(), None, Grouping::ByCall);
    view.read(&[event(ME, call)].into_iter().collect());
    assert_eq!(view.contents()[0].parts, [call_part("1")]);
}

#[test]
fn what_a_person_is_asked_before_a_tool_runs_is_not_shown() {
    let question = |text: Option<&str>| {
        let call = FunctionCall { id: Some("q".into()), name: REQUEST_CONFIRMATION.into(), ..FunctionCall::default() };
        let text = text.map(Part::text);
        Content::new("model", text.into_iter().chain([PartData::FunctionCall(call).into()]).collect())
    };
    let decision = |text: Option<&str>| {
        let response =
            FunctionResponse { id: Some("q".into()), name: REQUEST_CONFIRMATION.into(), ..FunctionResponse::default() };
        let text = text.map(Part::text);
        Content::new("user", text.into_iter().chain([PartData::FunctionResponse(response).into()]).collect())
    };
    let events = [
        user("1"),
        call(&["1"]),
        answer("1", "a person is asked"),
        event(ME, question(None)),
        event("user", decision(None)),
        answer("1", "done"),
    ];
    assert_eq!(shown(&events), ["u:1", "call(1)", "answer(1=done)"]);
    assert_eq!(current_turn(&events), ["u:1", "call(1)", "answer(1=done)"], "a decision begins no turn");
    let with_text = [event(ME, question(Some("May I?"))), event("user", decision(Some("You may.")))];
    assert_eq!(shown(&with_text), ["m:May I?", "u:You may."]);
    assert_eq!(shown(&[event("other", question(Some("May I?")))]), ["u:For context:|[other] said: May I?"]);
}

#[test]
fn without_history_only_the_current_turn_is_shown() {
    assert_eq!(current_turn(&[user("1"), model("1"), user("2")]), ["u:2"]);
    assert_eq!(
        current_turn(&[user("1"), model("1"), event("other", Content::model("hi"))]),
        ["u:For context:|[other] said: hi"]
    );
    assert_eq!(current_turn(&[user("1"), call(&["1"]), answer("1", "ok")]), ["u:1", "call(1)", "answer(1=ok)"]);
    let with_words = [user("1"), call(&["1"]), model("wait"), answer("1", "ok")];
    assert_eq!(current_turn(&with_words), ["u:1", "call(1)", "answer(1=ok)"]);
}

/// Elsewhere nothing is sent then, which no model accepts.
#[test]
fn without_history_what_nobody_asked_for_is_one_turn() {
    let events = [model("1"), call(&["1"]), answer("1", "ok")];
    assert_eq!(current_turn(&events), ["m:1", "call(1)", "answer(1=ok)"]);
}

/// Elsewhere this ends the run, since the call is not in the current turn. Here the turn of the call becomes the current one.
#[test]
fn without_history_a_late_answer_brings_the_turn_of_its_call_back() {
    let events = [user("0"), model("0"), user("1"), call(&["1"]), user("2"), answer("1", "pending"), answer("1", "ok")];
    assert_eq!(current_turn(&events), ["u:1", "call(1)", "answer(1=ok)"]);
}

#[test]
fn calls_in_a_row_come_before_all_their_answers_where_a_model_wants_that() {
    let row = [user("1"), call(&["1"]), answer("1", "a"), call(&["2"]), answer("2", "b")];
    assert_eq!(shown_by(Grouping::ByRow, &row), ["u:1", "call(1)", "call(2)", "answer(1=a,2=b)"]);
    assert_eq!(shown(&row), ["u:1", "call(1)", "answer(1=a)", "call(2)", "answer(2=b)"]);
    let turns = [user("1"), call(&["1"]), answer("1", "a"), user("2"), call(&["2"]), answer("2", "b")];
    assert_eq!(shown_by(Grouping::ByRow, &turns), shown(&turns));
}

#[test]
fn in_a_row_every_call_has_an_answer_as_soon_as_one_has() {
    let open = [call(&["1"]), call(&["2"])];
    assert_eq!(shown_by(Grouping::ByRow, &open), ["call(1)", "call(2)"]);
    let half = [call(&["1"]), answer("1", "a"), call(&["2"])];
    assert_eq!(shown_by(Grouping::ByRow, &half), ["call(1)", "call(2)", "answer(1=a,2=no answer yet)"]);
    let later = [call(&["1"]), answer("1", "a"), call(&["2"]), answer("2", "b"), answer("1", "c"), user("1")];
    assert_eq!(shown_by(Grouping::ByRow, &later), ["call(1)", "call(2)", "answer(1=c,2=b)", "u:1"]);
}

#[test]
fn a_late_answer_to_a_call_in_a_row_brings_the_row_up_to_it_back() {
    let events = [user("1"), call(&["1"]), answer("1", "a"), call(&["2"]), user("2"), answer("2", "b")];
    assert_eq!(shown_by(Grouping::ByRow, &events), ["u:1", "call(1)", "call(2)", "answer(1=a,2=b)"]);
}

#[test]
fn models_that_want_rows_are_known_by_name_unless_the_run_says_otherwise() {
    assert_eq!(Grouping::of(None, "gemini-3-flash-exp"), Grouping::ByRow);
    assert_eq!(Grouping::of(None, "gemini-2.5-pro"), Grouping::ByCall);
    assert_eq!(Grouping::of(Some(false), "gemini-3-flash-exp"), Grouping::ByCall);
    assert_eq!(Grouping::of(Some(true), "gemini-2.5-pro"), Grouping::ByRow);
}

#[test]
fn a_role_that_models_do_not_know_is_replaced_by_that_of_the_author() {
    let role = |author: &str, content: Content| {
        let mut view = View::new(ME.into(), None, Grouping::ByCall);
        view.read(&[event(author, content)].into_iter().collect());
        view.contents()[0].role.clone().unwrap_or_default()
    };
    for said in ["user", "model", "assistant", "system", "function", ""] {
        assert_eq!(role("user", Content::new(said, vec![Part::text("hi")])), "user", "the user as `{said}`");
    }
    for said in ["model", "assistant", "system", ""] {
        assert_eq!(role(ME, Content::new(said, vec![Part::text("hi")])), "model", "the agent as `{said}`");
    }
    assert_eq!(role(ME, Content::new("user", vec![call_part("1")])), "model", "only models call");
}

#[test]
fn calls_and_answers_without_ids_belong_together_by_name() {
    let nameless = |part: Part| match part.data {
        PartData::FunctionCall(call) => Part::from(PartData::FunctionCall(FunctionCall { id: None, ..call })),
        PartData::FunctionResponse(it) => {
            PartData::FunctionResponse(FunctionResponse { id: Some(String::new()), ..it }).into()
        }
        _ => part,
    };
    let call = |id| event(ME, Content::new("model", vec![nameless(call_part(id))]));
    let answer = |text| event("user", Content::new("user", vec![nameless(answer_part("1", text))]));
    assert_eq!(shown(&[user("1"), call("1"), answer("a"), user("2")]), ["u:1", "call()", "answer(=a)", "u:2"]);
    assert_eq!(shown(&[user("1"), call("1"), user("2")]), ["u:1", "call()", "answer(?=no answer yet)", "u:2"]);
    assert_eq!(shown(&[user("1"), model("2"), answer("a")]), ["u:1", "m:2"], "an answer to nothing");
}

/// Elsewhere it is dropped, and the client's message with it.
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
        let mut view = View::new(ME.into(), branch.map(Into::into), Grouping::ByCall);
        view.read(&events);
        view.contents().iter().map(|content| content.text()).collect()
    };
    assert_eq!(texts(Some("root.agent_1")), ["none", "around", "own"]);
    assert_eq!(texts(Some("")), ["none", "around", "own", "sibling", "below"]);
    assert_eq!(texts(None), ["none", "around", "own", "sibling", "below"]);
}
