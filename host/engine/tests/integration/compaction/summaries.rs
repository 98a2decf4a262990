//! Summarizers and their prompts.

use hatchery_core::{Callback, EventActions, Plugin};
use hatchery_engine::Plugins;

use super::*;

/// Replaces the text of summaries.
struct MaskingPlugin;

#[async_trait]
impl Callback for MaskingPlugin {
    fn name(&self) -> &str {
        "masks"
    }
}

#[async_trait]
impl Plugin for MaskingPlugin {
    async fn on_event(&self, _: &CallContext, event: &Event) -> Result<Option<EventData>, RunError> {
        let Some(mut compaction) = event.actions.compaction.clone() else { return Ok(None) };
        compaction.compacted_content = Content::model("***");
        let actions = EventActions { compaction: Some(compaction), ..EventActions::default() };
        Ok(Some(EventData { author: event.author.clone(), actions, ..EventData::default() }))
    }
}

#[tokio::test]
async fn plugins_see_and_may_change_summaries() {
    let (model, summaries) = (Arc::new(Scripted::sequence(["one", "two"])), Arc::new(Scripted::sequence(["secret"])));
    let mut app = app_with_compaction(llm_on("root", &model, |_| {}), every(1, summarizer(&summaries))).await;
    let plugins = Plugins::new(vec![Arc::new(MaskingPlugin) as Arc<dyn Plugin>]).unwrap();
    app.runner = Runner::with_plugins(app.runner.services().clone(), plugins);
    app.run_and_drain("a").await;
    app.run("b").await;
    assert_eq!(texts(&model.requests()[1]), ["***", "b"]);
}

#[tokio::test]
async fn the_prompt_has_the_conversation_with_roles() {
    let summaries = Arc::new(Scripted::sequence(["sum"]));
    let model = Scripted::new()
        .on_tool("add", "three")
        .default_reply(Reply::new().and_thought("hm").and_text("let me see").and_call("add", json!({"a": 1})));
    let agent = llm_with("root", model, |llm| llm.tools = vec![tool("add", |_, _| Ok(json!({"sum": 3})))]);
    let prompt = LlmSummarizer::new(ModelRef::Object("summaries".into(), summaries.clone()))
        .with_prompt("Sum up:\n{conversation_history}\nThat was it.")
        .unwrap();
    let app = app_with_compaction(agent, every(1, SummarizerRef::Custom(Arc::new(prompt)))).await;
    let file = PartData::FileData(hatchery_core::FileData { file_uri: "gs://f".into(), ..Default::default() });
    let message = Content::new("user", vec![Part::text("add"), file.into()]);
    app.runner.run(app.app.clone(), app.request(message)).await.unwrap().collect().await.unwrap();
    app.runner.drain().await;
    let request = &summaries.requests()[0];
    let expected = "Sum up:\nuser: add\nuser: [FILE: gs://f]\nmodel: let me see\nmodel: [FUNCTION_CALL: add({\"a\":1})]\n\
                    user: [FUNCTION_RESPONSE: add -> {\"sum\":3}]\nmodel: three\nThat was it.";
    assert_eq!(texts(request), [expected]);
    assert!(request.tools.is_empty() && request.system_instructions.is_empty());
}

#[test]
fn a_prompt_without_a_placeholder_is_rejected() {
    let model = ModelRef::Named("m".into());
    let error = LlmSummarizer::new(model).with_prompt("Sum up.").err().unwrap();
    assert_eq!(error.to_string(), "the prompt for summaries has no placeholder `{conversation_history}`; add it");
}

/// Resolves one name.
struct SingleModel(Arc<Scripted>);

impl ModelResolver for SingleModel {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        assert_eq!(name, "named");
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn the_default_summarizer_uses_the_model_of_the_root_agent() {
    let model = Arc::new(Scripted::sequence(["answer", "sum"]));
    let root = llm_with("root", Scripted::new(), |llm| llm.model = Some(ModelRef::Named("named".into())));
    let mut app = app_with_compaction(root, every(1, SummarizerRef::Default)).await;
    let services = Services { models: Arc::new(SingleModel(model.clone())), ..app.runner.services().clone() };
    app.runner = Runner::new(services);
    app.run_and_drain("a").await;
    assert_eq!(app.compactions().await.len(), 1);
    assert_eq!(model.requests()[1].model, "named");
}

#[tokio::test]
async fn the_default_summarizer_uses_the_first_agent_with_a_model() {
    let model = Arc::new(Scripted::sequence(["answer", "sum"]));
    let root = workflow("all", AgentKind::Sequential, vec![llm_on("first", &model, |_| {})]);
    let app = app_with_compaction(root, every(1, SummarizerRef::Default)).await;
    app.run_and_drain("a").await;
    assert_eq!(app.compactions().await.len(), 1);
}

/// Responds "ok" without a model.
struct RespondingAgent;

#[async_trait]
impl CustomAgent for RespondingAgent {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("ok").await.map(|_| ())
    }
}

#[tokio::test]
async fn an_app_without_a_model_logs_how_to_set_one() {
    let (log, _guard) = capture_log();
    let root = Agent::new(
        "root",
        "",
        AgentKind::Custom(CustomAgentSpec { code: Arc::new(RespondingAgent), model: None, tools: vec![] }),
    );
    let app = app_with_compaction(root, every(1, SummarizerRef::Default)).await;
    app.run_and_drain("a").await;
    assert!(app.compactions().await.is_empty());
    let expected = "no agent of the app has a model; set `summarizer` of the compaction to the name of a model";
    assert!(text_of(&log).contains(expected), "{}", text_of(&log));
}

#[tokio::test]
async fn empty_and_incomplete_summaries_are_not_appended() {
    for reply in [Reply::text(" "), Reply::new().and_thought("hm"), Reply::text("half").finish("MAX_TOKENS")] {
        let summaries = Arc::new(Scripted::sequence([reply]));
        let app =
            app_with_compaction(llm("root", Scripted::new().default_reply("ok")), every(1, summarizer(&summaries)))
                .await;
        app.run_and_drain("a").await;
        assert_eq!((app.compactions().await.len(), summaries.requests().len()), (0, 1));
    }
}

#[tokio::test]
async fn the_model_calls_of_a_compaction_are_limited_and_not_counted_for_runs() {
    /// Calls the model until the limit is reached.
    struct CallingSummarizer(Mutex<Option<(u32, String)>>);
    #[async_trait]
    impl Summarizer for CallingSummarizer {
        async fn summarize(&self, _: &[Arc<Event>], cx: &CallContext) -> Result<Option<Content>, RunError> {
            let (_, model) = cx.host()?.model(cx)?;
            let mut calls = 0;
            loop {
                let request = LlmRequest::default();
                match cx.invocation.generate(&cx.agent, model.as_ref(), request, StreamingMode::Off).await {
                    Ok(_) => calls += 1,
                    Err(error) => {
                        *self.0.lock().unwrap() = Some((calls, error.code().into()));
                        return Err(error);
                    }
                }
            }
        }
    }
    let summarizer = Arc::new(CallingSummarizer(Mutex::default()));
    let mut app = app_with_compaction(
        llm("root", Scripted::new().default_reply("ok")),
        every(1, SummarizerRef::Custom(summarizer.clone())),
    )
    .await;
    app.config.max_llm_calls = 1;
    app.run_and_drain("a").await;
    assert_eq!(*summarizer.0.lock().unwrap(), Some((10, "LIMIT_REACHED".into())));
    app.run_and_drain("b").await;
}
