//! Work that a resumed run does not repeat: the work of branches, of callbacks, of code that sets state, and questions
//! to a person.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentKind, CallContext, Callback, Content, CustomAgent, HookPoint, REQUEST_CONFIRMATION, RunError,
    ToolError,
};
use hatchery_engine::{App, AppSettings};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};

use super::agent_errors::{fails, with};
use crate::support::*;

/// Sets state before its first event and after its last.
struct StateAgent;

#[async_trait]
impl CustomAgent for StateAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.call.set_state("begun", json!(true));
        cx.run_sub_agent("inner").await?;
        cx.say("after").await?;
        cx.call.set_state("ended", json!(true));
        Ok(())
    }
}

#[tokio::test]
async fn code_that_sets_state_resumes_where_it_was() {
    let session = assert_resumable(|| {
        let inner = counting_agent("inner", &["x"], "inner!");
        let mut code = workflow_code("code", Arc::new(StateAgent)).with_sub_agents(vec![inner]);
        code.callbacks.push(
            HookPoint::BeforeAgent,
            FixedCallback { name: "before", state: Some("before"), ..FixedCallback::default() }.arc(),
        );
        workflow("all", AgentKind::Sequential, vec![code, counting_agent("last", &["y"], "last!")])
    })
    .await;
    assert_eq!(session.events.len(), 1 + 1 + 1 + 3 + 1 + 1 + 3);
    assert_eq!(session.state.get("ended"), Some(&json!(true)));
}

#[tokio::test]
async fn a_recovered_failure_is_not_recovered_again() {
    for (kind, first) in [(AgentKind::Sequential, 3), (AgentKind::Parallel, 0)] {
        let session = assert_resumable(|| {
            let mut below = vec![counting_agent("p", &["x"], "p!"), fails("inner")];
            if first == 0 {
                below.remove(0);
            }
            let both = with(workflow("both", kind.clone(), below), &["MODEL_SERVER_ERROR"]);
            workflow("all", AgentKind::Sequential, vec![both, counting_agent("last", &["y"], "last!")])
        })
        .await;
        assert_eq!(session.events.len(), 1 + first + 1 + 3);
    }
}

#[tokio::test]
async fn an_agent_whose_tool_has_failed_is_not_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let breaks = tool("breaks", move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err(ToolError::Fatal { tool: "breaks".into(), code: "BROKEN".into(), message: "it broke".into() })
    });
    let a = llm_with("a", calls_then_answers(&["breaks"], "not emitted"), |llm| llm.tools = vec![breaks]);
    let a = with(a, &["BROKEN"]);
    let all = workflow("all", AgentKind::Sequential, vec![a, counting_agent("b", &["x"], "b!")]);
    let (stored, session) = interrupted(&Arc::new(App::new("app", all).unwrap()), 4).await;
    assert_eq!((stored.events.len(), session.events.len()), (4, 6));
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

/// Counts the calls after an agent.
struct CountingCallback(Arc<AtomicUsize>);

#[async_trait]
impl Callback for CountingCallback {
    fn name(&self) -> &str {
        "counts"
    }

    async fn after_agent(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(None)
    }
}

