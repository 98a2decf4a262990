//! Calls that were completed before a run was interrupted are not made again. The run continues on another host, which
//! acquires the turn while the first host is in the middle of a call.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use hatchery_core::{
    Agent, AgentContext, AgentKind, AppRunRequest, CallContext, Content, CustomAgent, CustomAgentSpec, Event,
    EventWindow, FunctionDeclaration, JsonMap, LlmRequest, ModelRef, RunError, Services, Session, SessionKey,
    StreamingMode, Tool, ToolError,
};
use hatchery_engine::build::{IntoTool, function_tool};
use hatchery_engine::builtin::AtMostOnce;
use hatchery_engine::{AgentTool, App, AppDirectory, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::*;

/// A tool that is interrupted by the first call, and answers later ones.
struct Interrupted {
    declaration: Arc<FunctionDeclaration>,
    calls: AtomicUsize,
    entered: Notify,
    /// The idempotency keys of the calls.
    keys: Mutex<Vec<String>>,
}

impl Interrupted {
    fn new() -> Arc<Self> {
        let (calls, entered, keys) = (AtomicUsize::new(0), Notify::new(), Mutex::default());
        Arc::new(Self { declaration: declaration("slow"), calls, entered, keys })
    }
}

#[async_trait]
impl Tool for Interrupted {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.declaration
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.keys.lock().unwrap().push(cx.idempotency_key().unwrap());
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        if calls == 0 {
            self.entered.notify_one();
            pending::<()>().await;
        }
        Ok(json!(calls))
    }
}

/// A tool that counts its calls, in its answer and in the state.
fn count(name: &str, calls: &Arc<AtomicUsize>) -> Arc<dyn Tool> {
    let calls = calls.clone();
    let key = format!("called_{name}");
    tool(name, move |_, cx| {
        let calls = calls.fetch_add(1, Ordering::SeqCst) + 1;
        cx.set_state(key.clone(), json!(calls));
        cx.set_state("temp:secret", json!("never stored"));
        Ok(json!(calls))
    })
}

fn key() -> SessionKey {
    SessionKey::new("app", USER, SESSION)
}

async fn session(services: &Services) -> Session {
    services.sessions.get(&key(), EventWindow::All).await.unwrap().unwrap()
}

/// Runs an app on one host until `slow` is called and the run has at least this many records, and continues it on
/// another host. Returns the events of the latter, and the session.
async fn take_over(root: Agent, slow: &Interrupted, records: usize) -> (Vec<Arc<Event>>, Session) {
    take_over_with(root, slow, records, services(), None).await
}

/// Like `take_over`, with services, and an app that code can run.
async fn take_over_with(
    root: Agent,
    slow: &Interrupted,
    records: usize,
    services: Services,
    other: Option<Arc<App>>,
) -> (Vec<Arc<Event>>, Session) {
    let app = Arc::new(App::new("app", root).unwrap());
    services.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap();
    let first = Runner::new(services.clone()).with_turn_lease(Duration::ZERO);
    first.set_apps(Arc::new(Other(other.clone())));
    let request = RunRequest::new(USER, SESSION, Content::user("hi"));
    let cancel = request.cancel.clone();
    let run = first.run(app.clone(), request).await.unwrap();
    slow.entered.notified().await;
    let invocation = session(&services).await.events[0].invocation_id.clone();
    let journal = services.sessions.journal().unwrap();
    while journal.read(&key(), &invocation).await.unwrap().unwrap().len() < records {
        tokio::task::yield_now().await;
    }
    let stored = journal.read(&key(), &invocation).await.unwrap().unwrap();
    assert!(!format!("{stored:?}").contains("never stored"), "{stored:?}");
    let second = Runner::new(services.clone());
    second.set_apps(Arc::new(Other(other)));
    let resume = RunRequest::resume(USER, SESSION, invocation.clone());
    let events = second.run(app.clone(), resume.clone()).await.unwrap().collect().await.unwrap();
    cancel.cancel();
    assert!(run.collect().await.is_err());
    // The run has ended: nothing of it is done again.
    let calls = slow.calls.load(Ordering::SeqCst);
    assert!(second.run(app, resume).await.unwrap().collect().await.unwrap().is_empty());
    assert_eq!(slow.calls.load(Ordering::SeqCst), calls);
    if records > 0 {
        assert_eq!(journal.read(&key(), &invocation).await.unwrap(), None, "its journal is deleted");
    }
    let mut stored = session(&services).await;
    // The first host's report.
    stored.events.retain(|event| event.error_code.as_deref() != Some("CANCELLED"));
    (events, stored)
}

