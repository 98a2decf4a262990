//! Session state of code execution: data files, the id of the executor's session, and stored results.

use std::sync::Arc;

use hatchery_core::{Blob, Content, Event, Part, PartData};
use hatchery_engine::RunRequest;
use hatchery_models::scripted::Scripted;
use serde_json::json;

use super::*;

fn with_csv(text: &str, csv: &'static str) -> Content {
    let blob = Blob { mime_type: "text/csv".into(), data: csv.into(), display_name: None };
    Content::new("user", vec![Part::text(text), PartData::InlineData(blob).into()])
}

async fn send(app: &Harness, message: Content) -> Vec<Arc<Event>> {
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap()
}

#[tokio::test]
async fn data_files_are_sent_to_the_executor_and_not_to_the_model() {
    let (model, executor) = (sequence([CODE, "one", CODE, "two"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.optimize_data_file = true)).await;
    send(&app, with_csv("sum it", "a,b\n1,2\n3,4\n")).await;
    let first = "user: sum it|Available file: `data_1_2.csv`\nHeader line: a,b\nRows after it: 2";
    assert_eq!(prompt(&model, 0), [first]);
    send(&app, with_csv("and this", "c\n5\n")).await;
    let prompt = prompt(&model, 3);
    assert_eq!(prompt[0], first, "a file keeps its name");
    assert_eq!(prompt[4], "user: and this|Available file: `data_5_2.csv`\nHeader line: c\nRows after it: 1");
    let inputs = std::mem::take(&mut *executor.inputs.lock().unwrap());
    let files = |run: usize| inputs[run].input_files.iter().map(|file| (file.name.clone(), file.content.clone()));
    let (one, two) = (("data_1_2.csv".into(), "a,b\n1,2\n3,4\n".into()), ("data_5_2.csv".into(), "c\n5\n".into()));
    assert_eq!(files(0).collect::<Vec<_>>(), std::slice::from_ref(&one));
    assert_eq!(files(1).collect::<Vec<_>>(), [one, two], "every execution finds all files");
    assert_eq!(inputs[0].input_files[0].mime_type, "text/csv");
    let state = app.state().await;
    assert_eq!(state["_code_execution_context"], json!({"processed_input_files": ["data_1_2.csv", "data_5_2.csv"]}));
    assert_eq!(
        state["_code_executor_input_files"],
        json!([
            {"name": "data_1_2.csv", "mime_type": "text/csv", "size": 12},
            {"name": "data_5_2.csv", "mime_type": "text/csv", "size": 4}
        ])
    );
}

#[tokio::test]
async fn a_file_is_stored_in_the_state_once() {
    let (model, executor) = (sequence(["one", "two"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.optimize_data_file = true)).await;
    let first = send(&app, with_csv("look", "a\n")).await;
    assert!(first[0].actions.state_delta.contains_key("_code_executor_input_files"));
    let second = send(&app, Content::user("again")).await;
    assert_eq!(second[0].actions.state_delta, map(json!({})));
}

#[tokio::test]
async fn the_newest_of_many_files_are_stored_and_all_are_sent_to_the_executor() {
    let (model, executor) = (sequence([CODE, "done"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.optimize_data_file = true)).await;
    let csv = with_csv("", "a\n").parts.remove(1);
    send(&app, Content::new("user", vec![csv; 66])).await;
    let names = app.state().await["_code_execution_context"]["processed_input_files"].clone();
    assert_eq!(names.as_array().unwrap().len(), 64);
    assert_eq!((&names[0], &names[63]), (&json!("data_1_3.csv"), &json!("data_1_66.csv")));
    assert_eq!(executor.inputs.lock().unwrap()[0].input_files.len(), 66);
}

#[tokio::test]
async fn data_files_stay_in_the_prompt_by_default() {
    let (model, executor) = (sequence(["one"]), Executor::simple());
    let app = Harness::new(coder(&model, &executor)).await;
    send(&app, with_csv("look", "a\n")).await;
    assert!(matches!(model.requests()[0].contents[0].parts[1].data, PartData::InlineData(_)));
    assert_eq!(app.state().await, json!({}));
}

#[tokio::test]
async fn the_code_of_one_session_has_one_execution_id() {
    let (model, executor) = (sequence([CODE, CODE, "one", CODE, "two", CODE, "three"]), Executor::simple());
    let app = Harness::new(coder_with(&model, &executor, |runner| runner.stateful = true)).await;
    run_lines(&app, "hi").await;
    run_lines(&app, "again").await;
    let mut request = RunRequest::new(USER, "other", Content::user("hi"));
    request.config.auto_create_session = true;
    app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    let ids = executor.ids();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    assert!(ids[0].is_some() && ids[3].is_some() && ids[0] != ids[3], "{ids:?}");
    let state = app.state().await;
    assert_eq!(state["_code_execution_context"]["execution_session_id"], json!(ids[0]));
    let asks = &app.session().await.events[1];
    assert!(asks.actions.state_delta.contains_key("_code_execution_context"), "known before the code runs");
}

#[tokio::test]
async fn code_of_a_stateless_executor_has_no_execution_id() {
    let executor = Executor::simple();
    let app = Harness::new(coder(&sequence([CODE, "done"]), &executor)).await;
    run_lines(&app, "hi").await;
    assert_eq!(executor.ids(), [None]);
    assert_eq!(app.state().await.get("_code_execution_context"), None);
}

#[tokio::test]
async fn the_newest_results_of_the_run_are_stored_truncated() {
    let long = "x".repeat(5000);
    let executor = Executor::new(move |input, _| Ok(printed(&format!("{}{long}", input.code))));
    let codes = ["1", "2", "3", "4"].map(|code| format!("```python\n{code}\n```"));
    let model = Scripted::sequence(codes.into_iter().chain(["done".into(), CODE.into(), "done".into()]));
    let app = Harness::new(coder(&Arc::new(model), &executor)).await;
    run_lines(&app, "hi").await;
    let results = &app.state().await["_code_execution_results"];
    let results = results.as_object().unwrap().values().next().unwrap().as_array().unwrap().clone();
    assert_eq!(results.iter().map(|result| result["code"].clone()).collect::<Vec<_>>(), ["2", "3", "4"]);
    assert_eq!(results[0]["result_stdout"].as_str().unwrap().len(), 1024);
    assert_eq!(results[0]["result_stderr"], json!(""));
    assert!(results[0]["timestamp"].is_f64());
    run_lines(&app, "again").await;
    let results = &app.state().await["_code_execution_results"];
    assert_eq!(results.as_object().unwrap().len(), 1, "earlier runs are forgotten");
}

#[tokio::test]
async fn invalid_state_is_ignored() {
    let executor = Executor::simple();
    let spoilt = json!({
        "_code_execution_context": 1, "_code_executor_input_files": {}, "_code_executor_error_counts": [], "_code_execution_results": "x"
    });
    let agent = coder_with(&sequence([CODE, "done"]), &executor, |runner| runner.stateful = true);
    assert_eq!(run_lines(&Harness::with_state(agent, spoilt).await, "hi").await.last().unwrap(), "done");
    assert!(executor.ids()[0].is_some());
}
