use std::time::Duration;

use futures::{FutureExt, StreamExt};
use hatchery_core::{Content, FunctionCall, LlmRequest, Model, ModelErrorKind, Part, PartData, StreamingMode};
use hatchery_models::scripted::{Reply, Scripted, Turn};
use serde_json::{Value, json};

use crate::support::{content, deltas, parts, refusal, request, says, stream_of, texts, whole};

fn answered(user: &str, tool: &str, result: Value) -> LlmRequest {
    request([
        Content::user(user),
        content(json!({ "role": "model", "parts": [{ "functionCall": { "name": tool } }] })),
        content(json!({ "role": "user", "parts": [{ "functionResponse": { "name": tool, "response": result } }] })),
    ])
}

async fn text(model: &Scripted, request: LlmRequest) -> String {
    texts(&[whole(model, request).await.unwrap()]).concat()
}

async fn args(args: Value, request: LlmRequest) -> Value {
    let model = Scripted::new().default_reply(Reply::call("t", args));
    let response = whole(&model, request).await.unwrap();
    let content = response.content.unwrap();
    Value::Object(content.function_calls().next().unwrap().args.clone())
}

fn dice() -> Scripted {
    Scripted::new()
        .on_user("roll", Reply::call("roll_die", json!({ "sides": 6 })))
        .on_tool("roll_die", "You rolled {tool.result}.")
        .default_reply("I only know dice.")
}

#[tokio::test]
async fn the_first_turn_that_fits_answers() {
    let call = whole(&dice(), says("Please ROLL!")).await.unwrap();
    let expected = FunctionCall {
        name: "roll_die".into(),
        args: json!({ "sides": 6 }).as_object().unwrap().clone(),
        ..FunctionCall::default()
    };
    assert_eq!(parts(&[call]), [PartData::FunctionCall(expected).into()]);
    assert_eq!(text(&dice(), answered("roll", "roll_die", json!({ "result": 4 }))).await, "You rolled 4.");
    assert_eq!(text(&dice(), says("Hello")).await, "I only know dice.");
}

#[tokio::test]
async fn a_user_text_does_not_fit_while_a_tools_answer_is_last() {
    assert_eq!(text(&dice(), answered("roll", "other", json!({}))).await, "I only know dice.");
}

#[tokio::test]
async fn a_new_user_text_counts_not_an_earlier_one() {
    let history = [Content::user("roll"), Content::model("4"), Content::user("thanks")];
    assert_eq!(text(&dice(), request(history)).await, "I only know dice.");
}

#[tokio::test]
async fn conditions_of_one_turn_must_all_fit_and_alternatives_one() {
    let model = Scripted::from_turns([
        Turn::new("both").user("a").user("b").tool("x").tool("y"),
        Turn::new("failed").result("error"),
        Turn::new("third").step(3),
        Turn::new("poet").system("name is \"poet\"").user("write"),
        Turn::new("none"),
    ]);
    assert_eq!(text(&model, answered("B", "y", json!({}))).await, "both");
    assert_eq!(text(&model, answered("C", "y", json!({}))).await, "none");
    assert_eq!(text(&model, answered("C", "z", json!({ "error": "no" }))).await, "failed");
    let mut two_steps = answered("q", "z", json!({}));
    two_steps.contents.push_back(Content::model("still here").into());
    assert_eq!(text(&model, two_steps).await, "third");
    let mut poet = says("write");
    poet.system_instructions = vec!["Be kind.".into(), "You are an agent. Your internal name is \"Poet\".".into()];
    assert_eq!(text(&model, poet).await, "poet");
    assert_eq!(text(&model, says("write")).await, "none");
}

#[tokio::test]
async fn what_other_agents_did_is_context_and_not_the_users_text() {
    let model = Scripted::new()
        .turn(Turn::new("Improve: {context}").context("needs WORK"))
        .turn(Turn::new("Begin with {user}").user("poem"));
    let said = |text: &str| content(json!({ "role": "user", "parts": [{ "text": "For context:" }, { "text": text }] }));
    let transferred =
        request([Content::user("A poem"), said("[root] called tool `transfer_to_agent` with parameters: {}")]);
    assert_eq!(text(&model, transferred).await, "Begin with A poem");
    let critic = request([Content::user("A poem"), Content::model("Roses"), said("[critic] said: It needs work.")]);
    assert_eq!(text(&model, critic).await, "Improve: It needs work.");
}

