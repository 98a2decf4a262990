//! Plugins: each hook, the order of answers, and replaced messages and events.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    CallContext, Callback, Content, Event, EventData, HookPoint, JsonMap, LlmRequest, LlmResponse, ModelError,
    ModelErrorKind, Plugin, RunError, ToolError,
};
use hatchery_engine::build::CallbackPlugin;
use hatchery_engine::{Plugins, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::support::*;

/// Records every hook, and answers in the hooks of `answers`.
#[derive(Default)]
struct RecordingPlugin {
    name: &'static str,
    answers: &'static [&'static str],
    seen: Mutex<Vec<&'static str>>,
}

impl RecordingPlugin {
    fn new(name: &'static str, answers: &'static [&'static str]) -> Arc<Self> {
        Arc::new(Self { name, answers, seen: Mutex::default() })
    }

    /// Records a hook. Returns true if it is to answer.
    fn record(&self, hook: &'static str) -> bool {
        self.seen.lock().unwrap().push(hook);
        self.answers.contains(&hook)
    }

    fn seen(&self) -> Vec<&'static str> {
        self.seen.lock().unwrap().clone()
    }

    fn text(&self, hook: &str) -> String {
        format!("{} {hook}", self.name)
    }
}

#[async_trait]
impl Callback for RecordingPlugin {
    fn name(&self) -> &str {
        self.name
    }
    async fn before_agent(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(self.record("before_agent").then(|| Content::model(self.text("before_agent"))))
    }
    async fn after_agent(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(self.record("after_agent").then(|| Content::model(self.text("after_agent"))))
    }
    async fn before_model(&self, _: &CallContext, _: &mut LlmRequest) -> Result<Option<LlmResponse>, RunError> {
        Ok(self.record("before_model").then(|| LlmResponse::text(self.text("before_model"))))
    }
    async fn after_model(&self, _: &CallContext, _: &LlmResponse) -> Result<Option<LlmResponse>, RunError> {
        Ok(self.record("after_model").then(|| LlmResponse::text(self.text("after_model"))))
    }
    async fn on_model_error(
        &self,
        _: &CallContext,
        _: &LlmRequest,
        _: &ModelError,
    ) -> Result<Option<LlmResponse>, RunError> {
        Ok(self.record("on_model_error").then(|| LlmResponse::text(self.text("on_model_error"))))
    }
    async fn before_tool(&self, _: &CallContext, _: &str, _: &mut JsonMap) -> Result<Option<JsonMap>, RunError> {
        Ok(self.record("before_tool").then(|| map(json!({"by": self.name}))))
    }
    async fn after_tool(
        &self,
        _: &CallContext,
        _: &str,
        _: &JsonMap,
        _: &JsonMap,
    ) -> Result<Option<JsonMap>, RunError> {
        Ok(self.record("after_tool").then(|| map(json!({"by": self.name}))))
    }
    async fn on_tool_error(
        &self,
        _: &CallContext,
        _: &str,
        _: &JsonMap,
        _: &ToolError,
    ) -> Result<Option<JsonMap>, RunError> {
        Ok(self.record("on_tool_error").then(|| map(json!({"recovered": self.name}))))
    }
}

#[async_trait]
impl Plugin for RecordingPlugin {
    async fn on_user_message(&self, cx: &CallContext, message: &Content) -> Result<Option<Content>, RunError> {
        cx.set_state("received", json!(message.text()));
        Ok(self.record("on_user_message").then(|| Content::user(self.text("on_user_message"))))
    }
    async fn before_run(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(self.record("before_run").then(|| Content::model(self.text("before_run"))))
    }
    async fn on_event(&self, _: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        let content = Some(Arc::new(Content::model(self.text("on_event"))));
        let replacement = EventData { author: event.author.clone(), content, ..EventData::default() };
        Ok(self.record("on_event").then_some(replacement))
    }
    async fn after_run(&self, cx: &CallContext) -> Result<(), RunError> {
        if self.record("after_run") {
            cx.set_state("after", json!(self.name));
        }
        Ok(())
    }
    async fn on_run_error(&self, _: &CallContext, _: &RunError) {
        self.record("on_run_error");
    }
    async fn close(&self) {
        self.record("close");
    }
}

async fn with_plugins(root: hatchery_core::Agent, plugins: &[&Arc<RecordingPlugin>]) -> Harness {
    let mut app = Harness::new(root).await;
    let plugins = plugins.iter().map(|plugin| (*plugin).clone() as Arc<dyn Plugin>).collect();
    app.runner = Runner::with_plugins(app.runner.services().clone(), Plugins::new(plugins).unwrap());
    app
}

