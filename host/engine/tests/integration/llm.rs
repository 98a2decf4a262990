//! LLM agents: responses, streaming, instructions, limits, failures.

use std::sync::Arc;

use hatchery_core::{Blob, Content, IncludeContents, Instruction, ModelErrorKind, Part, PartData, RunError, RunLimit};
use hatchery_engine::{App, AppSettings, RunSettings};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn a_text_is_answered_and_stored() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("hello"))).await;
    assert_eq!(app.transcript("hi").await, ["root: hello"]);
    let stored: Vec<_> = app.session().await.events.iter().map(|event| brief(event)).collect();
    assert_eq!(stored, ["user: hi", "root: hello"]);
}

#[tokio::test]
async fn chunks_are_yielded_but_only_the_complete_response_is_stored() {
    let app =
        Harness::new(llm("root", Scripted::new().default_reply(Reply::chunks(["You ", "win"])))).await.streaming();
    let events = app.run("hi").await;
    let short: Vec<_> = events.iter().map(|event| brief(event)).collect();
    assert_eq!(short, ["root~: You ", "root~: win", "root: You win"]);
    assert!(events.iter().all(|event| event.id == events[0].id), "chunks and the complete response share an id");
    assert_eq!(app.session().await.events.len(), 2);
}

#[tokio::test]
async fn without_streaming_there_are_no_chunks() {
    let app = Harness::new(llm("root", Scripted::new().default_reply(Reply::chunks(["You ", "win"])))).await;
    assert_eq!(app.transcript("hi").await, ["root: You win"]);
}

#[tokio::test]
async fn thoughts_and_answers_keep_their_order_in_the_complete_response() {
    let reply = Reply::new().and_thought("hm ").and_thought("so").and_text("A").and_thought("wait").and_text("B");
    let app = Harness::new(llm("root", Scripted::new().default_reply(reply))).await.streaming();
    let events = app.run("hi").await;
    let response = events.last().unwrap().content.as_ref().unwrap();
    let parts: Vec<_> = response.parts.iter().map(|part| (part.thought, part.as_text().unwrap())).collect();
    assert_eq!(parts, [(true, "hm so"), (false, "A"), (true, "wait"), (false, "B")]);
}

#[tokio::test]
async fn a_streamed_call_runs_its_tool_once_and_keeps_its_id() {
    let model =
        Scripted::new().on_tool("roll", "done").default_reply(Reply::text("rolling").and_call("roll", json!({})));
    let agent = llm_with("root", model, |llm| llm.tools = vec![tool("roll", |_, _| Ok(json!(4)))]);
    let app = Harness::new(agent).await.streaming();
    let events = app.run("hi").await;
    let ids: Vec<_> =
        events.iter().flat_map(|event| event.function_calls()).filter_map(|call| call.id.clone()).collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(ids[0], ids[1]);
    assert!(ids[0].starts_with("adk-"));
    assert_eq!(events.iter().flat_map(|event| event.function_responses()).count(), 1);
}

#[tokio::test]
async fn the_next_turn_sees_the_last_one() {
    let model = Arc::new(Scripted::sequence(["one", "two"]));
    let app = Harness::new(llm_on("root", &model, |_| {})).await;
    app.run("a").await;
    app.run("b").await;
    let texts: Vec<_> = model.requests()[1].contents.iter().map(|content| content.text()).collect();
    assert_eq!(texts, ["a", "one", "b"]);
}

#[tokio::test]
async fn without_history_only_the_turn_is_sent() {
    let model = Arc::new(Scripted::sequence(["one", "two"]));
    let app = Harness::new(llm_on("root", &model, |llm| llm.include_contents = IncludeContents::None)).await;
    app.run("a").await;
    app.run("b").await;
    let texts: Vec<_> = model.requests()[1].contents.iter().map(|content| content.text()).collect();
    assert_eq!(texts, ["b"]);
}