#[tokio::test]
async fn nothing_that_fits_is_an_error_that_says_how_to_add_a_turn() {
    let model = Scripted::new().on_user("a", "b");
    let error = refusal(&model, says("hello \"you\""), StreamingMode::On).await;
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert_eq!(
        error.to_string(),
        "model `the-model`: no turn of this script fits: the last user text is \"hello \\\"you\\\"\"; \
         add a turn whose `when` fits it, or a last one without `when`, which fits always"
    );
    let error = refusal(&model, answered("hi", "look_up", json!({})), StreamingMode::Off).await;
    assert!(
        error.message.contains("the last message is the answer of tool `look_up`, the last user text \"hi\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_streamed_text_comes_in_its_pieces_and_the_last_carries_the_end() {
    let model = Scripted::new().default_reply(Reply::text("abcdefgh").chunked(3));
    let deltas = deltas(&model, says("12345")).await;
    assert_eq!(texts(&deltas), ["ab", "cde", "fgh"]);
    assert!(deltas[..2].iter().all(|delta| delta.finish_reason.is_none() && delta.usage_metadata.is_none()));
    let last = &deltas[2];
    assert_eq!(last.finish_reason.as_deref(), Some("STOP"));
    assert_eq!(last.error_code, None);
    assert_eq!(last.model_version.as_deref(), Some("the-model"));
    let usage = last.usage_metadata.as_ref().unwrap();
    assert_eq!(
        (usage.prompt_token_count, usage.candidates_token_count, usage.total_token_count),
        (Some(2), Some(2), Some(4))
    );
    assert_eq!(usage.thoughts_token_count, None);
}

#[tokio::test]
async fn pieces_never_break_a_character_and_are_never_empty() {
    let pieces = |text: &'static str, count| async move {
        texts(&deltas(&Scripted::new().default_reply(Reply::text(text).chunked(count)), says("?")).await)
    };
    assert_eq!(pieces("äöü", 3).await, ["ä", "ö", "ü"]);
    assert_eq!(pieces("ab", 9).await, ["a", "b"]);
    assert_eq!(pieces("ab", 0).await, ["ab"]);
    assert_eq!(pieces("", 3).await, [""]);
}

#[tokio::test]
async fn a_whole_answer_is_one_response_with_the_pieces_joined() {
    let model = Scripted::new().default_reply(Reply::chunks(["You ", "rolled"]));
    assert_eq!(texts(&[whole(&model, says("?")).await.unwrap()]), ["You rolled"]);
    assert_eq!(texts(&deltas(&model, says("?")).await), ["You ", "rolled"]);
}

#[tokio::test]
async fn a_reply_may_hold_thoughts_texts_parallel_calls_and_any_part() {
    let image: Part =
        serde_json::from_value(json!({ "inlineData": { "mimeType": "image/png", "data": "AAEC" } })).unwrap();
    let reply = Reply::new()
        .and_thought("hmmmmmmm")
        .and_text("Two at once.")
        .and_call("a", json!({}))
        .and_call("b", json!({ "x": [1] }))
        .with_id("b-1")
        .and_part(image.clone());
    let model = Scripted::new().default_reply(reply);
    let deltas = deltas(&model, says("?")).await;
    assert_eq!(deltas.len(), 5);
    assert_eq!(deltas[4].usage_metadata.as_ref().unwrap().thoughts_token_count, Some(2));
    let whole = whole(&model, says("?")).await.unwrap();
    assert_eq!(parts(&deltas), whole.content.clone().unwrap().parts);
    let content = whole.content.unwrap();
    assert_eq!(content.role.as_deref(), Some("model"));
    assert!(content.parts[0].thought);
    let calls: Vec<_> = content.function_calls().map(|call| (call.name.as_str(), call.id.as_deref())).collect();
    assert_eq!(calls, [("a", None), ("b", Some("b-1"))]);
    assert_eq!(content.parts[4], image);
}

#[tokio::test]
async fn an_empty_reply_is_one_response_without_content() {
    let model = Scripted::new().default_reply(Reply::new());
    let deltas = deltas(&model, says("?")).await;
    assert_eq!(deltas.len(), 1);
    assert_eq!((deltas[0].content.clone(), deltas[0].finish_reason.as_deref()), (None, Some("STOP")));
}

#[tokio::test]
async fn another_end_than_stop_is_an_error_code_beside_the_text() {
    let model = Scripted::new().default_reply(Reply::text("half").finish("MAX_TOKENS"));
    let response = whole(&model, says("?")).await.unwrap();
    assert_eq!(response.finish_reason.as_deref(), Some("MAX_TOKENS"));
    assert_eq!(response.error_code.as_deref(), Some("MAX_TOKENS"));
    assert_eq!(
        response.error_message.as_deref(),
        Some("the answer was cut off at the limit of tokens; raise maxOutputTokens")
    );
}

#[tokio::test]
async fn placeholders_take_their_values_from_the_user_and_the_tools() {
    let weather = Scripted::new().on_user("weather in", "{rest}|{user}");
    assert_eq!(text(&weather, says("The Weather in  Paris?")).await, "Paris|The Weather in  Paris?");
    let result = json!({ "a": { "b": [10, { "c": "deep" }] }, "n": null });
    let model = Scripted::new().default_reply("{tool.a.b.1.c} {tool.a.b.0} {tool.n} {tool.a}");
    assert_eq!(text(&model, answered("?", "t", result)).await, r#"deep 10 null {"b":[10,{"c":"deep"}]}"#);
    let tools = request([
        Content::user("?"),
        content(json!({ "role": "user", "parts": [
            { "functionResponse": { "name": "x", "response": { "v": 1 } } },
            { "functionResponse": { "name": "y", "response": { "v": 2 } } },
        ] })),
    ]);
    let model = Scripted::new().on_tool("x", "{tool.v} {tools.y.v} {tools.1.v} {tools.0}");
    assert_eq!(text(&model, tools).await, r#"1 2 2 {"v":1}"#);
}

#[tokio::test]
async fn other_braces_are_text() {
    let model = Scripted::new().default_reply(r#"{"json": {"user": 1}} {tools} {tool.} {} { {user"#);
    assert_eq!(text(&model, says("?")).await, r#"{"json": {"user": 1}} {tools} {tool.} {} { {user"#);
}

#[tokio::test]
async fn an_argument_that_is_one_placeholder_keeps_the_type() {
    let given = json!({ "n": "{number}", "text": "n={number}", "list": ["{user}", true], "map": { "r": "{tool.r}" } });
    let expected = json!({ "n": 20, "text": "n=20", "list": ["roll 20 then 6", true], "map": { "r": [1, 2] } });
    assert_eq!(args(given, answered("roll 20 then 6", "t", json!({ "r": [1, 2] }))).await, expected);
    assert_eq!(args(json!({ "n": "{number}" }), says("it costs 12.50.")).await, json!({ "n": 12.5 }));
    assert_eq!(args(json!({ "n": "{number}" }), says("d6. Go")).await, json!({ "n": 6 }));
}

#[tokio::test]
async fn arguments_are_an_object_or_nothing() {
    assert_eq!(args(Value::Null, says("x")).await, json!({}));
    let error =
        refusal(&Scripted::new().default_reply(Reply::call("t", json!([1]))), says("x"), StreamingMode::Off).await;
    assert_eq!(error.message, "the arguments of a call are no JSON object");
}

#[tokio::test]
async fn a_placeholder_without_a_value_is_an_error_that_names_it() {
    let error = |text: &'static str, request| async move {
        let error = refusal(&Scripted::new().default_reply(text), request, StreamingMode::Off).await;
        assert_eq!(error.kind, ModelErrorKind::BadRequest);
        error.message
    };
    assert_eq!(
        error("{number}", says("none")).await,
        "the reply wants {number}, but the user's text \"none\" has none"
    );
    assert_eq!(error("{context}", says("x")).await, "the reply wants {context}, but no other agent has spoken");
    assert_eq!(error("{tool.x}", says("x")).await, "the reply wants {tool}, but the last message is no tool's answer");
    let after = || answered("x", "look", json!({ "error": "gone" }));
    assert_eq!(
        error("{tool.total.sum}", after()).await,
        "the reply wants `total.sum` of what `look` answered, which is {\"error\":\"gone\"}"
    );
    assert_eq!(
        error("{tools.other}", after()).await,
        "the reply wants {tools.other}, but no such tool has just answered"
    );
    let long = error("{tool.x}", answered("x", "look", json!({ "long": "y".repeat(300) }))).await;
    assert!(long.ends_with("yyy…") && long.len() < 300, "{long}");
}

#[tokio::test]
async fn a_failure_without_pieces_fails_the_call_itself() {
    let model = Scripted::new()
        .on_user("limit", Reply::status(429, "slow down, {user}"))
        .default_reply(Reply::error(ModelErrorKind::Network, "gone"));
    let error = refusal(&model, says("limit"), StreamingMode::On).await;
    assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimited, Some(429)));
    assert_eq!(error.message, "slow down, limit");
    let error = refusal(&model, says("?"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.status, error.message.as_str()), (ModelErrorKind::Network, None, "gone"));
}

#[tokio::test]
async fn a_failure_after_some_pieces_breaks_the_stream_there() {
    let reply = Reply::chunks(["a", "b", "c"]).with_error(ModelErrorKind::Network, "cut").after(2);
    let model = Scripted::new().default_reply(reply);
    let mut items = stream_of(&model, says("?")).await;
    assert_eq!(items.pop().unwrap().unwrap_err().kind, ModelErrorKind::Network);
    let before: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(texts(&before), ["a", "b"]);
    assert!(before.iter().all(|delta| delta.finish_reason.is_none()));
    assert_eq!(whole(&model, says("?")).await.unwrap_err().message, "cut");
}

#[tokio::test]
async fn a_sequence_answers_call_by_call_and_keeps_the_requests() {
    let model = Scripted::sequence([Reply::call("t", json!({})), Reply::text("done")]);
    whole(&model, says("one")).await.unwrap();
    assert_eq!(text(&model, says("two")).await, "done");
    let error = refusal(&model, says("three"), StreamingMode::Off).await;
    assert_eq!(error.message, "the sequence has 2 replies, and call 3 came");
    let asked: Vec<_> = model.requests().iter().map(|request| request.contents[0].text()).collect();
    assert_eq!(asked, ["one", "two", "three"]);
}

#[tokio::test]
async fn requests_are_kept_only_when_asked_for() {
    let forgetful = Scripted::new().default_reply("x");
    whole(&forgetful, says("?")).await.unwrap();
    assert!(forgetful.requests().is_empty());
    let recording = Scripted::new().default_reply("x").record_requests();
    whole(&recording, says("?")).await.unwrap();
    assert_eq!(recording.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn delays_come_before_the_first_and_between_further_pieces() {
    let reply = Reply::chunks(["a", "b"]).delay(Duration::from_secs(5)).chunk_delay(Duration::from_secs(2));
    let model = Scripted::new().default_reply(reply);
    let start = tokio::time::Instant::now();
    let mut stream = model.generate(says("?"), StreamingMode::On).await.unwrap();
    assert!(stream.next().now_or_never().is_none());
    stream.next().await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
    stream.next().await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 7);
    assert!(stream.next().await.is_none());
    let failing = Scripted::new().default_reply(Reply::status(500, "x").delay(Duration::from_secs(3)));
    refusal(&failing, says("?"), StreamingMode::Off).await;
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn tokens_are_counted_for_the_instructions_and_what_came_since_the_user_spoke() {
    let mut request = answered("abcd", "tool", json!({ "key": "value123", "n": 1 }));
    request.contents.push_front(Content::user("an earlier text").into());
    request.system_instructions = vec!["12345678".into()];
    let model = Scripted::new().default_reply("ok");
    let usage = whole(&model, request).await.unwrap().usage_metadata.unwrap();
    // 8 of the instructions, 4 of the user, 4 of the call, 4 + 3 + 8 + 1 + 4 of the answer: 36 bytes.
    assert_eq!(usage.prompt_token_count, Some(9));
}
