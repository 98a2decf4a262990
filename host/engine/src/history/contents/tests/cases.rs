//! Conversations without summaries. Some comments name differences from ADK.

use hatchery_core::{Blob, CodeExecutionResult, ExecutableCode, FileData, REQUEST_CONFIRMATION};
use imbl::Vector;

use super::*;

#[test]
fn no_events_have_no_contents() {
    assert!(contents(&[]).is_empty());
}

#[test]
fn a_simple_conversation_is_unchanged() {
    assert_eq!(contents(&[user("1"), model("1")]), ["u:1", "m:1"]);
    assert_eq!(contents(&[user("1"), call(&["1"]), answer("1", "ok")]), ["u:1", "call(1)", "answer(1=ok)"]);
}

#[test]
fn a_late_response_hides_the_events_since_its_call_while_it_is_the_newest_event() {
    let mut events = vec![user("1"), call(&["1"]), user("2"), answer("1", "done")];
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=done)"]);
    events.push(user("3"));
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=done)", "u:2", "u:3"]);
    let more = [user("1"), call(&["1"]), user("2"), model("2"), user("3"), answer("1", "done")];
    assert_eq!(contents(&more), ["u:1", "call(1)", "answer(1=done)"]);
}

#[test]
fn the_newest_of_several_responses_is_used() {
    let events = [user("1"), call(&["1"]), user("2"), answer("1", "running"), user("3"), answer("1", "done")];
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=done)"]);
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
    assert_eq!(contents(&chatter), ["u:1", "call(1)", "answer(1=done)", "u:2", "u:3", "u:4"]);
}

#[test]
fn responses_of_parallel_calls_are_merged_in_the_order_of_the_calls() {
    let events = [user("1"), call(&["1", "2"]), answer("2", "b"), answer("1", "a")];
    assert_eq!(contents(&events), ["u:1", "call(1,2)", "answer(1=a,2=b)"]);
    let apart = [user("1"), call(&["1", "2"]), user("x"), answer("1", "a"), user("y"), answer("2", "b"), user("z")];
    assert_eq!(contents(&apart), ["u:1", "call(1,2)", "answer(1=a,2=b)", "u:x", "u:y", "u:z"]);
}

/// ADK sends such a call without a response, which models reject.
#[test]
fn an_unanswered_call_gets_a_placeholder_response_once_another_content_follows() {
    assert_eq!(contents(&[user("1"), call(&["1"])]), ["u:1", "call(1)"]);
    let events = [user("1"), call(&["1"]), user("2"), call(&["2"]), answer("2", "ok")];
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=no answer yet)", "u:2", "call(2)", "answer(2=ok)"]);
    let one_of_two = [user("1"), call(&["1", "2"]), answer("2", "b"), user("2")];
    assert_eq!(contents(&one_of_two), ["u:1", "call(1,2)", "answer(1=no answer yet,2=b)", "u:2"]);
}

#[test]
fn calls_with_several_responses_have_the_newest_one_in_the_history() {
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
    assert_eq!(contents(&events), expected);
}

/// Models reject a call without a response in the middle of a conversation.
#[test]
fn a_late_response_to_one_of_two_parallel_calls_comes_with_a_placeholder_for_the_other() {
    let events = [user("1"), call(&["1", "2"]), user("2"), answer("1", "a")];
    assert_eq!(contents(&events), ["u:1", "call(1,2)", "answer(1=a,2=no answer yet)"]);
}

#[test]
fn one_event_can_have_late_responses_to_several_calls() {
    let both = event("user", Content::new("user", vec![answer_part("1", "a"), answer_part("2", "b")]));
    let events = [user("1"), call(&["1"]), user("2"), call(&["2"]), user("3"), both];
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=a)", "u:2", "call(2)", "answer(2=b)"]);
}

/// Some models restart the numbering of calls in every response.
#[test]
fn a_response_belongs_to_the_newest_call_with_its_id() {
    let again = [call(&["1"]), answer("1", "a"), user("2"), call(&["1"]), answer("1", "b"), user("3")];
    let expected = ["call(1)", "answer(1=a)", "u:2", "call(1)", "answer(1=b)", "u:3"];
    assert_eq!(contents(&again), expected);
    // A late response rebuilds the view.
    let late = [&again[..], &[call(&["2"]), user("4"), answer("2", "c"), user("5")]].concat();
    assert_eq!(contents(&late), [&expected[..], &["call(2)", "answer(2=c)", "u:4", "u:5"]].concat());
}

