//! The services of the host that a component uses: information about the run, and ending it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use hatchery_core::{
    Callback, Event, ItemResolver, JsonMap, LiveConnectConfig, LlmRequest, MemoryEntry, MemoryService,
    ModelCapabilities, ModelResolver, RunConfig, Session, SessionKey, StoreError, StreamingMode,
};
use hatchery_engine::{App, AppSettings, Plugins, RunRequest, Runner};
use hatchery_models::ModelProviders;
use hatchery_models::scripted::{Reply, Scripted};
use hatchery_stores::{KeywordMemory, SimilaritySearch};
use serde_json::{Value, json};

use crate::imports::CapturedLog;
use crate::support::{
    Chat, OneModel, TestCatalog, call, call_in, context, context_with_memory, run_app, services, transcript,
};

/// Returns the texts of a run of an app of the component.
async fn texts(app: &str, message: &str) -> Vec<String> {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let (events, error) = run_app(&catalog, app, message, Scripted::new(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    transcript(&events).into_iter().map(|(_, text)| text).collect()
}

#[tokio::test]
async fn a_component_reads_how_its_run_is_delivered_and_what_is_left() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let model = || Scripted::sequence([Reply::call("info", json!({})), Reply::text("done")]);
    let app = App::clone(catalog.app("scribe").unwrap());
    let app = app.with_settings(AppSettings { resumable: true, ..AppSettings::default() });
    let runner = Runner::new(services(model()));
    let mut request = RunRequest::new("user", "session", hatchery_core::Content::user("hello"));
    request.config = RunConfig {
        auto_create_session: true,
        streaming_mode: StreamingMode::On,
        max_llm_calls: 5,
        max_events: 0,
        max_tokens: 1000,
        max_run_bytes: 0,
        ..RunConfig::default()
    };
    let events = runner.run(Arc::new(app), request).await.unwrap().collect().await.unwrap();
    let answers: Vec<_> = events.iter().flat_map(|event| event.function_responses()).collect();
    let used = events.iter().find_map(|event| event.usage_metadata.as_deref()).unwrap().total();
    assert_eq!(
        Value::Object(answers[0].response.clone()),
        json!({"mode": "sse", "resumable": true, "depth": 0,
            "left": {"calls": 4, "tokens": 1000 - used, "events": null, "bytes": null}})
    );
    let plain = call(&catalog, "info", json!({})).await.unwrap();
    assert_eq!((&plain["mode"], &plain["resumable"]), (&json!("none"), &json!(false)));
}

#[tokio::test]
async fn a_tool_ends_the_run() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let model = Scripted::sequence([Reply::call("stop", json!({}))]);
    let (events, error) = run_app(&catalog, "scribe", "hello", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(events.len(), 2);
    assert_eq!(events[1].actions.end_invocation, Some(true));
}

#[tokio::test]
async fn an_agent_or_a_callback_ends_the_run_and_the_agents_after_it_do_not_run() {
    assert_eq!(texts("night_watch", "go on").await, ["All is well.", "Still well.", "Good morning."]);
    assert_eq!(texts("night_watch", "stop by agent").await, ["All is well.", ""]);
    assert_eq!(texts("night_watch", "stop by callback").await, [""]);
}

#[tokio::test]
async fn the_code_of_an_instruction_cannot_change_the_session() {
    let catalog =
        TestCatalog::new().with("services").with_grants("services", json!({"artifacts": "write"})).catalog().await;
    let model = Arc::new(Scripted::sequence(["ok"]));
    let chat = Chat::new(&catalog, "scribe", Arc::new(OneModel(model.clone())), Plugins::default());
    let (_, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(
        model.requests()[0].system_instructions[0],
        r#"Err("READ_ONLY"), Err("an instruction only reads: make this change in a tool, a callback or an agent")"#
    );
    assert_eq!(chat.session().await.state.get("meddled"), None);
}

#[tokio::test]
async fn the_arguments_of_a_tool_and_of_a_plugin_reach_their_code() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let tool = catalog.tool("services/arguments").unwrap();
    let cx = context(&catalog);
    assert_eq!(tool.call(JsonMap::new(), &cx).await.unwrap(), json!(null));
    let args = JsonMap::from_iter([("limit".to_owned(), json!(3))]);
    let tool = tool.with_arguments(args).unwrap();
    assert_eq!(tool.call(JsonMap::new(), &cx).await.unwrap(), json!({"limit": 3}));

    let args = JsonMap::from_iter([("text".to_owned(), json!("Be kind."))]);
    for (args, advice) in [(JsonMap::new(), "no advice"), (args, "Be kind.")] {
        let plugins = Plugins::new(vec![catalog.plugin("services/advice", args).unwrap()]).unwrap();
        let model = Arc::new(Scripted::sequence(["ok"]));
        let chat = Chat::new(&catalog, "scribe", Arc::new(OneModel(model.clone())), plugins);
        chat.say("hello", RunConfig::default()).await;
        assert_eq!(model.requests()[0].system_instructions.last().unwrap(), advice);
    }
}

#[tokio::test]
async fn a_revised_request_keeps_what_the_contract_does_not_carry() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let plugin = catalog.plugin("services/advice", JsonMap::new()).unwrap();
    let live = LiveConnectConfig { response_modalities: vec!["TEXT".into()], ..LiveConnectConfig::default() };
    let capabilities = ModelCapabilities { live: true, ..ModelCapabilities::default() };
    let mut request = LlmRequest { live_connect_config: Some(live.clone()), capabilities, ..LlmRequest::default() };
    let answer = Callback::before_model(&*plugin, &context(&catalog), &mut request).await.unwrap();
    assert!(answer.is_none());
    assert_eq!(request.system_instructions, ["no advice"]);
    assert_eq!((request.live_connect_config, request.capabilities), (Some(live), capabilities));
}