#[tokio::test]
async fn completed_calls_of_a_response_are_not_made_again() {
    let (a, b, slow) = (Arc::default(), Arc::default(), Interrupted::new());
    let calls = Reply::call("a", json!({})).and_call("slow", json!({})).and_call("b", json!({}));
    let model = Scripted::sequence([calls, Reply::text("done")]);
    let root = llm_with("root", model, |llm| llm.tools = vec![count("a", &a), count("b", &b), slow.clone()]);
    let (events, session) = take_over(root, &slow, 2).await;
    assert_eq!(
        briefs(&events),
        [r#"root: answer a{"result":1}; answer slow{"result":1}; answer b{"result":1}"#, "root: done"]
    );
    assert_eq!((a.load(Ordering::SeqCst), b.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(slow.calls.load(Ordering::SeqCst), 2, "it was interrupted, so it is called again");
    assert_eq!(session.state.get("called_a"), Some(&json!(1)), "what a completed call has changed is kept");
    assert_eq!(session.events.len(), 4);
    let keys = slow.keys.lock().unwrap();
    assert_eq!(keys[0], keys[1], "the same key for the same call");
}

/// Calls `a` twice with the same arguments.
struct CallsTwice;

#[async_trait]
impl CustomAgent for CallsTwice {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        assert_eq!(cx.call.idempotency_key(), None, "a run of an agent is not a call");
        for _ in 0..2 {
            cx.call.host()?.call_tool(&cx.call, "a", JsonMap::new()).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn no_other_call_of_any_session_has_the_idempotency_key_of_a_call() {
    let keys: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = keys.clone();
    let a = tool("a", move |_, cx| {
        seen.lock().unwrap().push(cx.idempotency_key().unwrap());
        Ok(json!(null))
    });
    let code: Arc<dyn CustomAgent> = Arc::new(CallsTwice);
    let spec = CustomAgentSpec { code, model: None, tools: vec![a] };
    let app = Arc::new(App::new("app", Agent::new("root", "", AgentKind::Custom(spec))).unwrap());
    let services = services();
    // Clients choose all of these names, and a session may follow another one of the same id.
    for (user, session) in [("ann", "s1"), ("ann", "s2"), ("bob", "s1"), ("ann", "s1")] {
        let key = SessionKey::new("app", user, session);
        services.sessions.delete(&key).await.unwrap();
        services.sessions.create("app", user, Some(session), JsonMap::new()).await.unwrap();
        let request = RunRequest { run_id: Some("r1".into()), ..RunRequest::new(user, session, Content::user("hi")) };
        let runner = Runner::new(services.clone());
        runner.run(app.clone(), request).await.unwrap().collect().await.unwrap();
        runner.drain().await;
    }
    let keys = keys.lock().unwrap();
    assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 8, "{keys:?}");
    assert!(keys.iter().all(|key| key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit())), "{keys:?}");
}

#[tokio::test]
async fn an_interrupted_call_that_must_not_be_repeated_is_reported_to_the_model() {
    for is_only in [true, false] {
        let (a, slow) = (Arc::default(), Interrupted::new());
        let calls = Reply::call("slow", json!({}));
        let calls = if is_only { calls } else { calls.and_call("a", json!({})) };
        let model = Arc::new(Scripted::sequence([calls, Reply::text("done")]).record_requests());
        let once = Arc::new(AtMostOnce::new(slow.clone()));
        let root = llm_on("root", &model, |llm| llm.tools = vec![once, count("a", &a)]);
        let (events, _) = take_over(root, &slow, if is_only { 1 } else { 2 }).await;
        assert_eq!(slow.calls.load(Ordering::SeqCst), 1);
        let answer = events[0].function_responses().next().unwrap().clone();
        assert_eq!(
            answer.response,
            map(
                json!({"error": "interrupted: the host died during this call, and it is unknown whether it had its effect; \
                                 find that out, or ask, before you call the tool again"})
            )
        );
        assert_eq!(brief(&events[1]), "root: done");
        assert_eq!(a.load(Ordering::SeqCst), usize::from(!is_only));
    }
}

#[tokio::test]
async fn a_tool_of_a_builder_may_be_called_at_most_once() {
    let tool = function_tool("pay", "Pays.", |_: JsonMap, _| async { Ok(json!(null)) });
    assert!(tool.is_idempotent());
    assert!(!tool.idempotent(false).into_tool().is_idempotent());
}

/// Calls a tool twice with the same arguments, its model, and the slow tool.
struct Works;

#[async_trait]
impl CustomAgent for Works {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let host = cx.call.host()?;
        let one = host.call_tool(&cx.call, "a", JsonMap::new()).await?;
        cx.say(format!("one: {one}")).await?;
        let two = host.call_tool(&cx.call, "a", JsonMap::new()).await?;
        let failed = host.call_tool(&cx.call, "unknown", JsonMap::new()).await.is_err();
        let (model, reply) = ask(&cx, "hello").await?;
        let slow = host.call_tool(&cx.call, "slow", JsonMap::new()).await?;
        let a = cx.call.state("called_a");
        cx.say(format!("two: {two} {failed} {model} {reply} {slow} {a:?}")).await.map(|_| ())
    }
}

async fn ask(cx: &AgentContext, text: &str) -> Result<(String, String), RunError> {
    let (name, model) = cx.call.host()?.model(&cx.call)?;
    let contents = [Arc::new(Content::user(text))].into_iter().collect();
    let request = LlmRequest { model: name.clone(), contents, ..LlmRequest::default() };
    let mut responses = cx.call.generate(&*model, request, StreamingMode::Off).await?;
    let mut reply = String::new();
    while let Some(response) = responses.next().await {
        reply += &response?.content.unwrap_or_default().text();
    }
    Ok((name, reply))
}

#[tokio::test]
async fn tools_and_models_that_code_has_called_are_not_called_again() {
    let (a, slow) = (Arc::default(), Interrupted::new());
    let model = Arc::new(Scripted::new().default_reply("You said {user}.").record_requests());
    let spec = CustomAgentSpec {
        code: Arc::new(Works),
        model: Some(ModelRef::Object("scripted".into(), model.clone())),
        tools: vec![count("a", &a), slow.clone()],
    };
    let (events, session) = take_over(Agent::new("root", "", AgentKind::Custom(spec)), &slow, 3).await;
    assert_eq!(
        briefs(&events),
        ["root: two: 2 true scripted You said hello. 1 Some(Number(2))"],
        "the code gets what the calls returned before"
    );
    assert_eq!(a.load(Ordering::SeqCst), 2);
    assert_eq!(model.requests().len(), 1);
    assert_eq!(slow.calls.load(Ordering::SeqCst), 2);
    assert_eq!(session.events.len(), 3);
    assert_eq!(session.state.get("called_a"), Some(&json!(2)));
}

/// Calls a tool that transfers, which the code may not do, then the slow tool.
struct Transfers;

#[async_trait]
impl CustomAgent for Transfers {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let host = cx.call.host()?;
        let refusal = host.call_tool(&cx.call, "transfers", JsonMap::new()).await.unwrap_err();
        host.call_tool(&cx.call, "slow", JsonMap::new()).await?;
        cx.say(refusal.to_string()).await.map(|_| ())
    }
}

#[tokio::test]
async fn a_call_by_code_whose_request_was_refused_is_not_made_again() {
    let (calls, slow) = (Arc::new(AtomicUsize::new(0)), Interrupted::new());
    let counted = calls.clone();
    let transfers = tool("transfers", move |_, cx| {
        counted.fetch_add(1, Ordering::SeqCst);
        cx.actions().transfer_to_agent = Some("nobody".into());
        Ok(json!(null))
    });
    let spec = CustomAgentSpec { code: Arc::new(Transfers), model: None, tools: vec![transfers, slow.clone()] };
    let (events, _) = take_over(Agent::new("root", "", AgentKind::Custom(spec)), &slow, 0).await;
    assert!(brief(&events[0]).contains("cannot transfer to `nobody`"), "{:?}", briefs(&events));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

/// Calls `a`, as the code of a tool.
struct Nested(Arc<FunctionDeclaration>, Arc<AtomicUsize>);

#[async_trait]
impl Tool for Nested {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    async fn call(&self, _: JsonMap, cx: &CallContext) -> Result<Value, ToolError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        let host = cx.host().unwrap();
        let a = host.call_tool(cx, "a", JsonMap::new()).await?;
        let slow = host.call_tool(cx, "slow", JsonMap::new()).await?;
        Ok(json!([a, slow]))
    }
}

#[tokio::test]
async fn calls_by_the_code_of_an_interrupted_tool_are_not_made_again() {
    let (a, nested, slow) = (Arc::default(), Arc::default(), Interrupted::new());
    let outer: Arc<dyn Tool> = Arc::new(Nested(declaration("nested"), Arc::clone(&nested)));
    let model = Scripted::sequence([Reply::call("nested", json!({})), Reply::text("done")]);
    let root = llm_with("root", model, |llm| llm.tools = vec![outer, count("a", &a), slow.clone()]);
    let (events, _) = take_over(root, &slow, 1).await;
    assert_eq!(briefs(&events), [r#"root: answer nested{"result":[1,1]}"#, "root: done"]);
    assert_eq!((a.load(Ordering::SeqCst), nested.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn an_agent_that_is_called_as_a_tool_goes_on_where_it_was() {
    let (a, b, slow) = (Arc::default(), Arc::default(), Interrupted::new());
    let both = Reply::call("b", json!({})).and_call("slow", json!({}));
    let inner =
        Arc::new(Scripted::sequence([Reply::call("a", json!({})), both, Reply::text("found")]).record_requests());
    let helper = llm_on("helper", &inner, |llm| llm.tools = vec![count("a", &a), count("b", &b), slow.clone()]);
    let model = Scripted::sequence([Reply::call("helper", json!({"request": "look"})), Reply::text("done")]);
    let helper: Arc<dyn Tool> = Arc::new(AgentTool::new(helper).unwrap());
    let root = llm_with("root", model, |llm| llm.tools = vec![helper]);
    // The request, two responses of the model, the answer of `a`, and the answer of `b`.
    let (events, session) = take_over(root, &slow, 5).await;
    assert_eq!(briefs(&events), [r#"root: answer helper{"result":"found"}"#, "root: done"]);
    assert_eq!((a.load(Ordering::SeqCst), b.load(Ordering::SeqCst)), (1, 1));
    assert_eq!(inner.requests().len(), 3, "no model call was repeated");
    assert_eq!(session.state.get("called_b"), Some(&json!(1)));
    assert_eq!(session.events.len(), 4);
}

/// An app that code can run.
struct Other(Option<Arc<App>>);

impl AppDirectory for Other {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.0.clone().filter(|app| app.name == name)
    }

    fn app_names(&self) -> Vec<String> {
        self.0.iter().map(|app| app.name.clone()).collect()
    }
}

/// Runs the other app in sessions with a generated and a given id, then calls the slow tool.
struct Delegates;

impl Delegates {
    async fn delegate(cx: &CallContext, app: &str, session: Option<&str>) -> Result<String, RunError> {
        let request = AppRunRequest {
            app: app.into(),
            session: session.map(Into::into),
            message: Content::user("go"),
            state_delta: JsonMap::new(),
            streaming_mode: StreamingMode::Off,
        };
        let mut run = cx.invocation.apps.clone().unwrap().run(cx, request).await?;
        let mut reply = Vec::new();
        while let Some(event) = run.events.next().await {
            reply.push(event.map_or_else(|error| error.code().to_owned(), |event| brief(&event)));
        }
        Ok(reply.join(", "))
    }
}

#[async_trait]
impl CustomAgent for Delegates {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let first = Self::delegate(&cx.call, "other", None).await?;
        let second = Self::delegate(&cx.call, "other", Some("fixed")).await?;
        let unknown = Self::delegate(&cx.call, "nobody", None).await.unwrap_err().code().to_owned();
        cx.call.host()?.call_tool(&cx.call, "slow", JsonMap::new()).await?;
        cx.say(format!("{first}; {second}; {unknown}")).await.map(|_| ())
    }
}

fn delegating(slow: &Arc<Interrupted>) -> Agent {
    let spec = CustomAgentSpec { code: Arc::new(Delegates), model: None, tools: vec![slow.clone()] };
    Agent::new("root", "", AgentKind::Custom(spec))
}

#[tokio::test]
async fn runs_that_code_has_started_are_not_started_again() {
    let (slow, services) = (Interrupted::new(), services());
    let model = Arc::new(Scripted::new().default_reply("done").record_requests());
    let other = Arc::new(App::new("other", llm_on("other", &model, |_| {})).unwrap());
    let (events, _) = take_over_with(delegating(&slow), &slow, 3, services.clone(), Some(other)).await;
    assert_eq!(briefs(&events), ["root: other: done; other: done; NOT_FOUND"]);
    assert_eq!(model.requests().len(), 2, "no run was repeated");
    let sessions = services.sessions.list("other", USER).await.unwrap();
    assert_eq!(sessions.len(), 2, "no session was created again");
}

#[tokio::test]
async fn the_error_of_a_run_that_code_has_started_is_the_same_when_the_code_runs_again() {
    let (slow, services) = (Interrupted::new(), services());
    let model = Arc::new(Scripted::new().default_reply(Reply::status(429, "slow down")).record_requests());
    let other = Arc::new(App::new("other", llm_on("other", &model, |_| {})).unwrap());
    let (events, _) = take_over_with(delegating(&slow), &slow, 3, services, Some(other)).await;
    let reply = brief(&events[0]);
    assert_eq!(reply.matches("MODEL_RATE_LIMITED").count(), 4, "an event and an error for each run: {reply}");
    assert_eq!(model.requests().len(), 2, "no run was repeated");
}

#[tokio::test]
async fn a_run_that_code_has_started_is_not_started_again_after_it_was_interrupted() {
    let (slow, services) = (Interrupted::new(), services());
    // The other app is in the middle of its run when the host is lost.
    let model = Scripted::sequence([Reply::call("slow", json!({})), Reply::text("never")]);
    let other = llm_with("other", model, |llm| llm.tools = vec![slow.clone()]);
    let other = Arc::new(App::new("other", other).unwrap());
    let (events, _) = take_over_with(delegating(&slow), &slow, 1, services, Some(other)).await;
    let reply = brief(&events[0]);
    assert!(reply.starts_with("root: other: call slow{}, INTERRUPTED; "), "{reply}");
}

#[tokio::test]
async fn a_run_without_records_leaves_no_journal() {
    let app = Harness::new(llm("root", Scripted::new().default_reply("done"))).await;
    let invocation = app.run("hi").await[0].invocation_id.clone();
    app.runner.drain().await;
    let journal = app.runner.services().sessions.journal().unwrap();
    assert_eq!(journal.read(&key(), &invocation).await.unwrap().unwrap(), []);
}

/// Asks its model, then runs the agent `inner`, which pauses.
struct AsksAndWaits;

#[async_trait]
impl CustomAgent for AsksAndWaits {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        let (_, reply) = ask(&cx, "hello").await?;
        cx.run_sub_agent("inner").await?;
        cx.say(reply).await.map(|_| ())
    }
}

#[tokio::test]
async fn model_calls_by_code_before_a_pause_count_once() {
    let (orders, question) = (Arc::default(), Arc::new(Scripted::new().default_reply("{user}!").record_requests()));
    let spec = CustomAgentSpec {
        code: Arc::new(AsksAndWaits),
        model: Some(ModelRef::Object("scripted".into(), question.clone())),
        tools: Vec::new(),
    };
    let inner = Scripted::new().on_tool("order", "arrived").default_reply(Reply::call("order", json!({})));
    let order = order_tool(&orders, Value::Null);
    let inner = llm_with("inner", inner, |llm| llm.tools = vec![order]);
    let root = Agent::new("root", "", AgentKind::Custom(spec)).with_sub_agents(vec![inner]);
    let mut app = Harness::new(root).await;
    app.resumable();
    // The call of the code, and two of the inner agent.
    app.config.max_llm_calls = 3;
    let first = app.run("hi").await;
    app.runner = Runner::new(app.runner.services().clone());
    let call = first.iter().flat_map(|event| event.function_calls()).next().unwrap().id.clone().unwrap();
    let second = app.send(tool_response(&call, "order", json!({"ok": true}))).await;
    assert_eq!(briefs(&second), ["inner: arrived", "root: hello!"]);
    assert_eq!(question.requests().len(), 1);
}