#[tokio::test]
async fn callbacks_after_branches_are_not_called_twice() {
    let calls = Arc::new(AtomicUsize::new(0));
    let branches = ["p", "q"].map(|name| {
        let mut branch = counting_agent(name, &[], "!");
        branch.callbacks.push(HookPoint::AfterAgent, Arc::new(CountingCallback(calls.clone())));
        branch
    });
    let both = workflow("both", AgentKind::Parallel, branches.into());
    let all = workflow("all", AgentKind::Sequential, vec![both, counting_agent("last", &["x"], "last!")]);
    // The user's message, the events of the branches and the call of the last agent are stored.
    interrupted(&Arc::new(App::new("app", all).unwrap()), 4).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_tool_in_a_branch_that_has_not_responded_yet_does_not_run_again() {
    let runs = Arc::new(AtomicUsize::new(0));
    let orders = llm_with("orders", calls_then_answers(&["order"], "not emitted"), |llm| {
        llm.tools = vec![order_tool(&runs, Value::Null)];
    });
    let both = workflow("both", AgentKind::Parallel, vec![orders, counting_agent("other", &[], "!")]);
    let all = workflow("all", AgentKind::Sequential, vec![both, counting_agent("last", &["x"], "last!")]);
    interrupted(&Arc::new(App::new("app", all).unwrap()), 4).await;
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_person_is_not_asked_twice_about_one_call() {
    for resumable in [false, true] {
        let root = llm_with("root", calls_then_answers(&["echo"], "please decide"), |llm| {
            llm.tools = vec![tool_with_confirmation("echo", |_, _| Ok(json!("ran")))];
        });
        let settings = AppSettings { resumable, ..AppSettings::default() };
        let app = Arc::new(App::new("app", root).unwrap().with_settings(settings));
        // The user's message, the call and the question are stored, and the call's answer is not.
        let (_, session) = interrupted(&app, 3).await;
        let calls = session.events.iter().flat_map(|event| event.function_calls());
        assert_eq!(calls.filter(|call| call.name == REQUEST_CONFIRMATION).count(), 1);
        assert_eq!(session.events.len(), if resumable { 4 } else { 5 });
    }
}

#[tokio::test]
async fn a_branch_whose_agents_have_changed_does_not_keep_the_run_from_ending() {
    /// Escalates in its first run. Later runs emit nothing.
    #[derive(Default)]
    struct EscalatingAgent(AtomicUsize);

    #[async_trait]
    impl CustomAgent for EscalatingAgent {
        async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
            if self.0.fetch_add(1, Ordering::Relaxed) > 0 {
                return Ok(());
            }
            cx.call.actions().escalate = Some(true);
            cx.say("over!").await.map(|_| ())
        }
    }

    /// Emits an event only when it is run again.
    #[derive(Default)]
    struct LateAgent(AtomicUsize);

    #[async_trait]
    impl CustomAgent for LateAgent {
        async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
            match self.0.fetch_add(1, Ordering::Relaxed) {
                0 => std::future::pending().await,
                _ => cx.say("late").await.map(|_| ()),
            }
        }
    }

    let [late, ends]: [(&str, Arc<dyn CustomAgent>); 2] =
        [("late", Arc::new(LateAgent::default())), ("ends", Arc::new(EscalatingAgent::default()))];
    let both = [late, ends].map(|(name, code)| workflow_code(name, code));
    let both = workflow("both", AgentKind::Parallel, both.into());
    let all = workflow("all", AgentKind::Sequential, vec![both, counting_agent("last", &["x"], "last!")]);
    let (_, session) = interrupted(&Arc::new(App::new("app", all).unwrap()), 3).await;
    assert_eq!(brief(session.events.last().unwrap()), "last: last!");
    assert!(!session.events.iter().any(|event| event.author == "late"));
}

#[tokio::test]
async fn a_run_that_failed_in_a_tool_resumes_with_the_tool() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let flaky = tool("flaky", move |_, _| match counted.fetch_add(1, Ordering::Relaxed) {
        0 => Err(ToolError::Fatal { tool: "flaky".into(), code: "BROKEN".into(), message: "it broke".into() }),
        _ => Ok(json!("fine")),
    });
    let model = Scripted::sequence([Reply::call("flaky", json!({})), Reply::text("done")]);
    let app = Harness::new(llm_with("root", model, |llm| llm.tools = vec![flaky])).await;
    app.expect_error("hi").await;
    let invocation = app.session().await.events[0].invocation_id.clone();
    let request = hatchery_engine::RunRequest::resume(USER, SESSION, invocation);
    let events = app.runner.run(app.app.clone(), request).await.unwrap().collect().await.unwrap();
    assert_eq!(briefs(&events), [r#"root: answer flaky{"result":"fine"}"#, "root: done"]);
}

/// Ends the loop around it.
struct AlwaysEscalatingAgent;

#[async_trait]
impl CustomAgent for AlwaysEscalatingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.call.actions().escalate = Some(true);
        cx.say("over!").await.map(|_| ())
    }
}

#[tokio::test]
async fn an_escalation_that_could_not_be_stored_ends_nothing() {
    let leaves = workflow_code("leaves", Arc::new(AlwaysEscalatingAgent));
    let round = workflow("round", AgentKind::Loop { max_iterations: None }, vec![leaves]);
    // The user's message is stored.
    let (_, session) = interrupted(&Arc::new(App::new("app", round).unwrap()), 1).await;
    assert_eq!(session.events.last().map(|event| brief(event)).as_deref(), Some("leaves: over!"));
}