/// Returns an agent that answers `model`.
pub fn answering() -> hatchery_core::Agent {
    llm("root", Scripted::new().default_reply("model"))
}

/// Returns an agent that calls the tool `t` with this body.
pub fn calling(
    body: impl Fn() -> Result<serde_json::Value, ToolError> + Send + Sync + 'static,
) -> hatchery_core::Agent {
    let model = Scripted::sequence([Reply::call("t", json!({})), Reply::text("done")]);
    llm_with("root", model, |llm| llm.tools = vec![tool("t", move |_, _| body())])
}

#[tokio::test]
async fn the_hooks_of_a_run_run_in_order() {
    let plugin = RecordingPlugin::new("p", &[]);
    let app = with_plugins(calling(|| Ok(json!(1))), &[&plugin]).await;
    app.run("hi").await;
    app.runner.close().await;
    assert_eq!(
        plugin.seen(),
        [
            "on_user_message",
            "before_run",
            "before_agent",
            "before_model",
            "after_model",
            "on_event",
            "before_tool",
            "after_tool",
            "on_event",
            "before_model",
            "after_model",
            "on_event",
            "after_agent",
            "after_run",
            "close"
        ]
    );
}

#[tokio::test]
async fn the_first_answer_wins_over_later_plugins_and_the_agents_own_callbacks() {
    let (first, second) =
        (RecordingPlugin::new("first", &["before_model"]), RecordingPlugin::new("second", &["before_model"]));
    let root = llm_with("root", Scripted::new(), |llm| {
        llm.callbacks.push(
            HookPoint::BeforeModel,
            FixedCallback { name: "own", model: Some("own"), ..FixedCallback::default() }.arc(),
        );
    });
    let app = with_plugins(root, &[&first, &second]).await;
    assert_eq!(app.transcript("hi").await, ["root: first before_model"]);
    assert!(!second.seen().contains(&"before_model"));
}

#[tokio::test]
async fn a_replaced_message_is_stored_and_sent_to_the_model() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let app = with_plugins(llm_on("root", &model, |_| {}), &[&RecordingPlugin::new("p", &["on_user_message"])]).await;
    app.run("hi").await;
    let session = app.session().await;
    assert_eq!(brief(&session.events[0]), "user: p on_user_message");
    assert_eq!(session.events[0].actions.state_delta, map(json!({"received": "hi"})));
    assert_eq!(model.requests()[0].contents[0].text(), "p on_user_message");
}

#[tokio::test]
async fn an_answer_before_the_run_replaces_it_and_is_stored() {
    let app = with_plugins(answering(), &[&RecordingPlugin::new("p", &["before_run"])]).await;
    assert_eq!(app.transcript("hi").await, ["model: p before_run"]);
    assert_eq!(app.session().await.events.len(), 2);
}

#[tokio::test]
async fn a_replaced_event_is_stored_and_sent_under_its_id() {
    let app = with_plugins(answering(), &[&RecordingPlugin::new("p", &["on_event"])]).await;
    let events = app.run("hi").await;
    assert_eq!(brief(&events[0]), "root: p on_event");
    let stored = app.session().await.events;
    assert!(Arc::ptr_eq(&stored[1], &events[0]));
    assert_eq!(stored[1].invocation_id, stored[0].invocation_id);
}