#[tokio::test]
async fn code_looks_up_the_plugins_of_its_run() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let plugins = Plugins::new(vec![catalog.plugin("services/advice", JsonMap::new()).unwrap()]).unwrap();
    let model = Scripted::sequence([
        Reply::call("plugins", json!({})),
        Reply::call("plugins", json!({"name": "advice"})),
        Reply::call("plugins", json!({"name": "nobody"})),
        Reply::text("done"),
    ]);
    let chat = Chat::new(&catalog, "scribe", Arc::new(OneModel(Arc::new(model))), plugins);
    let (events, error) = chat.say("hello", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let results: Vec<_> =
        events.iter().flat_map(|event| event.function_responses()).map(|it| it.response["result"].clone()).collect();
    let advice = json!([["advice", ["close", "before-model"], "services"]]);
    assert_eq!(results, [advice.clone(), advice, json!([])]);
}

#[tokio::test]
async fn a_deleted_artifact_leaves_its_trace_in_the_event() {
    let catalog =
        TestCatalog::new().with("services").with_grants("services", json!({"artifacts": "write"})).catalog().await;
    let model = Scripted::sequence([Reply::call("shred", json!({})), Reply::text("done")]);
    let (events, error) = run_app(&catalog, "scribe", "hello", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let json: Value = serde_json::from_slice(events[1].json()).unwrap();
    assert_eq!(json["actions"]["deletedArtifactIds"], json!(["draft"]));
    assert_eq!(json["actions"]["artifactDelta"], json!({"final": 0}));
}

#[tokio::test]
async fn texts_are_embedded_with_a_grant_for_the_embedder() {
    let ask = async |grants: Value, args: Value| {
        let catalog = TestCatalog::new().with("services").with_grants("services", grants).catalog().await;
        call(&catalog, "compare", args).await.map_err(|error| error.to_string())
    };
    let args = json!({"model": "local:hashed-ngrams", "texts": ["A red lamp.", "a RED lamp"]});
    let denied = ask(json!({}), args.clone()).await.unwrap_err();
    assert_eq!(denied, "component `services` may not ask the model `local:hashed-ngrams`");
    let same = ask(json!({"models": ["local:*"]}), args).await.unwrap();
    assert!((same.as_f64().unwrap() - 1.0).abs() < 1e-4, "{same}");
    let unknown = ask(json!({"models": ["*"]}), json!({"model": "nowhere", "texts": []})).await.unwrap_err();
    assert_eq!(unknown, "model `nowhere`: the server does not have it; its log holds the cause");
    let listed = ask(json!({"models": ["local:*", "gemini-2.5-flash"]}), json!({"model": "list", "texts": []})).await;
    assert_eq!(listed, Ok(json!(["local:*", "gemini-2.5-flash"])));
}

#[tokio::test]
async fn embeddings_count_as_model_calls() {
    let limits = hatchery_wasm::Limits { model_calls: 0, ..hatchery_wasm::Limits::default() };
    let test_catalog =
        TestCatalog::new().with("services").with_limits(limits).with_grants("services", json!({"models": ["*"]}));
    let args = json!({"model": "local:hashed-ngrams", "texts": ["a"]});
    let error = call(&test_catalog.catalog().await, "compare", args).await.unwrap_err().to_string();
    assert_eq!(error, "it exceeded its limit of 0 model calls");
}

#[tokio::test]
async fn a_hundred_texts_that_are_embedded_count_as_one_model_call() {
    let limits = hatchery_wasm::Limits { model_calls: 2, ..hatchery_wasm::Limits::default() };
    let test_catalog =
        TestCatalog::new().with("services").with_limits(limits).with_grants("services", json!({"models": ["*"]}));
    let catalog = test_catalog.catalog().await;
    let args = |count: usize| json!({"model": "local:hashed-ngrams", "texts": vec!["a"; count]});
    assert_eq!(call(&catalog, "compare", args(200)).await.unwrap(), json!(200));
    let error = call(&catalog, "compare", args(201)).await.unwrap_err().to_string();
    assert_eq!(error, "it exceeded its limit of 2 model calls");
}

#[tokio::test]
async fn embeddings_count_as_memory_before_the_component_has_them() {
    let limits = hatchery_wasm::Limits { memory: 8 << 20, ..hatchery_wasm::Limits::default() };
    let test_catalog =
        TestCatalog::new().with("services").with_limits(limits).with_grants("services", json!({"models": ["*"]}));
    // Each vector has 1 KiB.
    let args = json!({"model": "local:hashed-ngrams", "texts": vec!["a"; 9_000]});
    let error = call(&test_catalog.catalog().await, "compare", args).await.unwrap_err().to_string();
    assert_eq!(error, "it exceeded its limit of 8 MiB of memory");
}

#[tokio::test]
async fn calls_of_the_memorys_embedder_count_as_model_calls() {
    let limits = hatchery_wasm::Limits { model_calls: 0, ..hatchery_wasm::Limits::default() };
    let test_catalog =
        TestCatalog::new().with("services").with_limits(limits).with_grants("services", json!({"memory": "write"}));
    let catalog = test_catalog.catalog().await;
    let embedder = ModelProviders::new().embedder("local:hashed-ngrams").unwrap();
    let similarity = SimilaritySearch::new("local:hashed-ngrams", embedder);
    for what in ["search", "add_session", "add_events"] {
        let args = json!({"what": what, "text": "lamp"});
        let by_words = context_with_memory(&catalog, Arc::new(KeywordMemory::new()));
        call_in(&by_words, &catalog, "memory", args.clone()).await.unwrap();
        let memory = Arc::new(KeywordMemory::new().with_similarity(similarity.clone()));
        let answer = call_in(&context_with_memory(&catalog, memory), &catalog, "memory", args).await;
        match what {
            // The session has no events yet.
            "add_session" => drop(answer.unwrap()),
            _ => assert_eq!(answer.unwrap_err().to_string(), "it exceeded its limit of 0 model calls", "{what}"),
        }
    }
}

/// A memory that counts the searches in progress.
#[derive(Default)]
struct CountedSearches {
    running: AtomicUsize,
    most: AtomicUsize,
}

#[async_trait]
impl MemoryService for CountedSearches {
    async fn add_session(&self, _: &Session) -> Result<(), StoreError> {
        Ok(())
    }

    async fn add_events(&self, _: &SessionKey, _: &[Arc<Event>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn search(&self, _: &str, _: &str, _: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(running, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Vec::new())
    }
}

#[tokio::test]
async fn code_that_reads_many_things_at_once_gets_one_after_the_other() {
    let catalog =
        TestCatalog::new().with("services").with_grants("services", json!({"memory": "read"})).catalog().await;
    let memory = Arc::new(CountedSearches::default());
    let args = json!({"what": "search", "text": "lamp", "times": 8});
    let found = call_in(&context_with_memory(&catalog, memory.clone()), &catalog, "memory", args).await.unwrap();
    assert_eq!((found, memory.most.load(Ordering::SeqCst)), (json!([]), 1));
}

#[tokio::test]
async fn a_plugin_is_closed_with_the_runner() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let plugins = Plugins::new(vec![catalog.plugin("services/advice", JsonMap::new()).unwrap()]).unwrap();
    let log = CapturedLog::default();
    let guard = tracing::subscriber::set_default(log.clone());
    Runner::with_plugins(services(Scripted::new()), plugins).close().await;
    drop(guard);
    assert_eq!(log.lines("hatchery::component"), ["no more advice"]);
}

#[tokio::test]
async fn a_toolset_computes_the_tools_of_each_run() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let model = Arc::new(Scripted::sequence([Reply::call("paint", json!({"wall": "red"})), Reply::text("done")]));
    let chat = Chat::new(&catalog, "foreman", Arc::new(OneModel(model.clone())), Plugins::default());
    let (events, error) = chat.say("please Paint and Saw", RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let names: Vec<_> = model.requests()[0].tools.iter().map(|tool| tool.name.clone()).collect();
    assert_eq!(names, ["paint", "saw", "bake"]);
    let response = events.iter().flat_map(|event| event.function_responses()).next().unwrap();
    assert_eq!(Value::Object(response.response.clone()), json!({"said": "paint", "args": {"wall": "red"}}));
    assert_eq!(chat.session().await.state.get("worked"), Some(&json!("paint")));
    let toolset = catalog.toolset("services/trades").unwrap();
    let cx = context(&catalog);
    assert_eq!(toolset.tools(&cx).await.unwrap()[0].qualified_name(), "services/trades/bake");
    assert!(cx.actions().is_empty());
}

#[tokio::test]
async fn a_components_tool_and_callback_hand_over_to_agents_that_their_agent_may_transfer_to_only() {
    let catalog = TestCatalog::new().with("services").catalog().await;
    let hand_over = |agent: &str| Reply::call("hand_over", json!({"agent": agent}));
    let model = Scripted::sequence([hand_over("nobody"), hand_over("caretaker"), Reply::text("I take care.")]);
    let (events, error) = run_app(&catalog, "porter", "hello", model, RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    let answers: Vec<_> = events.iter().flat_map(|event| event.function_responses()).collect();
    let refusal = "cannot transfer to `nobody`; the agents that it can transfer to are `caretaker`";
    assert!(answers[0].response["error"].as_str().unwrap().contains(refusal), "{:?}", answers[0].response);
    assert_eq!(answers[1].response["result"], "handed over");
    let last = transcript(&events).pop().unwrap();
    assert_eq!(last, ("caretaker".to_owned(), "I take care.".to_owned()));

    let model = || Scripted::sequence(["Welcome.", "I take care."]);
    let (events, error) = run_app(&catalog, "porter", "divert to caretaker", model(), RunConfig::default()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(transcript(&events).pop().unwrap().0, "caretaker");
    let (_, error) = run_app(&catalog, "porter", "divert to nobody", model(), RunConfig::default()).await;
    assert!(error.as_ref().is_some_and(|error| error.to_string().contains(refusal)), "{error:?}");
}
