//! Scripted models that are built in Rust.

use std::time::Duration;

use futures::{FutureExt, StreamExt};
use hatchery_core::{Content, FunctionCall, LlmRequest, Model, ModelErrorKind, Part, PartData, StreamingMode};
use hatchery_models::scripted::{Reply, Scripted, Turn};
use serde_json::{Value, json};

use crate::support::{call_error, content, deltas, generate, parts, request, stream, texts, user_request};

fn answered(user: &str, tool: &str, result: Value) -> LlmRequest {
    request([
        Content::user(user),
        content(json!({ "role": "model", "parts": [{ "functionCall": { "name": tool } }] })),
        content(json!({ "role": "user", "parts": [{ "functionResponse": { "name": tool, "response": result } }] })),
    ])
}

async fn text(model: &Scripted, request: LlmRequest) -> String {
    texts(&[generate(model, request).await.unwrap()]).concat()
}

async fn args(args: Value, request: LlmRequest) -> Value {
    let model = Scripted::new().default_reply(Reply::call("t", args));
    let response = generate(&model, request).await.unwrap();
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
async fn the_first_matching_turn_replies() {
    let call = generate(&dice(), user_request("Please ROLL!")).await.unwrap();
    let expected = FunctionCall {
        name: "roll_die".into(),
        args: json!({ "sides": 6 }).as_object().unwrap().clone(),
        ..FunctionCall::default()
    };
    assert_eq!(parts(&[call]), [PartData::FunctionCall(expected).into()]);
    assert_eq!(text(&dice(), answered("roll", "roll_die", json!({ "result": 4 }))).await, "You rolled 4.");
    assert_eq!(text(&dice(), user_request("Hello")).await, "I only know dice.");
}

#[tokio::test]
async fn a_user_text_does_not_match_while_a_tool_result_is_last() {
    assert_eq!(text(&dice(), answered("roll", "other", json!({}))).await, "I only know dice.");
}

#[tokio::test]
async fn only_the_last_user_text_is_matched() {
    let history = [Content::user("roll"), Content::model("4"), Content::user("thanks")];
    assert_eq!(text(&dice(), request(history)).await, "I only know dice.");
}

#[tokio::test]
async fn an_instruction_among_the_contents_is_no_message() {
    let mut rolled = answered("roll", "roll_die", json!({ "result": 4 }));
    rolled.contents.push_back(Content::instruction("Do not roll.").into());
    assert_eq!(text(&dice(), rolled).await, "You rolled 4.");
    assert_eq!(text(&dice(), request([Content::instruction("roll")])).await, "I only know dice.");
}

#[tokio::test]
async fn all_conditions_of_a_turn_must_match_and_one_of_their_alternatives() {
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
    let mut poet = user_request("write");
    poet.system_instructions = vec!["Be kind.".into(), "You are an agent. Your internal name is \"Poet\".".into()];
    assert_eq!(text(&model, poet).await, "poet");
    assert_eq!(text(&model, user_request("write")).await, "none");
}

#[tokio::test]
async fn texts_of_other_agents_are_context_and_not_the_users_text() {
    let model = Scripted::new()
        .turn(Turn::new("Improve: {context}").context("needs WORK"))
        .turn(Turn::new("Begin with {user}").user("poem"));
    let quote =
        |text: &str| content(json!({ "role": "user", "parts": [{ "text": "For context:" }, { "text": text }] }));
    let transferred =
        request([Content::user("A poem"), quote("[root] called tool `transfer_to_agent` with parameters: {}")]);
    assert_eq!(text(&model, transferred).await, "Begin with A poem");
    let critic = request([Content::user("A poem"), Content::model("Roses"), quote("[critic] said: It needs work.")]);
    assert_eq!(text(&model, critic).await, "Improve: It needs work.");
}

#[tokio::test]
async fn a_request_without_a_matching_turn_is_an_error_that_explains_how_to_add_one() {
    let model = Scripted::new().on_user("a", "b");
    let error = call_error(&model, user_request("hello \"you\""), StreamingMode::On).await;
    assert_eq!(error.kind, ModelErrorKind::BadRequest);
    assert_eq!(
        error.to_string(),
        "model `the-model`: no turn of this script matches: the last user text is \"hello \\\"you\\\"\"; \
         add a turn whose `when` matches it, or a last one without `when`, which always matches"
    );
    let error = call_error(&model, answered("hi", "look_up", json!({})), StreamingMode::Off).await;
    assert!(
        error.message.contains("the last message is the answer of tool `look_up`, the last user text \"hi\""),
        "{error}"
    );
}

#[tokio::test]
async fn a_streamed_text_has_its_chunks_and_the_last_has_the_finish_reason() {
    let model = Scripted::new().default_reply(Reply::text("abcdefgh").chunked(3));
    let deltas = deltas(&model, user_request("12345")).await;
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
async fn chunks_never_split_a_character_and_are_never_empty() {
    let pieces = |text: &'static str, count| async move {
        texts(&deltas(&Scripted::new().default_reply(Reply::text(text).chunked(count)), user_request("?")).await)
    };
    assert_eq!(pieces("äöü", 3).await, ["ä", "ö", "ü"]);
    assert_eq!(pieces("ab", 9).await, ["a", "b"]);
    assert_eq!(pieces("ab", 0).await, ["ab"]);
    assert_eq!(pieces("", 3).await, [""]);
}

#[tokio::test]
async fn without_streaming_the_chunks_are_one_response() {
    let model = Scripted::new().default_reply(Reply::chunks(["You ", "rolled"]));
    assert_eq!(texts(&[generate(&model, user_request("?")).await.unwrap()]), ["You rolled"]);
    assert_eq!(texts(&deltas(&model, user_request("?")).await), ["You ", "rolled"]);
}

#[tokio::test]
async fn a_reply_may_contain_thoughts_texts_parallel_calls_and_any_part() {
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
    let deltas = deltas(&model, user_request("?")).await;
    assert_eq!(deltas.len(), 5);
    assert_eq!(deltas[4].usage_metadata.as_ref().unwrap().thoughts_token_count, Some(2));
    let whole = generate(&model, user_request("?")).await.unwrap();
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
    let deltas = deltas(&model, user_request("?")).await;
    assert_eq!(deltas.len(), 1);
    assert_eq!((deltas[0].content.clone(), deltas[0].finish_reason.as_deref()), (None, Some("STOP")));
}

#[tokio::test]
async fn a_finish_reason_other_than_stop_is_an_error_code_beside_the_text() {
    let model = Scripted::new().default_reply(Reply::text("half").finish("MAX_TOKENS"));
    let response = generate(&model, user_request("?")).await.unwrap();
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
    assert_eq!(text(&weather, user_request("The Weather in  Paris?")).await, "Paris|The Weather in  Paris?");
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
    assert_eq!(text(&model, user_request("?")).await, r#"{"json": {"user": 1}} {tools} {tool.} {} { {user"#);
}

#[tokio::test]
async fn an_argument_that_is_one_placeholder_keeps_the_type() {
    let given = json!({ "n": "{number}", "text": "n={number}", "list": ["{user}", true], "map": { "r": "{tool.r}" } });
    let expected = json!({ "n": 20, "text": "n=20", "list": ["roll 20 then 6", true], "map": { "r": [1, 2] } });
    assert_eq!(args(given, answered("roll 20 then 6", "t", json!({ "r": [1, 2] }))).await, expected);
    assert_eq!(args(json!({ "n": "{number}" }), user_request("it costs 12.50.")).await, json!({ "n": 12.5 }));
    assert_eq!(args(json!({ "n": "{number}" }), user_request("d6. Go")).await, json!({ "n": 6 }));
}

#[tokio::test]
async fn arguments_are_an_object_or_null() {
    assert_eq!(args(Value::Null, user_request("x")).await, json!({}));
    let error =
        call_error(&Scripted::new().default_reply(Reply::call("t", json!([1]))), user_request("x"), StreamingMode::Off)
            .await;
    assert_eq!(error.message, "the arguments of a call are not a JSON object");
}

#[tokio::test]
async fn a_placeholder_without_a_value_is_an_error_that_names_it() {
    let error = |text: &'static str, request| async move {
        let error = call_error(&Scripted::new().default_reply(text), request, StreamingMode::Off).await;
        assert_eq!(error.kind, ModelErrorKind::BadRequest);
        error.message
    };
    assert_eq!(
        error("{number}", user_request("none")).await,
        "the reply uses {number}, but the user's text \"none\" has none"
    );
    assert_eq!(error("{context}", user_request("x")).await, "the reply uses {context}, but no other agent has spoken");
    assert_eq!(
        error("{tool.x}", user_request("x")).await,
        "the reply uses {tool}, but the last message is not a tool result"
    );
    let after = || answered("x", "look", json!({ "error": "gone" }));
    assert_eq!(
        error("{tool.total.sum}", after()).await,
        "the reply uses `total.sum` of the result of `look`, which is {\"error\":\"gone\"}"
    );
    assert_eq!(
        error("{tools.other}", after()).await,
        "the reply uses {tools.other}, but the last message has no result of that tool"
    );
    let long = error("{tool.x}", answered("x", "look", json!({ "long": "y".repeat(300) }))).await;
    assert!(long.ends_with("yyy…") && long.len() < 300, "{long}");
}

#[tokio::test]
async fn an_error_without_after_fails_the_call() {
    let model = Scripted::new()
        .on_user("limit", Reply::status(429, "slow down, {user}"))
        .default_reply(Reply::error(ModelErrorKind::Network, "gone"));
    let error = call_error(&model, user_request("limit"), StreamingMode::On).await;
    assert_eq!((error.kind, error.status), (ModelErrorKind::RateLimited, Some(429)));
    assert_eq!(error.message, "slow down, limit");
    let error = call_error(&model, user_request("?"), StreamingMode::Off).await;
    assert_eq!((error.kind, error.status, error.message.as_str()), (ModelErrorKind::Network, None, "gone"));
}

#[tokio::test]
async fn an_error_with_after_breaks_the_stream_there() {
    let reply = Reply::chunks(["a", "b", "c"]).with_error(ModelErrorKind::Network, "cut").after(2);
    let model = Scripted::new().default_reply(reply);
    let mut items = stream(&model, user_request("?")).await;
    assert_eq!(items.pop().unwrap().unwrap_err().kind, ModelErrorKind::Network);
    let before: Vec<_> = items.into_iter().map(Result::unwrap).collect();
    assert_eq!(texts(&before), ["a", "b"]);
    assert!(before.iter().all(|delta| delta.finish_reason.is_none()));
    assert_eq!(generate(&model, user_request("?")).await.unwrap_err().message, "cut");
}

#[tokio::test]
async fn a_sequence_replies_in_order_and_records_the_requests() {
    let model = Scripted::sequence([Reply::call("t", json!({})), Reply::text("done")]);
    generate(&model, user_request("one")).await.unwrap();
    assert_eq!(text(&model, user_request("two")).await, "done");
    let error = call_error(&model, user_request("three"), StreamingMode::Off).await;
    assert_eq!(error.message, "the sequence has 2 replies, but this is call 3");
    let asked: Vec<_> = model.requests().iter().map(|request| request.contents[0].text()).collect();
    assert_eq!(asked, ["one", "two", "three"]);
}

#[tokio::test]
async fn requests_are_recorded_only_on_demand() {
    let forgetful = Scripted::new().default_reply("x");
    generate(&forgetful, user_request("?")).await.unwrap();
    assert!(forgetful.requests().is_empty());
    let recording = Scripted::new().default_reply("x").record_requests();
    generate(&recording, user_request("?")).await.unwrap();
    assert_eq!(recording.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn delays_are_applied_before_the_first_chunk_and_between_chunks() {
    let reply = Reply::chunks(["a", "b"]).delay(Duration::from_secs(5)).chunk_delay(Duration::from_secs(2));
    let model = Scripted::new().default_reply(reply);
    let start = tokio::time::Instant::now();
    let mut stream = model.generate(user_request("?"), StreamingMode::On).await.unwrap();
    assert!(stream.next().now_or_never().is_none());
    stream.next().await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 5);
    stream.next().await.unwrap().unwrap();
    assert_eq!(start.elapsed().as_secs(), 7);
    assert!(stream.next().await.is_none());
    let failing = Scripted::new().default_reply(Reply::status(500, "x").delay(Duration::from_secs(3)));
    call_error(&failing, user_request("?"), StreamingMode::Off).await;
    assert_eq!(start.elapsed().as_secs(), 10);
}

#[tokio::test]
async fn tokens_are_counted_for_the_instructions_and_the_recent_history() {
    let mut request = answered("abcd", "tool", json!({ "key": "value123", "n": 1 }));
    request.contents.push_front(Content::user("an earlier text").into());
    request.system_instructions = vec!["12345678".into()];
    let model = Scripted::new().default_reply("ok");
    let usage = generate(&model, request).await.unwrap().usage_metadata.unwrap();
    // 8 of the instructions, 4 of the user, 4 of the call, 4 + 3 + 8 + 1 + 4 of the answer: 36 bytes.
    assert_eq!(usage.prompt_token_count, Some(9));
}