#[test]
fn of_several_responses_in_one_event_the_newest_per_call_is_used() {
    let both = event(ME, Content::new("user", vec![answer_part("1", "a"), answer_part("2", "a")]));
    let events = [call(&["1", "2"]), user("1"), both, answer("1", "b"), user("2")];
    assert_eq!(contents(&events), ["call(1,2)", "answer(1=b,2=a)", "u:1", "u:2"]);
}

/// The call of the hidden response has a placeholder, like every call without a visible response.
#[test]
fn a_response_among_hidden_events_is_hidden() {
    let events =
        [user("1"), call(&["1"]), user("2"), call(&["2"]), user("3"), answer("1", "a"), user("4"), answer("2", "b")];
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=no answer yet)", "u:2", "call(2)", "answer(2=b)"]);
}

/// ADK fails the run. Here an erroneous message of a client or a compaction does not break the session permanently.
#[test]
fn a_response_without_a_call_is_left_out() {
    assert_eq!(contents(&[user("1"), answer("9", "x")]), ["u:1"]);
    assert_eq!(contents(&[user("1"), answer("9", "x"), answer("9", "y")]), ["u:1"]);
    assert_eq!(contents(&[user("1"), answer("9", "x"), user("2")]), ["u:1", "u:2"]);
}

#[test]
fn events_of_other_agents_become_context_from_the_user() {
    let args = json!({"arg1": "value", "arg2": [1, 2]}).as_object().unwrap().clone();
    let id = Some("7".to_owned());
    let other_call = FunctionCall { id: id.clone(), name: "tool1".into(), args, ..FunctionCall::default() };
    let content = Content::new("model", vec![Part::text("Some text"), PartData::FunctionCall(other_call).into()]);
    let response = json!({"result": "ok"}).as_object().unwrap().clone();
    let result = FunctionResponse { id, name: "tool1".into(), response, ..FunctionResponse::default() };
    let result = Content::new("user", vec![PartData::FunctionResponse(result).into()]);
    let events =
        [user("1"), event("other", content), event("other", result), model("2"), call(&["1"]), answer("1", "mine")];
    let expected = [
        "u:1",
        "u:For context:|[other] said: Some text|[other] called tool `tool1` with parameters: {\"arg1\":\"value\",\"arg2\":[1,2]}",
        "u:For context:|[other] `tool1` tool returned result: {\"result\":\"ok\"}",
        "m:2",
        "call(1)",
        "answer(1=mine)",
    ];
    assert_eq!(contents(&events), expected);
}

#[test]
fn calls_of_other_agents_without_name_and_arguments_become_context() {
    let nameless = PartData::FunctionCall(FunctionCall::default()).into();
    let answer = PartData::FunctionResponse(FunctionResponse::default()).into();
    assert_eq!(
        contents(&[event("other", Content::new("model", vec![nameless, answer]))]),
        [
            "u:For context:|[other] called tool `unknown_tool` with parameters: {}|[other] `unknown_tool` tool returned result: {}"
        ]
    );
}

#[test]
fn thoughts_and_empty_parts_of_other_agents_are_left_out() {
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
        let contents = contents(&[event("other", Content::new("model", vec![part.clone()]))]);
        assert!(contents.is_empty(), "{part:?}: {contents:?}");
    }
    for part in [image, file, code, output] {
        let mut view = PromptView::new(ME.into(), None, ResponseGrouping::PerCall);
        view.read(&[event("other", Content::new("model", vec![part.clone()]))].into_iter().collect());
        assert_eq!(view.contents()[0].parts, [Part::text("For context:"), part]);
    }
}

