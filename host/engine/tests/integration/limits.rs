//! Limits of a run: each has a test that reaches it, and an error that names the key to raise.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    Agent, AgentContext, AgentKind, Caller, CallerOrigin, Content, CustomAgent, CustomAgentSpec, EventData,
    FunctionCall, Invocation, LlmRequest, LlmResponse, Model, ModelError, ModelRef, NewInvocation, Part, PartData,
    ResponseStream, RunConfig, RunError, RunLimit, StreamingMode, UsageMetadata,
};
use hatchery_engine::{AgentTool, App, AppSettings, RunRequest, RunSettings};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::logs::Warnings;
use crate::support::*;

/// FixedCallback with this part, and reports these tokens chunk by chunk.
#[derive(Clone)]
struct MeteredModel(Part, Vec<UsageMetadata>);

#[async_trait]
impl Model for MeteredModel {
    async fn generate(&self, _: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        let Self(part, usages) = self.clone();
        let last = usages.len() - 1;
        let chunks = usages.into_iter().enumerate().map(move |(index, usage)| {
            let parts = if index == last { vec![part.clone()] } else { vec![] };
            Ok(LlmResponse {
                content: Some(Content::new("model", parts)),
                partial: true,
                usage_metadata: Some(usage),
                ..LlmResponse::default()
            })
        });
        Ok(futures::stream::iter(chunks).boxed())
    }
}

fn total(tokens: u64) -> UsageMetadata {
    UsageMetadata { total_token_count: Some(tokens), ..UsageMetadata::default() }
}

fn calls(name: &str) -> Part {
    PartData::FunctionCall(FunctionCall { name: name.into(), ..FunctionCall::default() }).into()
}

fn on(model: MeteredModel) -> Option<ModelRef> {
    Some(ModelRef::Object("metered".into(), Arc::new(model)))
}

/// An agent that keeps calling a tool which returns the tokens that are used.
async fn spender(usages: Vec<UsageMetadata>, max_tokens: u64) -> Harness {
    let agent = llm_with("root", Scripted::new(), |llm| {
        llm.model = on(MeteredModel(calls("spent"), usages));
        llm.tools = vec![tool("spent", |_, cx| Ok(json!(cx.invocation.usage.tokens.load(Ordering::Relaxed))))];
    });
    let mut app = Harness::new(agent).await;
    app.config.max_tokens = max_tokens;
    app
}

#[tokio::test]
async fn once_the_tokens_are_spent_the_next_model_call_is_rejected() {
    let (events, error) = spender(vec![total(4)], 10).await.expect_error("hi").await;
    assert_eq!(
        error.to_string(),
        "the limit of tokens in one run of 10 reached by agent `root`; raise `max_tokens` to allow more"
    );
    assert_eq!(events.iter().filter(|event| event.starts_with("root: call")).count(), 3);
    assert!(matches!(error, RunError::Limit { limit: RunLimit::Tokens, .. }));
}

#[tokio::test]
async fn tokens_reported_chunk_by_chunk_are_counted_once() {
    let (events, _) = spender(vec![total(1), total(5), total(5)], 5).await.expect_error("hi").await;
    assert_eq!(events[1], "root: answer spent{\"result\":5}");
}

#[tokio::test]
async fn without_a_total_prompt_thought_and_answer_tokens_are_added_up() {
    let usage = UsageMetadata {
        prompt_token_count: Some(1),
        candidates_token_count: Some(2),
        thoughts_token_count: Some(4),
        cached_content_token_count: Some(1),
        ..UsageMetadata::default()
    };
    let (events, _) = spender(vec![usage], 7).await.expect_error("hi").await;
    assert_eq!(events[1], "root: answer spent{\"result\":7}");
}