#[tokio::test]
async fn an_answer_to_a_model_error_passes_through_after_model() {
    let plugin = RecordingPlugin::new("p", &["on_model_error"]);
    let root = llm("root", Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down")));
    let app = with_plugins(root, &[&plugin]).await;
    assert_eq!(app.transcript("hi").await, ["root: p on_model_error"]);
    assert!(plugin.seen().contains(&"after_model") && !plugin.seen().contains(&"on_run_error"));
}

#[tokio::test]
async fn an_answer_to_a_tool_error_passes_through_after_tool() {
    let plugin = RecordingPlugin::new("p", &["on_tool_error"]);
    let fatal = || Err(ToolError::Fatal { tool: "t".into(), code: "X".into(), message: "broken".into() });
    let app = with_plugins(calling(fatal), &[&plugin]).await;
    assert_eq!(app.transcript("hi").await[1..], ["root: answer t{\"recovered\":\"p\"}", "root: done"]);
    assert!(plugin.seen().contains(&"after_tool"));
}

#[tokio::test]
async fn every_plugin_gets_the_error_of_a_failed_run_and_no_after_run() {
    let (first, second) = (RecordingPlugin::new("first", &[]), RecordingPlugin::new("second", &[]));
    let root = llm("root", Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down")));
    let app = with_plugins(root, &[&first, &second]).await;
    app.expect_error("hi").await;
    for plugin in [first, second] {
        assert_eq!(plugin.seen().iter().filter(|hook| **hook == "on_run_error").count(), 1);
        assert!(!plugin.seen().contains(&"after_run"));
    }
}

#[tokio::test]
async fn state_set_after_the_run_is_stored() {
    let app = with_plugins(answering(), &[&RecordingPlugin::new("p", &["after_run"])]).await;
    app.run("hi").await;
    assert_eq!(app.state().await["after"], "p");
}

#[tokio::test]
async fn plugins_are_found_by_name_and_names_are_unique() {
    let plugin = || RecordingPlugin::new("p", &[]) as Arc<dyn Plugin>;
    let plugins = Plugins::new(vec![plugin()]).unwrap();
    assert!(plugins.get("p").is_some() && plugins.get("q").is_none());
    let error = Plugins::new(vec![plugin(), plugin()]).err().unwrap();
    assert_eq!(error.to_string(), "Plugin with name 'p' already registered.");
}

/// Returns an app with this plugin only.
pub async fn with_plugin(root: hatchery_core::Agent, plugin: impl Plugin + 'static) -> Harness {
    let mut app = Harness::new(root).await;
    let plugins = Plugins::new(vec![Arc::new(plugin)]).unwrap();
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    app
}

#[tokio::test]
async fn callbacks_in_a_plugin_run_in_order_and_the_first_answer_wins() {
    let answers = |name, model| FixedCallback { name, model, ..FixedCallback::default() }.arc();
    let plugin = CallbackPlugin::new("answers")
        .before_model(answers("silent", None))
        .before_model(answers("first", Some("first")))
        .before_model(answers("second", Some("second")));
    assert_eq!(with_plugin(answering(), plugin).await.transcript("hi").await, ["root: first"]);
}

#[tokio::test]
async fn callbacks_in_a_plugin_run_at_each_point_before_the_agents_own() {
    let seen: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let record = |what: &'static str| {
        let seen = seen.clone();
        move || seen.lock().unwrap().push(what)
    };
    let records = ["a", "b", "c", "d", "e", "f", "g", "h"].map(record);
    let [ba, aa, bm, am, ome, bt, at, ote] = records;
    let plugin = CallbackPlugin::new("notes")
        .before_agent_fn(move |_| recorded(&ba))
        .after_agent_fn(move |_| recorded(&aa))
        .before_model_fn(move |_, _| recorded(&bm))
        .after_model_fn(move |_, _| recorded(&am))
        .on_model_error_fn(move |_, _, _| {
            ome();
            Box::pin(async { Ok(Some(LlmResponse::text("recovered"))) })
        })
        .before_tool_fn(move |_, _, _| recorded(&bt))
        .after_tool_fn(move |_, _, _, _| recorded(&at))
        .on_tool_error_fn(move |_, _, _, _| recorded(&ote));
    let replies = [Reply::call("t", json!({})), Reply::error(ModelErrorKind::Server, "down")];
    let failing = tool("t", |_, _| Err(ToolError::Recoverable("no".into())));
    let root = llm_with("root", Scripted::sequence(replies), |llm| llm.tools = vec![failing]);
    let app = with_plugin(root, plugin).await;
    assert_eq!(app.transcript("hi").await[1..], ["root: answer t{\"error\":\"no\"}", "root: recovered"]);
    assert_eq!(
        seen.lock().unwrap().concat(),
        "acdfhgcedb",
        "agent, model, tool with its error, model with its error, agent"
    );
}

/// Calls `record` and returns no answer.
fn recorded<'a, T>(record: &impl Fn()) -> hatchery_engine::build::callback::Answer<'a, T> {
    record();
    Box::pin(async { Ok(None) })
}

#[tokio::test]
async fn an_answer_of_a_plugin_before_an_agent_wins_over_the_agents_own() {
    let mut root = answering();
    root.callbacks.push(
        HookPoint::BeforeAgent,
        FixedCallback { name: "own", agent: Some("own"), ..FixedCallback::default() }.arc(),
    );
    let app = with_plugins(root, &[&RecordingPlugin::new("p", &["before_agent"])]).await;
    assert_eq!(app.transcript("hi").await, ["root: p before_agent"]);
}

#[tokio::test]
async fn an_answer_of_a_plugin_after_an_agent_wins_over_the_agents_own() {
    let mut root = answering();
    root.callbacks.push(
        HookPoint::AfterAgent,
        FixedCallback { name: "own", agent: Some("own"), ..FixedCallback::default() }.arc(),
    );
    let app = with_plugins(root, &[&RecordingPlugin::new("p", &["after_agent"])]).await;
    assert_eq!(app.transcript("hi").await, ["root: model", "root: p after_agent"]);
}

#[tokio::test]
async fn an_answer_of_a_plugin_after_the_model_wins_over_the_agents_own() {
    let root = llm_with("root", Scripted::new().default_reply("model"), |llm| {
        llm.callbacks.push(
            HookPoint::AfterModel,
            FixedCallback { name: "own", model: Some("own"), ..FixedCallback::default() }.arc(),
        );
    });
    let app = with_plugins(root, &[&RecordingPlugin::new("p", &["after_model"])]).await;
    assert_eq!(app.transcript("hi").await, ["root: p after_model"]);
}

#[tokio::test]
async fn answers_of_a_plugin_around_a_tool_win_over_the_agents_own() {
    let with_own = |hook: &'static [&'static str]| async move {
        let model = Scripted::sequence([Reply::call("t", json!({})), Reply::text("done")]);
        let root = llm_with("root", model, |llm| {
            llm.tools = vec![tool("t", |_, _| Ok(json!("tool")))];
            let own = FixedCallback { name: "own", tool: Some(json!({"by": "own"})), ..FixedCallback::default() };
            llm.callbacks.push(HookPoint::BeforeTool, own.clone().arc());
        });
        with_plugins(root, &[&RecordingPlugin::new("p", hook)]).await.transcript("hi").await[1].clone()
    };
    assert_eq!(with_own(&["before_tool"]).await, "root: answer t{\"by\":\"p\"}");
    assert_eq!(with_own(&["after_tool"]).await, "root: answer t{\"by\":\"p\"}");
}