#[test]
fn an_agents_own_events_are_visible_if_a_part_is_relevant() {
    let signed = |part: Part| Part { thought_signature: Some("s".into()), ..part };
    let thought = |part: Part| Part { thought: true, ..part };
    let server_call: Part = serde_json::from_value(json!({"toolCall": {"id": "1"}})).unwrap();
    let server_answer: Part = serde_json::from_value(json!({"toolResponse": {"id": "1"}})).unwrap();
    let is_visible = |parts: &[Part]| !contents(&[event(ME, Content::new("model", parts.to_vec()))]).is_empty();
    assert!(!is_visible(&[]));
    assert!(!is_visible(&[Part::text("")]));
    assert!(!is_visible(&[thought(Part::text("hm"))]));
    assert!(!is_visible(&[thought(Part::text("")), Part::text("")]));
    assert!(is_visible(&[signed(thought(Part::text("hm")))]));
    assert!(is_visible(&[signed(Part::default())]));
    assert!(is_visible(&[signed(Part::text(""))]));
    assert!(is_visible(&[thought(Part::text("")), call_part("1")]));
    assert!(is_visible(std::slice::from_ref(&server_call)) && is_visible(&[thought(server_call)]));
    assert!(is_visible(std::slice::from_ref(&server_answer)) && is_visible(&[thought(server_answer)]));
}

#[test]
fn a_visible_event_keeps_its_thoughts_and_loses_its_empty_parts() {
    let parts = vec![Part { thought: true, ..Part::text("hm") }, Part::text(""), Part::default(), Part::text("so")];
    let content = Content::new("model", parts);
    assert_eq!(contents(&[event(ME, content.clone())]), ["m:hm|so"]);
    assert_eq!(contents(&[event("user", Content { role: None, ..content })]), ["u:hm|so"]);
    let call = Content::new("model", vec![Part::text(""), call_part("1"), Part::default()]);
    let mut view = PromptView::new(ME.into(), None, ResponseGrouping::PerCall);
    view.read(&[event(ME, call)].into_iter().collect());
    assert_eq!(view.contents()[0].parts, [call_part("1")]);
}

#[test]
fn confirmation_requests_and_decisions_are_left_out() {
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
    assert_eq!(contents(&events), ["u:1", "call(1)", "answer(1=done)"]);
    assert_eq!(current_turn(&events), ["u:1", "call(1)", "answer(1=done)"], "a decision does not start a turn");
    let with_text = [event(ME, question(Some("May I?"))), event("user", decision(Some("You may.")))];
    assert_eq!(contents(&with_text), ["m:May I?", "u:You may."]);
    assert_eq!(contents(&[event("other", question(Some("May I?")))]), ["u:For context:|[other] said: May I?"]);
}

#[test]
fn without_history_only_the_current_turn_is_included() {
    assert_eq!(current_turn(&[user("1"), model("1"), user("2")]), ["u:2"]);
    assert_eq!(
        current_turn(&[user("1"), model("1"), event("other", Content::model("hi"))]),
        ["u:For context:|[other] said: hi"]
    );
    assert_eq!(current_turn(&[user("1"), call(&["1"]), answer("1", "ok")]), ["u:1", "call(1)", "answer(1=ok)"]);
    let with_words = [user("1"), call(&["1"]), model("wait"), answer("1", "ok")];
    assert_eq!(current_turn(&with_words), ["u:1", "call(1)", "answer(1=ok)"]);
}

/// ADK sends no contents, which models reject.
#[test]
fn without_history_events_without_a_user_message_are_one_turn() {
    let events = [model("1"), call(&["1"]), answer("1", "ok")];
    assert_eq!(current_turn(&events), ["m:1", "call(1)", "answer(1=ok)"]);
}

/// ADK fails the run, because the call is not in the current turn.
#[test]
fn without_history_a_late_response_makes_the_turn_of_its_call_current() {
    let events = [user("0"), model("0"), user("1"), call(&["1"]), user("2"), answer("1", "pending"), answer("1", "ok")];
    assert_eq!(current_turn(&events), ["u:1", "call(1)", "answer(1=ok)"]);
}

#[test]
fn batched_responses_follow_all_consecutive_calls() {
    let row = [user("1"), call(&["1"]), answer("1", "a"), call(&["2"]), answer("2", "b")];
    assert_eq!(contents_with(ResponseGrouping::Batched, &row), ["u:1", "call(1)", "call(2)", "answer(1=a,2=b)"]);
    assert_eq!(contents(&row), ["u:1", "call(1)", "answer(1=a)", "call(2)", "answer(2=b)"]);
    let turns = [user("1"), call(&["1"]), answer("1", "a"), user("2"), call(&["2"]), answer("2", "b")];
    assert_eq!(contents_with(ResponseGrouping::Batched, &turns), contents(&turns));
}

