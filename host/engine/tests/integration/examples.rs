//! Few-shot examples of an agent.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{CallContext, Content, Example, ExampleProvider, Examples, RunError};
use hatchery_engine::builtin::ExampleTool;
use hatchery_models::scripted::Scripted;

use crate::support::*;

fn sum() -> Example {
    Example { input: Content::user("2+2"), output: vec![Content::model("4")] }
}

/// Returns the last system instruction.
async fn last_instruction(change: impl FnOnce(&mut hatchery_core::LlmAgent)) -> String {
    let model = Arc::new(Scripted::sequence(["ok"]));
    Harness::new(llm_on("root", &model, change)).await.run("what is 1+1?").await;
    model.requests()[0].system_instructions.last().unwrap().clone()
}

/// Returns its examples and records the query.
struct ChoosingProvider(Vec<Example>, Mutex<Vec<String>>);

#[async_trait]
impl ExampleProvider for ChoosingProvider {
    async fn examples(&self, query: &str, _: &CallContext) -> Result<Vec<Example>, RunError> {
        self.1.lock().unwrap().push(query.into());
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn examples_of_an_agent_have_the_same_form_as_examples_of_the_tool() {
    let own = last_instruction(|llm| llm.examples = Some(Examples::Fixed([sum()].into()))).await;
    assert!(own.contains("EXAMPLE 1:\n[user]\n2+2\n[model]\n4\n"), "{own}");
    assert_eq!(own, last_instruction(|llm| llm.tools = vec![Arc::new(ExampleTool::new(&[sum()]))]).await);
}

#[tokio::test]
async fn examples_are_selected_for_the_users_message() {
    let chooses = Arc::new(ChoosingProvider(vec![sum()], Mutex::default()));
    let provider = chooses.clone();
    assert!(last_instruction(|llm| llm.examples = Some(Examples::Chosen(provider))).await.contains("2+2"));
    assert_eq!(*chooses.1.lock().unwrap(), ["what is 1+1?"]);
}

#[tokio::test]
async fn without_selected_examples_there_is_no_instruction() {
    let none = Arc::new(ChoosingProvider(vec![], Mutex::default()));
    assert!(!last_instruction(|llm| llm.examples = Some(Examples::Chosen(none))).await.contains("EXAMPLES"));
}