#[tokio::test]
async fn tokens_of_an_agent_called_as_a_tool_count_for_the_run() {
    let child =
        llm_with("child", Scripted::new(), |llm| llm.model = on(MeteredModel(Part::text("x"), vec![total(1_000_000)])));
    let model = Scripted::sequence([Reply::call("child", json!({"request": "go"})), Reply::text("ok")]);
    let root = llm_with("root", model, |llm| llm.tools = vec![Arc::new(AgentTool::new(child).unwrap())]);
    let mut app = Harness::new(root).await;
    app.config.max_tokens = 1_000_000;
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(events[1], "root: answer child{\"result\":\"x\"}");
    assert!(matches!(error, RunError::Limit { value: 1_000_000, agent, .. } if agent == "root"));
}

/// Calls its model twice, and does not read the first response to the end.
struct ModelCallingAgent;

#[async_trait]
impl CustomAgent for ModelCallingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let (name, model) = cx.call.host()?.model(&cx.call)?;
        for _ in 0..2 {
            let request = LlmRequest { model: name.clone(), ..LlmRequest::default() };
            let responses = cx.call.invocation.generate("code", model.as_ref(), request, StreamingMode::On);
            responses.await?.next().await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn tokens_of_model_calls_by_code_count() {
    let model = on(MeteredModel(Part::text("x"), vec![total(6), total(7)]));
    let custom = CustomAgentSpec { code: Arc::new(ModelCallingAgent), model, tools: vec![] };
    let mut app = Harness::new(Agent::new("root", "", AgentKind::Custom(custom))).await;
    app.config.max_tokens = 6;
    let (_, error) = app.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { limit: RunLimit::Tokens, agent, .. } if agent == "code"));
}

#[tokio::test]
async fn without_a_limit_tokens_are_only_counted() {
    let mut app = spender(vec![total(1_000_000)], 0).await;
    app.config.max_llm_calls = 2;
    let (events, error) = app.expect_error("hi").await;
    assert_eq!(events[3], "root: answer spent{\"result\":2000000}");
    assert!(matches!(error, RunError::Limit { limit: RunLimit::LlmCalls, .. }));
}

#[tokio::test]
async fn the_error_of_the_step_limit_names_the_key_to_raise() {
    let agent = llm_with("root", Scripted::new().default_reply(Reply::call("again", json!({}))), |llm| {
        llm.tools = vec![tool("again", |_, _| Ok(json!(1)))];
        llm.max_steps = Some(2);
    });
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    assert_eq!(
        error.to_string(),
        "the limit of model calls in one run of an agent of 2 reached by agent `root`; raise `max_steps` to allow more"
    );
}

/// Emits a text `times` times, complete or partial. Ignores errors if it is `stubborn`.
struct ChattingAgent {
    text: String,
    times: usize,
    partial: bool,
    stubborn: bool,
}

#[async_trait]
impl CustomAgent for ChattingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for _ in 0..self.times {
            let content = Some(Arc::new(Content::model(&*self.text)));
            let emitted = cx.emit(EventData { content, partial: self.partial, ..EventData::default() }).await;
            if !self.stubborn {
                emitted?;
            }
        }
        Ok(())
    }
}

fn chatters(code: ChattingAgent) -> Agent {
    Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code: Arc::new(code), model: None, tools: vec![] }))
}

#[test]
fn runs_are_bounded_by_default() {
    let config = RunConfig::default();
    assert_eq!((config.max_events, config.max_run_bytes), (2_000, 32 << 20));
    assert_eq!(config.max_model_retries, 100);
    assert_eq!((config.max_rounds, config.max_run_time), (10_000, Duration::from_secs(3_600)));
}

