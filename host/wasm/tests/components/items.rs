//! Code executors, summarizers and example providers of components.

use std::sync::Arc;

use hatchery_core::{CodeFile, CodeInput, Content, Event, EventData, ItemResolver, ToolError};
use hatchery_wasm::Limits;

use crate::support::{TestCatalog, context};

fn code(text: &str) -> CodeInput {
    CodeInput { code: text.into(), ..CodeInput::default() }
}

fn events(count: usize) -> Vec<Arc<Event>> {
    (0..count).map(|_| Event::new(EventData::default())).collect()
}

#[tokio::test]
async fn code_runs_with_its_files_and_its_output_is_returned() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let shout = catalog.code_executor("gallery/shout").unwrap();
    assert_eq!(shout.name(), "shout");
    let data = CodeFile { name: "data.csv".into(), mime_type: "text/csv".into(), content: "1,2".into() };
    let input = CodeInput { input_files: vec![data], execution_id: Some("session".into()), ..code("say it") };
    let output = shout.execute(input, &context(&catalog)).await.unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("SAY IT", ""));
    let [file] = output.output_files.as_slice() else { panic!("{output:?}") };
    assert_eq!((file.name.as_str(), &file.content[..]), ("out.txt", &b"data.csv"[..]));
}

#[tokio::test]
async fn code_that_fails_is_no_error_of_its_executor() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let output = catalog.code_executor("shout").unwrap().execute(code("fail"), &context(&catalog)).await.unwrap();
    assert_eq!(output.stderr, "it failed");
}

#[tokio::test]
async fn an_executor_that_crashes_is_an_error_for_the_model_and_the_next_execution_works() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let shout = catalog.code_executor("shout").unwrap();
    match shout.execute(code("trap"), &context(&catalog)).await {
        Err(ToolError::Recoverable(message)) => {
            assert_eq!(message, "code executor `shout` of component `gallery` failed: it panicked: the code wanted it");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(shout.execute(code("again"), &context(&catalog)).await.unwrap().stdout, "AGAIN");
}

#[tokio::test]
async fn the_output_of_code_is_limited() {
    let limits = Limits { result: 100_000, ..Limits::default() };
    let catalog = TestCatalog::new().with("gallery").with_limits(limits).catalog().await;
    let shout = catalog.code_executor("shout").unwrap();
    assert!(shout.execute(code(&"x".repeat(90_000)), &context(&catalog)).await.is_ok());
    let error = shout.execute(code(&"x".repeat(100_000)), &context(&catalog)).await.unwrap_err();
    assert!(error.to_string().ends_with("it exceeded its limit of 100000 B in one result"), "{error}");
}

#[tokio::test]
async fn a_summarizer_returns_a_content_or_nothing() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let counter = catalog.summarizer("counter").unwrap();
    let summary = counter.summarize(&events(3), &context(&catalog)).await.unwrap();
    assert_eq!(summary, Some(Content::model("3 events")));
    assert_eq!(counter.summarize(&[], &context(&catalog)).await.unwrap(), None);
}

#[tokio::test]
async fn a_summarizer_that_runs_out_of_memory_fails_by_name() {
    let limits = Limits { memory: 4 << 20, ..Limits::default() };
    let catalog = TestCatalog::new().with("gallery").with_limits(limits).catalog().await;
    let error = catalog.summarizer("counter").unwrap().summarize(&events(20_000), &context(&catalog)).await;
    let error = error.unwrap_err();
    assert_eq!(error.code(), "COMPONENT_MEMORY");
    assert!(error.to_string().starts_with("component `gallery`: summarizer `counter` failed: "), "{error}");
}

#[tokio::test]
async fn examples_are_selected_by_the_user_message() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let examples = catalog.examples("sums").unwrap().examples("2 + 2?", &context(&catalog)).await.unwrap();
    let [example] = examples.as_slice() else { panic!("{examples:?}") };
    assert_eq!(example.input.text(), "2 + 2?");
    assert_eq!(example.output.iter().map(Content::text).collect::<Vec<_>>(), ["That makes four."]);
}

#[tokio::test]
async fn a_cancelled_run_does_not_wait_for_them() {
    let catalog = TestCatalog::new().with("gallery").catalog().await;
    let cx = context(&catalog);
    cx.invocation.cancel.cancel();
    let error = catalog.examples("sums").unwrap().examples("2 + 2?", &cx).await.unwrap_err();
    assert_eq!(error.code(), "CANCELLED");
    let error = catalog.summarizer("counter").unwrap().summarize(&[], &cx).await.unwrap_err();
    assert_eq!(error.code(), "CANCELLED");
    match catalog.code_executor("shout").unwrap().execute(code("x"), &cx).await {
        Err(ToolError::Fatal { code, .. }) => assert_eq!(code, "CANCELLED"),
        other => panic!("{other:?}"),
    }
}