#[tokio::test]
async fn the_agents_own_callbacks_see_arguments_that_a_plugin_changed() {
    let plugin = CallbackPlugin::new("marks")
        .before_tool(FixedCallback { name: "m", mark: Some("seen"), ..FixedCallback::default() }.arc());
    let model = Arc::new(Scripted::sequence([Reply::call("echo", json!({"a": 1})), Reply::text("done")]));
    let root = hatchery_engine::build::llm("root")
        .model_instance("scripted", model)
        .tools([tool("echo", |_, _| panic!("must not run"))])
        .before_tool_fn(|_, _, args| Box::pin(async move { Ok(Some(args.clone())) }))
        .build()
        .unwrap();
    assert_eq!(
        with_plugin(root, plugin).await.transcript("hi").await[1],
        "root: answer echo{\"a\":1,\"mark\":\"seen\"}"
    );
}

#[tokio::test]
async fn the_agents_own_callbacks_do_not_see_a_tool_error_that_a_plugin_answered() {
    let root = hatchery_engine::build::llm("root")
        .model_instance("scripted", Arc::new(Scripted::sequence([Reply::call("t", json!({})), Reply::text("done")])))
        .tools([tool("t", |_, _| Err(ToolError::Recoverable("no".into())))])
        .on_tool_error_fn(|_, _, _, _| panic!("must not run"))
        .build()
        .unwrap();
    let app = with_plugins(root, &[&RecordingPlugin::new("p", &["on_tool_error"])]).await;
    assert_eq!(app.transcript("hi").await[1], "root: answer t{\"recovered\":\"p\"}");
}

#[tokio::test]
async fn the_agents_own_callbacks_do_not_see_a_model_error_that_a_plugin_answered() {
    let down = Scripted::new().default_reply(Reply::error(ModelErrorKind::Server, "down"));
    let root = hatchery_engine::build::llm("root")
        .model_instance("scripted", Arc::new(down))
        .on_model_error_fn(|_, _, _| panic!("must not run"))
        .build()
        .unwrap();
    let app = with_plugins(root, &[&RecordingPlugin::new("p", &["on_model_error"])]).await;
    assert_eq!(app.transcript("hi").await, ["root: p on_model_error"]);
}