#[test]
fn every_call_of_a_batch_has_a_response_as_soon_as_one_has() {
    let open = [call(&["1"]), call(&["2"])];
    assert_eq!(contents_with(ResponseGrouping::Batched, &open), ["call(1)", "call(2)"]);
    let half = [call(&["1"]), answer("1", "a"), call(&["2"])];
    assert_eq!(contents_with(ResponseGrouping::Batched, &half), ["call(1)", "call(2)", "answer(1=a,2=no answer yet)"]);
    let later = [call(&["1"]), answer("1", "a"), call(&["2"]), answer("2", "b"), answer("1", "c"), user("1")];
    assert_eq!(contents_with(ResponseGrouping::Batched, &later), ["call(1)", "call(2)", "answer(1=c,2=b)", "u:1"]);
}

#[test]
fn a_late_response_to_a_call_of_a_batch_restores_the_batch_up_to_that_call() {
    let events = [user("1"), call(&["1"]), answer("1", "a"), call(&["2"]), user("2"), answer("2", "b")];
    assert_eq!(contents_with(ResponseGrouping::Batched, &events), ["u:1", "call(1)", "call(2)", "answer(1=a,2=b)"]);
}

#[test]
fn unknown_roles_are_replaced_by_the_role_of_the_author() {
    let role = |author: &str, content: Content| {
        let mut view = PromptView::new(ME.into(), None, ResponseGrouping::PerCall);
        view.read(&[event(author, content)].into_iter().collect());
        view.contents()[0].role.clone().unwrap_or_default()
    };
    for original in ["user", "model", "assistant", "system", "function", ""] {
        assert_eq!(role("user", Content::new(original, vec![Part::text("hi")])), "user", "the user as `{original}`");
    }
    for original in ["model", "assistant", "system", ""] {
        assert_eq!(role(ME, Content::new(original, vec![Part::text("hi")])), "model", "the agent as `{original}`");
    }
    assert_eq!(role(ME, Content::new("user", vec![call_part("1")])), "model", "only models call");
}

#[test]
fn calls_and_responses_without_ids_are_paired_by_name() {
    let nameless = |part: Part| match part.data {
        PartData::FunctionCall(call) => Part::from(PartData::FunctionCall(FunctionCall { id: None, ..call })),
        PartData::FunctionResponse(response) => {
            PartData::FunctionResponse(FunctionResponse { id: Some(String::new()), ..response }).into()
        }
        _ => part,
    };
    let call = |id| event(ME, Content::new("model", vec![nameless(call_part(id))]));
    let answer = |text| event("user", Content::new("user", vec![nameless(answer_part("1", text))]));
    assert_eq!(contents(&[user("1"), call("1"), answer("a"), user("2")]), ["u:1", "call()", "answer(=a)", "u:2"]);
    assert_eq!(contents(&[user("1"), call("1"), user("2")]), ["u:1", "call()", "answer(?=no answer yet)", "u:2"]);
    assert_eq!(contents(&[user("1"), model("2"), answer("a")]), ["u:1", "m:2"], "a response without a call");
}

/// ADK drops such a message.
#[test]
fn a_message_without_a_role_has_the_role_of_the_user() {
    let mut content = Content::user("1");
    content.role = None;
    assert_eq!(contents(&[event("user", content)]), ["u:1"]);
}

#[test]
fn an_agent_sees_its_branch_and_the_branches_above_and_below_it() {
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
        in_branch(Some("root"), "parent"),
        in_branch(Some("root.agent_1"), "own"),
        in_branch(Some("root.agent_10"), "sibling"),
        in_branch(Some("root.agent_1.deeper"), "child"),
    ]
    .into_iter()
    .collect();
    let texts = |branch: Option<&str>| -> Vec<String> {
        let mut view = PromptView::new(ME.into(), branch.map(Into::into), ResponseGrouping::PerCall);
        view.read(&events);
        view.contents().iter().map(|content| content.text()).collect()
    };
    assert_eq!(texts(Some("root.agent_1")), ["none", "parent", "own", "child"]);
    assert_eq!(texts(Some("")), ["none", "parent", "own", "sibling", "child"]);
    assert_eq!(texts(None), ["none", "parent", "own", "sibling", "child"]);
}
