//! Who makes summaries, and what of.

use super::*;

#[tokio::test]
async fn a_model_is_told_who_said_and_did_what() {
    let summaries = Arc::new(Scripted::sequence(["sum"]));
    let model = Scripted::new()
        .on_tool("add", "three")
        .default_reply(Reply::new().and_thought("hm").and_text("let me see").and_call("add", json!({"a": 1})));
    let agent = llm_with("root", model, |llm| llm.tools = vec![tool("add", |_, _| Ok(json!({"sum": 3})))]);
    let prompt = LlmSummarizer::new(ModelRef::Object("summaries".into(), summaries.clone()))
        .with_prompt("Sum up:\n{conversation_history}\nThat was it.")
        .unwrap();
    let app = compacted(agent, every(1, SummarizerRef::Custom(Arc::new(prompt)))).await;
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
fn a_prompt_without_the_conversation_is_refused() {
    let model = ModelRef::Named("m".into());
    let error = LlmSummarizer::new(model).with_prompt("Sum up.").err().unwrap();
    assert_eq!(error.to_string(), "the prompt for summaries has no placeholder `{conversation_history}`; add it");
}

/// Models by one name.
struct One(Arc<Scripted>);

impl ModelResolver for One {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        assert_eq!(name, "named");
        Ok(self.0.clone())
    }
}

#[tokio::test]
async fn without_a_summarizer_the_root_agents_model_makes_the_summaries_also_when_it_is_named() {
    let model = Arc::new(Scripted::sequence(["answer", "sum"]));
    let root = llm_with("root", Scripted::new(), |llm| llm.model = Some(ModelRef::Named("named".into())));
    let mut app = compacted(root, every(1, SummarizerRef::Default)).await;
    let services = Services { models: Arc::new(One(model.clone())), ..app.runner.services().clone() };
    app.runner = Runner::new(services);
    app.say_and_settle("a").await;
    assert_eq!(app.compactions().await.len(), 1);
    assert_eq!(model.requests()[1].model, "named");
}

#[tokio::test]
async fn a_root_agent_without_a_model_leaves_summaries_to_that_of_the_first_agent_that_has_one() {
    let model = Arc::new(Scripted::sequence(["answer", "sum"]));
    let root = workflow("all", AgentKind::Sequential, vec![llm_on("first", &model, |_| {})]);
    let app = compacted(root, every(1, SummarizerRef::Default)).await;
    app.say_and_settle("a").await;
    assert_eq!(app.compactions().await.len(), 1);
}

/// Says "ok", without a model.
struct Says;

#[async_trait]
impl CustomAgent for Says {
    async fn run(&self, cx: AgentContext) -> Result<(), RunError> {
        cx.say("ok").await.map(|_| ())
    }
}

#[tokio::test]
async fn an_app_without_any_model_is_told_to_name_one() {
    let (log, _guard) = logged();
    let root =
        Agent::new("root", "", AgentKind::Custom(CustomAgentSpec { code: Arc::new(Says), model: None, tools: vec![] }));
    let app = compacted(root, every(1, SummarizerRef::Default)).await;
    app.say_and_settle("a").await;
    assert!(app.compactions().await.is_empty());
    let expected = "no agent of the app has a model; set `summarizer` of the compaction to the name of a model";
    assert!(text_of(&log).contains(expected), "{}", text_of(&log));
}

#[tokio::test]
async fn an_empty_summary_is_none_and_half_a_summary_is_a_failure() {
    for reply in [Reply::text(" "), Reply::new().and_thought("hm"), Reply::text("half").finish("MAX_TOKENS")] {
        let summaries = Arc::new(Scripted::sequence([reply]));
        let app = compacted(llm("root", Scripted::new().default_reply("ok")), every(1, by(&summaries))).await;
        app.say_and_settle("a").await;
        assert_eq!((app.compactions().await.len(), summaries.requests().len()), (0, 1));
    }
}

#[tokio::test]
async fn the_model_calls_of_a_compaction_are_bounded_and_count_for_no_run() {
    /// Asks its agent's model until it is refused.
    struct Greedy(Mutex<Option<(u32, String)>>);
    #[async_trait]
    impl Summarizer for Greedy {
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
    let greedy = Arc::new(Greedy(Mutex::default()));
    let mut app =
        compacted(llm("root", Scripted::new().default_reply("ok")), every(1, SummarizerRef::Custom(greedy.clone())))
            .await;
    app.config.max_llm_calls = 1;
    app.say_and_settle("a").await;
    assert_eq!(*greedy.0.lock().unwrap(), Some((10, "LIMIT_REACHED".into())));
    app.say_and_settle("b").await;
}
