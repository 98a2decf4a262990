//! Static instructions: the system instruction stays the same, and the other instruction is one of the contents.

use std::num::NonZeroUsize;
use std::sync::Arc;

use hatchery_core::{Agent, Content, FileData, IncludeContents, Instruction, LlmAgent, LlmRequest, Part, PartData};
use hatchery_engine::plugins::ContextFilter;
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::live::*;
use crate::support::*;

fn menu() -> Part {
    PartData::FileData(FileData { file_uri: "gs://hotel/menu.pdf".into(), ..FileData::default() }).into()
}

fn set_instructions(llm: &mut LlmAgent) {
    llm.static_instruction = vec![Part::text("Rules of {city}."), menu(), Part::text("Obey.")];
    llm.instruction = Instruction::Template("City: {city}.".into());
    llm.global_instruction = Instruction::Template("Be kind.".into());
}

fn guide(model: &Arc<Scripted>, change: impl FnOnce(&mut LlmAgent)) -> Agent {
    llm_on("root", model, |llm| {
        set_instructions(llm);
        change(llm);
    })
}

async fn in_rome(agent: Agent) -> Harness {
    Harness::with_state(agent, json!({"city": "Rome"})).await
}

/// Returns a content in short form. An instruction without its label is in brackets.
fn line(content: &Content) -> String {
    match content.parts.as_slice() {
        [_, Part { data: PartData::FileData(file), .. }] => format!("<{}>", file.file_uri),
        [_, text, _] if content.is_instruction() => format!("[{}]", text.as_text().unwrap()),
        _ if content.function_calls().next().is_some() => "call".into(),
        _ if content.function_responses().next().is_some() => "answer".into(),
        _ => content.text(),
    }
}

fn prompt(request: &LlmRequest) -> Vec<String> {
    request.contents.iter().map(|content| line(content)).collect()
}

#[tokio::test]
async fn the_system_instruction_stays_the_same_while_the_other_instruction_changes() {
    let replies = [Reply::call("travel", json!({})), Reply::text("arrived"), Reply::text("bye")];
    let model = Arc::new(Scripted::sequence(replies));
    let travel = tool("travel", |_, cx| {
        cx.set_state("city", json!("Paris"));
        Ok(json!({}))
    });
    let app = in_rome(guide(&model, |llm| llm.tools = vec![travel])).await;
    app.run("go").await;
    app.run("thanks").await;
    let requests = model.requests();
    let file = "The file `file_1`, with which the conversation begins, belongs here.";
    assert_eq!(requests[0].system_instructions[..4], ["Rules of {city}.", file, "Obey.", "Be kind."]);
    for request in &requests {
        assert_eq!(request.system_instructions, requests[0].system_instructions);
    }
    let prompts: Vec<_> = requests.iter().map(prompt).collect();
    assert_eq!(prompts[0], ["<gs://hotel/menu.pdf>", "[City: Rome.]", "go"]);
    assert_eq!(prompts[1], ["<gs://hotel/menu.pdf>", "[City: Paris.]", "go", "call", "answer"]);
    let expected = ["<gs://hotel/menu.pdf>", "go", "call", "answer", "arrived", "[City: Paris.]", "thanks"];
    assert_eq!(prompts[2], expected);
}

#[tokio::test]
async fn without_history_and_with_a_context_filter_the_instructions_are_kept() {
    let model = Arc::new(Scripted::sequence(["one", "two"]));
    let app = in_rome(guide(&model, |llm| llm.include_contents = IncludeContents::None)).await;
    app.run("a").await;
    app.run("b").await;
    assert_eq!(prompt(&model.requests()[1]), ["<gs://hotel/menu.pdf>", "[City: Rome.]", "b"]);

    let model = Arc::new(Scripted::sequence(["one", "two"]));
    let mut app = in_rome(guide(&model, |_| {})).await;
    let plugins = Plugins::new(vec![Arc::new(ContextFilter::new(NonZeroUsize::MIN))]).unwrap();
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    app.run("a").await;
    app.run("b").await;
    assert_eq!(prompt(&model.requests()[1]), ["<gs://hotel/menu.pdf>", "[City: Rome.]", "b"]);
}

#[tokio::test]
async fn an_instruction_without_text_is_not_sent() {
    for instruction in [Instruction::None, Instruction::Template("{nobody?}".into())] {
        let model = Arc::new(Scripted::sequence(["ok"]));
        let app = in_rome(guide(&model, |llm| llm.instruction = instruction)).await;
        app.run("hi").await;
        assert_eq!(prompt(&model.requests()[0]), ["<gs://hotel/menu.pdf>", "hi"]);
    }
}

#[tokio::test]
async fn a_result_that_arrives_later_stays_behind_its_call() {
    let model = Scripted::new().on_tool("order", "noted").default_reply(Reply::call("order", json!({})));
    let model = Arc::new(model.record_requests());
    let order = long_running("order", |_, _| Ok(json!({"status": "pending"})));
    let app = in_rome(guide(&model, |llm| llm.tools = vec![order])).await;
    let events = app.run("hi").await;
    let events = app.send(tool_response(&call_id(&events), "order", json!({"status": "done"}))).await;
    assert_eq!(briefs(&events), ["root: noted"]);
    let prompt = prompt(model.requests().last().unwrap());
    let call = prompt.iter().position(|line| line == "call").unwrap();
    assert_eq!(prompt[call + 1], "answer", "{prompt:?}");
    assert!(prompt.contains(&"[City: Rome.]".to_owned()), "{prompt:?}");
}

#[tokio::test]
async fn a_live_model_gets_the_texts_of_both_instructions_as_system_instructions() {
    let model = LiveModel::new([vec![text_reply("hello"), complete()]]);
    let app = in_rome(model.agent("root", set_instructions)).await;
    let mut live = Live::start(&app).await;
    assert_eq!(live.ask("hi").await, ["root: hello"]);
    live.finish().await;
    let requests = model.requests.lock().unwrap();
    let instructions = ["Rules of {city}.", "Obey.", "Be kind.", "City: Rome."];
    assert_eq!(requests[0].system_instructions[..4], instructions);
    assert!(!requests[0].contents.iter().any(|content| content.is_instruction()), "{:?}", prompt(&requests[0]));
}