#[tokio::test]
async fn a_run_that_emits_too_much_ends_with_an_event_that_reports_it() {
    let expected = "the limit of events in one run of 3 reached by agent `root`";
    for stubborn in [false, true] {
        let code = ChattingAgent { text: "more".into(), times: 100, partial: false, stubborn };
        let mut app = Harness::new(chatters(code)).await;
        app.config.max_events = 3;
        let warnings = Warnings::capture();
        let (events, error) = app.expect_error("hi").await;
        assert_eq!(error.to_string(), format!("{expected}; raise `max_events` to allow more"));
        assert!(matches!(error, RunError::Limit { limit: RunLimit::Events, .. }));
        let last = format!("root: error LIMIT_REACHED: {expected}");
        assert_eq!(events, ["root: more", "root: more", "root: more", &last]);
        assert_eq!(briefs(&app.session().await.events.iter().cloned().collect::<Vec<_>>())[1..], events);
        let audited = warnings.lines().iter().filter(|line| *line == "limit").count();
        assert_eq!(audited, 1, "{:?}", warnings.lines());
    }
}

#[tokio::test]
async fn bytes_of_complete_events_and_of_chunks_count() {
    for partial in [false, true] {
        let code = ChattingAgent { text: "x".repeat(1500), times: 100, partial, stubborn: false };
        let mut app = Harness::new(chatters(code)).await.streaming();
        app.config.max_run_bytes = 10_000;
        let (events, error) = app.expect_error("hi").await;
        assert_eq!(
            error.to_string(),
            "the limit of bytes of events in one run of 10000 reached by agent `root`; raise `max_run_bytes` to allow \
             more"
        );
        // An event is its text and some 250 bytes.
        assert_eq!(events.len(), 5 + 1);
        let stored = app.session().await.events.len();
        assert_eq!(stored, if partial { 2 } else { 1 + 5 + 1 });
    }
}

#[tokio::test]
async fn a_loop_that_emits_nothing_ends_at_the_limit_of_rounds() {
    let silent = Agent::new("silent", "", AgentKind::Sequential);
    let root = workflow("rounds", AgentKind::Loop { max_iterations: None }, vec![silent]);
    let (_, error) = Harness::new(root).await.expect_error("hi").await;
    assert_eq!(
        error.to_string(),
        "the limit of rounds of loops in one run of 10000 reached by agent `rounds`; raise `max_rounds` to allow more"
    );
    assert!(matches!(error, RunError::Limit { limit: RunLimit::Rounds, .. }));
}

/// Never ends by itself.
struct NeverEndingAgent;

#[async_trait]
impl CustomAgent for NeverEndingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("waiting").await?;
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_ends_at_the_limit_of_its_wall_time() {
    let root = Agent::new(
        "root",
        "",
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(NeverEndingAgent), model: None, tools: vec![] }),
    );
    let mut app = Harness::new(root).await;
    app.config.max_run_time = Duration::from_secs(7);
    let (events, error) = app.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { limit: RunLimit::RunTime, value: 7, .. }));
    let message = "the limit of seconds of one run of 7 reached by agent `root`";
    assert_eq!(events, ["root: waiting".into(), format!("root: error LIMIT_REACHED: {message}")]);
}

/// Sets ever more `temp:` state.
struct HoardingAgent;

#[async_trait]
impl CustomAgent for HoardingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        for number in 0.. {
            cx.call.set_state(format!("temp:{number}"), json!("x".repeat(1_000)));
            cx.flush().await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn temporary_state_counts_as_bytes_of_the_run() {
    let root = Agent::new(
        "root",
        "",
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(HoardingAgent), model: None, tools: vec![] }),
    );
    let mut app = Harness::new(root).await;
    app.config.max_run_bytes = 20_000;
    let (events, error) = app.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { limit: RunLimit::EventBytes, .. }));
    assert!(events.len() < 20, "{}", events.len());
}