#[tokio::test]
async fn instructions_are_rendered_in_the_order_global_own_identity() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let agent = llm_on("root", &model, |llm| {
        llm.global_instruction = Instruction::Template("Speak {user:tongue}.".into());
        llm.instruction = Instruction::Template("City: {city}. {missing?}{{ \"json\": 1 }} {123}".into());
    });
    let app = Harness::with_state(agent, json!({"user:tongue": "Latin", "city": "Rome"})).await;
    app.run("hi").await;
    assert_eq!(
        model.requests()[0].system_instructions,
        [
            "Speak Latin.",
            "City: Rome. {{ \"json\": 1 }} {123}",
            "You are an agent. Your internal name is \"root\". The description about you is \"Does root.\"."
        ]
    );
}

#[tokio::test]
async fn the_error_for_a_missing_key_of_an_instruction_names_it() {
    let agent = llm_with("root", Scripted::new().default_reply("x"), |llm| {
        llm.instruction = Instruction::Template("City: {city}".into());
    });
    let (events, error) = Harness::new(agent).await.expect_error("hi").await;
    let text = "agent `root`: its instruction needs state key `city`; set it, or write `{city?}` if it may be missing";
    assert_eq!(error.to_string(), text);
    assert_eq!(events, [format!("root: error INSTRUCTION_INCOMPLETE: {text}")]);
}

#[tokio::test]
async fn an_artifact_in_an_instruction_is_its_text_and_other_files_are_json() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let template = "{artifact.note} {artifact.notes.txt} {artifact.a.png}";
    let agent = llm_on("root", &model, |llm| llm.instruction = Instruction::Template(template.into()));
    let app = Harness::new(agent).await;
    let key = app.session().await.key;
    let file = |mime_type: &str| -> Part {
        let blob = Blob { mime_type: mime_type.into(), data: "milk".into(), ..Blob::default() };
        PartData::InlineData(blob).into()
    };
    let artifacts = [("note", Part::text("eggs")), ("notes.txt", file("text/plain")), ("a.png", file("image/png"))];
    for (name, part) in artifacts {
        app.runner.services().artifacts.save(&key, name, &part).await.unwrap();
    }
    app.run("hi").await;
    let png = r#"{"inlineData":{"mimeType":"image/png","data":"bWlsaw=="}}"#;
    assert_eq!(model.requests()[0].system_instructions[0], format!("eggs milk {png}"));
}

#[tokio::test]
async fn an_instruction_has_at_most_sixteen_mebibytes_with_its_values() {
    for (count, is_allowed) in [(16, true), (17, false)] {
        let agent = llm_with("root", Scripted::new().default_reply("x"), |llm| {
            llm.instruction = Instruction::Template("{artifact.note}".repeat(count));
        });
        let app = Harness::new(agent).await;
        let (key, note) = (app.session().await.key, Part::text("x".repeat(1 << 20)));
        app.runner.services().artifacts.save(&key, "note", &note).await.unwrap();
        if is_allowed {
            app.run("hi").await;
        } else {
            let (_, error) = app.expect_error("hi").await;
            assert_eq!(error.code(), "INSTRUCTION_TOO_LARGE");
        }
    }
}

#[tokio::test]
async fn the_answer_goes_to_the_output_key() {
    let agent = llm_with("root", Scripted::new().default_reply("42"), |llm| llm.output_key = Some("answer".into()));
    let app = Harness::new(agent).await;
    let events = app.run("hi").await;
    assert_eq!(events[0].actions.state_delta, map(json!({"answer": "42"})));
    assert_eq!(app.state().await, json!({"answer": "42"}));
}

#[tokio::test]
async fn an_answer_with_a_schema_is_saved_and_requested_as_json() {
    let model = Arc::new(Scripted::sequence(["{\"n\": 42}"]));
    let schema = json!({"type": "object"});
    let agent = llm_on("root", &model, |llm| {
        llm.output_key = Some("answer".into());
        llm.output_schema = Some(schema.clone());
    });
    let app = Harness::new(agent).await;
    app.run("hi").await;
    assert_eq!(app.state().await, json!({"answer": {"n": 42}}));
    let config = &model.requests()[0].config;
    assert_eq!(config.response_schema, Some(schema));
    assert_eq!(config.response_mime_type.as_deref(), Some("application/json"));
}

