//! Limits of a run: each is tripped, and says what it is and where to raise it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    Agent, AgentContext, AgentKind, Content, Custom, CustomAgent, Delivery, FunctionCall, LlmRequest, LlmResponse,
    Model, ModelError, ModelRef, Part, PartData, ResponseStream, RunError, UsageMetadata,
};
use hatchery_engine::builtin::AgentTool;
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

/// Answers with this part, and tells these tokens piece by piece.
#[derive(Clone)]
struct Metered(Part, Vec<UsageMetadata>);

#[async_trait]
impl Model for Metered {
    async fn generate(&self, _: LlmRequest, _: Delivery) -> Result<ResponseStream, ModelError> {
        let Self(part, usages) = self.clone();
        let last = usages.len() - 1;
        let pieces = usages.into_iter().enumerate().map(move |(index, usage)| {
            let parts = if index == last { vec![part.clone()] } else { vec![] };
            Ok(LlmResponse {
                content: Some(Content::new("model", parts)),
                partial: true,
                usage_metadata: Some(usage),
                ..LlmResponse::default()
            })
        });
        Ok(futures::stream::iter(pieces).boxed())
    }
}

fn total(tokens: u64) -> UsageMetadata {
    UsageMetadata { total_token_count: Some(tokens), ..UsageMetadata::default() }
}

fn calls(name: &str) -> Part {
    PartData::FunctionCall(FunctionCall { name: name.into(), ..FunctionCall::default() }).into()
}

fn on(model: Metered) -> Option<ModelRef> {
    Some(ModelRef::Object("metered".into(), Arc::new(model)))
}

/// An agent that calls a tool which answers with the tokens that are spent, again and again.
async fn spender(usages: Vec<UsageMetadata>, max_tokens: u64) -> Harness {
    let agent = llm_with("root", Scripted::new(), |llm| {
        llm.model = on(Metered(calls("spent"), usages));
        llm.tools = vec![tool("spent", |_, cx| Ok(json!(cx.invocation.spent.tokens.load(Ordering::Relaxed))))];
    });
    let mut app = Harness::new(agent).await;
    app.config.max_tokens = max_tokens;
    app
}

#[tokio::test]
async fn once_the_tokens_are_spent_the_next_model_call_is_refused() {
    let (events, error) = spender(vec![total(4)], 10).await.fail("hi").await;
    assert_eq!(
        error.to_string(),
        "the limit of tokens in one run of 10 reached by agent `root`; raise `max_tokens` to allow more"
    );
    assert_eq!(events.iter().filter(|event| event.starts_with("root: call")).count(), 3);
    assert!(matches!(error, RunError::Limit { key: "max_tokens", .. }));
}

#[tokio::test]
async fn tokens_told_piece_by_piece_are_counted_once() {
    let (events, _) = spender(vec![total(1), total(5), total(5)], 5).await.fail("hi").await;
    assert_eq!(events[1], "root: answer spent{\"result\":5}");
}

#[tokio::test]
async fn without_a_sum_what_was_sent_thought_and_answered_is_added_up() {
    let usage = UsageMetadata {
        prompt_token_count: Some(1),
        candidates_token_count: Some(2),
        thoughts_token_count: Some(4),
        cached_content_token_count: Some(1),
        ..UsageMetadata::default()
    };
    let (events, _) = spender(vec![usage], 7).await.fail("hi").await;
    assert_eq!(events[1], "root: answer spent{\"result\":7}");
}

#[tokio::test]
async fn tokens_of_an_agent_called_as_a_tool_count_for_the_run() {
    let child =
        llm_with("child", Scripted::new(), |llm| llm.model = on(Metered(Part::text("x"), vec![total(1_000_000)])));
    let model = Scripted::sequence([Reply::call("child", json!({"request": "go"})), Reply::text("ok")]);
    let root = llm_with("root", model, |llm| llm.tools = vec![Arc::new(AgentTool::new(child, false).unwrap())]);
    let mut app = Harness::new(root).await;
    app.config.max_tokens = 1_000_000;
    let (events, error) = app.fail("hi").await;
    assert_eq!(events[1], "root: answer child{\"result\":\"x\"}");
    assert!(matches!(error, RunError::Limit { value: 1_000_000, agent, .. } if agent == "root"));
}

/// Asks its model twice, and does not read the first answer to its end.
struct Asks;

#[async_trait]
impl CustomAgent for Asks {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let (name, model) = cx.call.host()?.model(&cx.call)?;
        for _ in 0..2 {
            let request = LlmRequest { model: name.clone(), ..LlmRequest::default() };
            let asked = cx.call.invocation.generate("code", model.as_ref(), request, Delivery::Streamed);
            asked.await?.next().await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn tokens_of_codes_own_model_calls_count() {
    let model = on(Metered(Part::text("x"), vec![total(6), total(7)]));
    let custom = Custom { code: Arc::new(Asks), model, tools: vec![] };
    let mut app = Harness::new(Agent::new("root", "", AgentKind::Custom(custom))).await;
    app.config.max_tokens = 6;
    let (_, error) = app.fail("hi").await;
    assert!(matches!(error, RunError::Limit { key: "max_tokens", agent, .. } if agent == "code"));
}

#[tokio::test]
async fn without_a_limit_tokens_are_only_counted() {
    let mut app = spender(vec![total(1_000_000)], 0).await;
    app.config.max_llm_calls = 2;
    let (events, error) = app.fail("hi").await;
    assert_eq!(events[3], "root: answer spent{\"result\":2000000}");
    assert!(matches!(error, RunError::Limit { key: "max_llm_calls", .. }));
}

#[tokio::test]
async fn the_limit_of_steps_names_itself_and_where_to_raise_it() {
    let agent = llm_with("root", Scripted::new().otherwise(Reply::call("again", json!({}))), |llm| {
        llm.tools = vec![tool("again", |_, _| Ok(json!(1)))];
        llm.max_steps = Some(2);
    });
    let (_, error) = Harness::new(agent).await.fail("hi").await;
    assert_eq!(
        error.to_string(),
        "the limit of model calls in one run of an agent of 2 reached by agent `root`; raise `max_steps` to allow more"
    );
}