#[tokio::test]
async fn temporary_state_of_a_run_that_code_has_started_counts_for_the_enclosing_run_too() {
    let app = Harness::new(Agent::new("root", "", AgentKind::Sequential)).await;
    let session = app.session().await;
    let start = |parent| {
        let run_config = RunConfig { max_run_bytes: 10_000, ..RunConfig::default() };
        let new = NewInvocation::new(session.clone(), app.runner.services().clone());
        Invocation::new(NewInvocation { parent, run_config, ..new }).0
    };
    let enclosing = start(None);
    let inner = start(Some(enclosing.clone()));
    let delta = [("temp:a".to_owned(), json!("x".repeat(5_000)))].into_iter().collect();
    assert!(inner.apply_temp_state(delta).is_empty());
    for run in [enclosing, inner] {
        assert_eq!(run.remaining().bytes, Some(10_000 - 5_008));
    }
}

#[tokio::test]
async fn zero_is_no_limit_of_events_and_bytes() {
    let code = ChattingAgent { text: "x".repeat(20_000), times: 2100, partial: false, stubborn: false };
    let mut app = Harness::new(chatters(code)).await;
    (app.config.max_events, app.config.max_run_bytes) = (0, 0);
    assert_eq!(app.run("hi").await.len(), 2100);
}

#[tokio::test]
async fn events_of_an_agent_called_as_a_tool_count_for_the_run() {
    let child = ChattingAgent { text: "more".into(), times: 100, partial: false, stubborn: false };
    let child = Agent::new(
        "child",
        "",
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(child), model: None, tools: vec![] }),
    );
    let model = Scripted::sequence([Reply::call("child", json!({"request": "go"})), Reply::text("ok")]);
    let root = llm_with("root", model, |llm| llm.tools = vec![Arc::new(AgentTool::new(child).unwrap())]);
    let mut app = Harness::new(root).await;
    app.config.max_events = 10;
    let (events, error) = app.expect_error("hi").await;
    assert!(matches!(&error, RunError::Limit { limit: RunLimit::Events, agent, .. } if agent == "child"), "{error:?}");
    assert_eq!(events.len(), 2, "the call and the failure: {events:?}");
}

#[tokio::test]
async fn the_limits_of_events_of_an_app_take_precedence() {
    let code = ChattingAgent { text: "more".into(), times: 100, partial: false, stubborn: false };
    let mut app = Harness::new(chatters(code)).await;
    let run = RunSettings { max_events: Some(1), max_run_bytes: Some(0), ..RunSettings::default() };
    app.app = Arc::new(App::clone(&app.app).with_settings(AppSettings { run, ..AppSettings::default() }));
    let (_, error) = app.expect_error("hi").await;
    assert!(matches!(error, RunError::Limit { limit: RunLimit::Events, value: 1, .. }));
}

/// Records the caller of the run.
struct CallerRecorder(std::sync::Mutex<Vec<Caller>>);

#[async_trait]
impl CustomAgent for CallerRecorder {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        self.0.lock().unwrap().push(cx.call.caller().clone());
        Ok(())
    }
}

#[tokio::test]
async fn an_agent_sees_the_caller_of_the_run() {
    let recorder = Arc::new(CallerRecorder(std::sync::Mutex::default()));
    let agent = Agent::new(
        "root",
        "",
        AgentKind::Custom(CustomAgentSpec { code: recorder.clone(), model: None, tools: vec![] }),
    );
    let app = Harness::new(agent).await;
    for origin in [CallerOrigin::InProcess, CallerOrigin::Http] {
        let request = RunRequest { origin, ..app.request(Content::user("hi")) };
        app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
        let caller = recorder.0.lock().unwrap().pop().unwrap();
        assert_eq!(caller, Caller { user: USER.into(), origin });
    }
}

#[tokio::test]
async fn a_run_with_invalid_ids_does_not_begin() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("ok"))).await;
    for (user, session) in [("x".repeat(257), SESSION.to_owned()), (USER.to_owned(), "a\nb".to_owned())] {
        let request = RunRequest::new(user, session, Content::user("hi"));
        let error = app.runner.run(app.app.clone(), request).await.err().unwrap();
        assert_eq!(error.code(), "INVALID_NAME");
    }
}