#[tokio::test]
async fn a_model_failure_is_an_event_and_then_the_error() {
    let reply = Reply::error(ModelErrorKind::RateLimited, "too fast");
    let app = Harness::new(llm("root", Scripted::new().default_reply(reply))).await;
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(error.code(), "MODEL_RATE_LIMITED");
    assert_eq!(events.len(), 1);
    assert!(events[0].starts_with("root: error MODEL_RATE_LIMITED: "), "{events:?}");
    assert!(events[0].contains("too fast"), "{events:?}");
    let stored = app.session().await.events;
    assert_eq!(stored.last().unwrap().error_code.as_deref(), Some("MODEL_RATE_LIMITED"));
}

#[tokio::test]
async fn a_failure_in_mid_stream_keeps_the_chunks_and_the_session_continues() {
    let broken = Reply::chunks(["You ", "win"]).with_error(ModelErrorKind::Network, "gone").after(1);
    let app = Harness::new(llm("root", Scripted::sequence([broken, Reply::text("again")]))).await.streaming();
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(events[0], "root~: You ");
    assert_eq!(error.code(), "MODEL_NETWORK");
    assert_eq!(app.transcript("once more").await.last().unwrap(), "root: again");
}

#[tokio::test]
async fn an_agent_without_model_fails_with_a_message() {
    let agent = llm_with("root", Scripted::new(), |llm| llm.model = None);
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    // Clients see it as it is: it names no setting of the host.
    let message = "agent `root`: it has no model and inherits none; set `model` for it or for an agent above it";
    assert_eq!((error.code(), error.client_message().as_str()), ("MODEL_MISSING", message));
}

#[tokio::test]
async fn a_sub_agent_uses_the_model_above() {
    let model = Arc::new(Scripted::sequence([
        Reply::call("transfer_to_agent", json!({"agent_name": "child"})),
        Reply::text("child here"),
    ]));
    let child = llm_with("child", Scripted::new(), |llm| llm.model = None);
    let root = llm_on("root", &model, |_| {}).with_sub_agents(vec![child]);
    assert_eq!(Harness::new(root).await.transcript("hi").await.last().unwrap(), "child: child here");
}

#[tokio::test]
async fn the_error_of_the_model_call_limit_names_the_key_to_raise() {
    let model = Scripted::new().default_reply(Reply::call("again", json!({})));
    let agent = llm_with("root", model, |llm| llm.tools = vec![tool("again", |_, _| Ok(json!(1)))]);
    let mut app = Harness::new(agent).await;
    app.config.max_llm_calls = 3;
    let (events, error) = app.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { value: 3, limit: RunLimit::LlmCalls, .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "Max number of llm calls limit of 3 reached by agent `root`; raise `max_llm_calls` to allow more"
    );
    assert_eq!(events.iter().filter(|event| event.starts_with("root: call")).count(), 3);
}

#[tokio::test]
async fn settings_of_an_app_override_settings_of_a_run() {
    let model = Scripted::new().default_reply(Reply::call("again", json!({})));
    let agent = llm_with("root", model, |llm| llm.tools = vec![tool("again", |_, _| Ok(json!(1)))]);
    let mut app = Harness::new(agent).await;
    app.config.max_llm_calls = 100;
    let run = RunSettings { max_llm_calls: Some(2), ..RunSettings::default() };
    app.app = Arc::new(App::clone(&app.app).with_settings(AppSettings { run, ..AppSettings::default() }));
    let (_, error) = app.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { value: 2, .. }), "{error:?}");
}

#[tokio::test]
async fn the_error_of_the_step_limit_names_the_agent_and_the_key() {
    let model = Scripted::new().default_reply(Reply::call("again", json!({})));
    let agent = llm_with("root", model, |llm| {
        llm.tools = vec![tool("again", |_, _| Ok(json!(1)))];
        llm.max_steps = Some(2);
    });
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { value: 2, limit: RunLimit::Steps, .. }), "{error:?}");
}

#[tokio::test]
async fn a_message_without_role_reaches_the_model() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let app = Harness::new(llm_on("root", &model, |_| {})).await;
    let message = Content { role: None, parts: vec![Part::text("hi")] };
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    assert_eq!(model.requests()[0].contents[0].text(), "hi");
}
