//! Planners: instructions for the model, and thoughts in its response.

use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{Event, LlmAgent, Planner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

fn plans(llm: &mut LlmAgent) {
    llm.planner = Some(Planner::PlanReAct);
    llm.tools = vec![tool("look", |_, _| Ok(json!("rain")))];
    llm.output_key = Some("answer".into());
}

/// Formats the texts of an event, with thoughts in brackets. `~` marks a partial event.
fn marked(event: &Event) -> String {
    let parts = event.content.iter().flat_map(|content| &content.parts);
    let texts = parts.filter_map(|part| {
        let text = part.as_text()?;
        Some(if part.thought { format!("({text})") } else { text.to_owned() })
    });
    format!("{}{}", if event.partial { "~" } else { "" }, texts.collect::<String>())
}

async fn run_reply(reply: Reply) -> Vec<String> {
    let app = Harness::new(llm_with("root", Scripted::sequence([reply]), plans)).await.streaming();
    app.run("hi").await.iter().map(|event| marked(event)).collect()
}

#[tokio::test]
async fn the_thinking_config_of_a_planner_replaces_the_thinking_config_of_the_agent() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let agent = llm_on("root", &model, |llm| {
        llm.generate_content_config.extra.insert("thinkingConfig".into(), json!({"thinkingBudget": 1}));
        llm.planner = Some(Planner::Thinking(json!({"includeThoughts": true})));
    });
    Harness::new(agent).await.run("hi").await;
    assert_eq!(model.requests()[0].config.extra["thinkingConfig"], json!({"includeThoughts": true}));
}

#[tokio::test]
async fn the_instruction_contains_each_tag_once() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    Harness::new(llm_on("root", &model, plans)).await.run("hi").await;
    let instruction = model.requests()[0].system_instructions.last().unwrap().clone();
    for tag in ["/*PLANNING*/", "/*REPLANNING*/", "/*REASONING*/", "/*ACTION*/", "/*FINAL_ANSWER*/"] {
        assert_eq!(instruction.matches(tag).count(), 1, "{tag}");
    }
}

#[tokio::test]
async fn text_before_the_answer_is_thought_and_only_the_answer_is_saved() {
    let plan = Reply::text("/*PLANNING*/ 1. look /*ACTION*/").and_call("look", json!({}));
    let answer = Reply::text("/*REASONING*/ it rains\n/*FINAL_ANSWER*/\nTake a coat.");
    let model = Arc::new(Scripted::sequence([plan, answer]));
    let app = Harness::new(llm_on("root", &model, plans)).await;
    let events = app.run("hi").await;
    assert_eq!(marked(&events[0]), "(/*PLANNING*/ 1. look /*ACTION*/)");
    assert_eq!(events[0].function_calls().count(), 1);
    assert_eq!(marked(&events[2]), "(/*REASONING*/ it rains\n)Take a coat.");
    assert_eq!(app.state().await, json!({"answer": "Take a coat."}));
}

#[tokio::test]
async fn the_plan_is_sent_to_the_model_during_the_turn() {
    let plan = Reply::text("/*PLANNING*/ 1. look").and_call("look", json!({}));
    let model = Arc::new(Scripted::sequence([plan, Reply::text("/*FINAL_ANSWER*/ Rain."), Reply::text("Hm.")]));
    let app = Harness::new(llm_on("root", &model, plans)).await;
    app.run("hi").await;
    app.run("sure?").await;
    let thoughts = |call: usize| {
        let parts =
            model.requests()[call].contents.iter().flat_map(|content| content.parts.clone()).collect::<Vec<_>>();
        parts.iter().filter(|part| part.thought).count()
    };
    assert_eq!((thoughts(1), thoughts(2)), (0, 1));
}

#[tokio::test]
async fn text_before_a_call_is_thought_even_without_tags() {
    let model = Scripted::sequence([Reply::text("Let me look.").and_call("look", json!({})), Reply::text("Rain.")]);
    let app = Harness::new(llm_with("root", model, plans)).await;
    assert_eq!(marked(&app.run("hi").await[0]), "(Let me look.)");
}

#[tokio::test]
async fn text_without_tags_is_the_answer() {
    assert_eq!(run_reply(Reply::chunks(["It ", "rains."])).await, ["It rains."]);
}

#[tokio::test]
async fn partial_responses_are_marked_as_the_complete_one() {
    let pieces = ["/*PLAN", "NING*/ look", " out /*FINAL", "_ANSWER*/", "\n Take", " a coat/", "umbrella"];
    assert_eq!(
        run_reply(Reply::chunks(pieces)).await,
        [
            "~(/*PLANNING*/ look)",
            "~( out )",
            "~Take",
            "~ a coat",
            "~/umbrella",
            "(/*PLANNING*/ look out )Take a coat/umbrella"
        ]
    );
}

#[tokio::test]
async fn the_parts_of_a_stream_are_a_prefix_of_the_complete_response_wherever_it_is_split() {
    let text = "Well. /*PLANNING*/ a/b /* c */ /*REPLANNING*/ d /*FINAL_ANSWER*/  é/*f*/ g";
    for cut in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
        let events = run_reply(Reply::chunks([&text[..cut], &text[cut..]])).await;
        let (whole, pieces) = events.split_last().unwrap();
        assert_eq!(whole, "(Well. /*PLANNING*/ a/b /* c */ /*REPLANNING*/ d )é/*f*/ g");
        let joined = pieces.iter().map(|piece| &piece[1..]).collect::<String>().replace(")(", "");
        assert_eq!(joined, *whole, "cut at {cut}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_response_without_tags_or_with_very_many_does_not_block_the_host() {
    let untagged = Reply::chunks(std::iter::repeat_n("some words ", 60_000));
    let tagged = Reply::text("/*ACTION*/".repeat(100_000));
    for (reply, length) in [(untagged, 660_000), (tagged, 1_000_002)] {
        let run = tokio::time::timeout(Duration::from_secs(30), run_reply(reply));
        let events = run.await.expect("the run does not end");
        assert_eq!(events.last().unwrap().len(), length);
    }
}

#[tokio::test]
async fn a_models_own_thoughts_stay_thoughts() {
    let reply = Reply::new().and_thought("hm").and_text("/*FINAL_ANSWER*/ Rain.");
    assert_eq!(run_reply(reply).await.last().unwrap(), "(hm)Rain.");
}
