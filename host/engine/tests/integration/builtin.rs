//! Built-in tools.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use hatchery_core::{
    Agent, Blob, Content, EventWindow, Example, JsonMap, MemoryEntry, MemoryService, Part, PartData, Services, Session,
    SessionKey, StoreError, Tool,
};
use hatchery_engine::builtin::{
    DataStoreSpec, ExampleTool, LongRunning, ModelTool, VertexAiSearch, tool as builtin, tools as builtins,
};
use hatchery_engine::{App, AppSettings, MemoryAddition, RunRequest, Runner};
use hatchery_models::scripted::{Reply, Scripted};
use serde_json::json;

use crate::agent_tool::{agent_tool, ask};
use crate::support::*;

/// Returns an agent on the model with one tool.
pub fn with_tool(model: &Arc<Scripted>, tool: Arc<dyn Tool>) -> Agent {
    llm_on("root", model, |llm| llm.tools = vec![tool])
}

#[tokio::test]
async fn artifacts_are_listed_and_loaded_on_request() {
    let model = Arc::new(Scripted::sequence([
        Reply::call("load_artifacts", json!({"artifact_names": ["note.txt", "pic.png", "gone"]})),
        Reply::text("ok"),
    ]));
    let app = Harness::new(with_tool(&model, builtin("load_artifacts").unwrap())).await;
    let key = app.session().await.key;
    let artifacts = &app.runner.services().artifacts;
    for (name, mime_type) in [("note.txt", "text/csv"), ("pic.png", "image/png")] {
        let blob = Blob { mime_type: mime_type.into(), data: "a,b".into(), display_name: None };
        artifacts.save(&key, name, &PartData::InlineData(blob).into()).await.unwrap();
    }
    app.run("look").await;
    let requests = model.requests();
    assert!(requests[0].system_instructions.iter().any(|text| text.contains("[\"note.txt\",\"pic.png\"]")));
    let shown: Vec<_> = requests[1].contents.iter().rev().take(3).collect();
    assert_eq!(shown[2].parts[1].as_text(), Some("a,b"), "text is shown as text");
    assert!(matches!(&shown[1].parts[1].data, PartData::InlineData(_)), "pictures as pictures");
    assert_eq!(shown[0].parts[1].as_text(), Some("(there is no such artifact)"));
}

#[tokio::test]
async fn a_name_that_no_artifact_can_have_is_an_answer_for_the_model() {
    let model = Arc::new(Scripted::sequence([
        Reply::call("load_artifacts", json!({"artifact_names": ["../note.txt", "note.txt", "note.txt"]})),
        Reply::text("ok"),
    ]));
    let app = Harness::new(with_tool(&model, builtin("load_artifacts").unwrap())).await;
    let key = app.session().await.key;
    app.runner.services().artifacts.save(&key, "note.txt", &Part::text("eggs")).await.unwrap();
    app.run("look").await;
    let requests = model.requests();
    let shown = requests[1].contents.iter().filter_map(|content| content.parts.get(1)?.as_text());
    let reason = "(invalid name `../note.txt`: the name of an artifact cannot have `..` between its slashes)";
    assert_eq!(shown.collect::<Vec<_>>(), [reason, "eggs"], "each is shown once");
}

#[tokio::test]
async fn artifacts_that_are_shown_at_once_have_at_most_64_mebibytes_together() {
    let names = ["a", "b", "c"];
    let call = Reply::call("load_artifacts", json!({"artifact_names": names}));
    let model = Arc::new(Scripted::sequence([call, Reply::text("ok")]));
    let app = Harness::new(with_tool(&model, builtin("load_artifacts").unwrap())).await;
    let key = app.session().await.key;
    for (name, mebibytes) in names.into_iter().zip([40, 40, 20]) {
        let blob = Blob { mime_type: "image/png".into(), data: vec![0_u8; mebibytes << 20].into(), display_name: None };
        app.runner.services().artifacts.save(&key, name, &PartData::InlineData(blob).into()).await.unwrap();
    }
    app.run("look").await;
    let requests = model.requests();
    let shown = requests[1].contents.iter().filter_map(|content| content.parts.get(1));
    let refusal = "(too large to be shown with the artifacts before it; request it alone)";
    assert_eq!(shown.map(Part::as_text).collect::<Vec<_>>(), [None, Some(refusal), None]);
}

#[tokio::test]
async fn memory_is_searched_on_request_and_preloaded() {
    let remember = |app: &Harness| {
        let services = app.runner.services().clone();
        async move {
            let key = SessionKey::new("app", USER, SESSION);
            let session = services.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
            services.memory.add_session(&session).await.unwrap();
        }
    };
    let find = Reply::call("load_memory", json!({"query": "bicycle"}));
    let model = Arc::new(Scripted::sequence([Reply::text("nice"), find, Reply::text("a bicycle")]));
    let app = Harness::new(with_tool(&model, builtin("load_memory").unwrap())).await;
    app.run("I own a red bicycle").await;
    remember(&app).await;
    let events = app.transcript("what do I own?").await;
    assert!(events[1].contains("I own a red bicycle"), "{}", events[1]);
    let time = app.session().await.events[0].timestamp.to_iso_millis();
    assert!(events[1].contains(&format!("\"timestamp\":\"{time}\"")), "{}", events[1]);

    let model = Arc::new(Scripted::sequence(["nice", "yes"]));
    let app = Harness::new(with_tool(&model, builtin("preload_memory").unwrap())).await;
    app.run("I own a red bicycle").await;
    remember(&app).await;
    app.run("my bicycle?").await;
    let request = &model.requests()[1];
    let time = app.session().await.events[0].timestamp.to_iso_millis();
    let entry = format!("Time: {time}\nuser: I own a red bicycle\n");
    assert!(request.system_instructions.last().unwrap().contains(&entry), "{:?}", request.system_instructions);
    assert!(request.tools.is_empty());
}

/// A memory service whose search fails.
struct FailingMemory;

#[async_trait]
impl MemoryService for FailingMemory {
    async fn add_session(&self, _: &Session) -> Result<(), StoreError> {
        Ok(())
    }

    async fn add_events(&self, _: &SessionKey, _: &[Arc<hatchery_core::Event>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn search(&self, _: &str, _: &str, _: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        Err(StoreError::backend("searching", "the index is gone"))
    }
}

#[tokio::test]
async fn a_memory_service_that_fails_ends_the_run() {
    let helper = llm_with("helper", Scripted::new(), |llm| llm.tools = vec![builtin("preload_memory").unwrap()]);
    for (tool, call) in [
        (builtin("load_memory").unwrap(), Reply::call("load_memory", json!({"query": "bicycle"}))),
        (agent_tool(helper), ask("helper")),
    ] {
        let name = tool.declaration().name.clone();
        let model = Arc::new(Scripted::sequence([call]));
        let mut app = Harness::new(with_tool(&model, tool)).await;
        app.runner = Runner::new(Services { memory: Arc::new(FailingMemory), ..app.runner.services().clone() });
        let (_, error) = app.expect_error("hi").await;
        assert_eq!(error.code(), "STORE_FAILED");
        assert_eq!(error.to_string(), format!("tool `{name}`: searching: the index is gone"));
    }
}

#[tokio::test]
async fn examples_are_in_the_request_and_cannot_be_called() {
    let example = Example { input: Content::user("2+2"), output: vec![Content::model("4")] };
    let model = Arc::new(Scripted::sequence([Reply::call("example_tool", json!({})), Reply::text("ok")]));
    let app = Harness::new(with_tool(&model, Arc::new(ExampleTool::new(&[example])))).await;
    let events = app.transcript("hi").await;
    assert_eq!(
        events[1],
        "root: answer example_tool{\"error\":\"there is no tool `example_tool`; the tools are none\"}"
    );
    let shown = model.requests()[0].system_instructions.join("\n");
    assert!(shown.contains("EXAMPLE 1:\n[user]\n2+2\n[model]\n4\n"), "{shown}");
}

#[tokio::test]
async fn model_tools_are_requested_and_rejected_for_other_models() {
    let model = Arc::new(Scripted::sequence(["ok"]));
    let tools = [
        ("google_search", "googleSearch"),
        ("enterprise_web_search", "enterpriseWebSearch"),
        ("google_maps_grounding", "googleMaps"),
        ("url_context", "urlContext"),
        ("code_execution", "codeExecution"),
    ];
    let named = tools.map(|(name, _)| builtin(name).unwrap());
    Harness::new(llm_on("root", &model, |llm| llm.tools = named.into())).await.run("hi").await;
    let request = &model.requests()[0];
    assert_eq!(request.model_tools, tools.map(|(_, key)| json!({ key: {} })));
    assert!(request.tools.is_empty());

    let agent = llm_with("root", Scripted::new(), |llm| {
        let model = Scripted::new().with_capabilities(hatchery_core::ModelCapabilities::default());
        llm.model = Some(hatchery_core::ModelRef::Object("gpt-5".into(), Arc::new(model)));
        llm.tools = vec![builtin("url_context").unwrap()];
    });
    let (_, error) = Harness::new(agent).await.expect_error("hi").await;
    assert_eq!(
        error.to_string(),
        "model `gpt-5`: has no built-in tool `url_context`; it runs inside Gemini models from version 2 on"
    );
}

#[test]
fn model_tools_are_listed() {
    for (name, tool) in builtins().names().filter_map(|name| Some((name, builtin(name)?))) {
        assert_eq!(ModelTool::NAMES.contains(&name), !tool.is_callable() && name != "preload_memory", "{name}");
    }
}

#[tokio::test]
async fn vertex_search_is_requested_with_its_settings() {
    let corpora = ["projects/p/locations/l/ragCorpora/c".to_owned()];
    let rag = ModelTool::vertex_ai_rag_retrieval(&corpora, Some(3), Some(0.5)).unwrap();
    let store = |id: &str| Some(id.to_owned());
    let search = VertexAiSearch { data_store_id: store("store"), max_results: Some(5), ..VertexAiSearch::default() };
    let search = ModelTool::vertex_ai_search(&search).unwrap();
    let specs = vec![
        DataStoreSpec { data_store: "a".into(), filter: None },
        DataStoreSpec { data_store: "b".into(), filter: Some("x = 1".into()) },
    ];
    let engine = VertexAiSearch {
        search_engine_id: store("engine"),
        filter: Some("y = 2".into()),
        data_store_specs: specs,
        ..VertexAiSearch::default()
    };
    let engine = ModelTool::vertex_ai_search(&engine).unwrap();
    let model = Arc::new(Scripted::sequence(["ok"]));
    let agent = llm_on("root", &model, |llm| llm.tools = vec![Arc::new(rag), Arc::new(search), Arc::new(engine)]);
    Harness::new(agent).await.run("hi").await;
    let store = json!({
        "ragResources": [{"ragCorpus": corpora[0]}],
        "similarityTopK": 3,
        "vectorDistanceThreshold": 0.5
    });
    assert_eq!(
        model.requests()[0].model_tools,
        [
            json!({"retrieval": {"vertexRagStore": store}}),
            json!({"retrieval": {"vertexAiSearch": {"datastore": "store", "maxResults": 5}}}),
            json!({"retrieval": {"vertexAiSearch": {"engine": "engine", "filter": "y = 2", "dataStoreSpecs": [
                {"dataStore": "a"}, {"dataStore": "b", "filter": "x = 1"},
            ]}}})
        ]
    );
}

#[tokio::test]
async fn a_long_running_wrapper_prepares_a_request_as_the_inner_tool() {
    let model = Arc::new(Scripted::sequence(["fine"]));
    let memory = LongRunning::new(builtin("load_memory").unwrap());
    Harness::new(with_tool(&model, Arc::new(memory))).await.run("hi").await;
    let request = model.requests().swap_remove(0);
    assert!(request.system_instructions.last().unwrap().starts_with("You have a memory"));
    assert!(request.tools[0].description.ends_with("do not call it again while it is pending."));
    assert!(!LongRunning::new(builtin("google_search").unwrap()).is_callable());
}

#[tokio::test]
async fn any_tool_can_be_made_long_running() {
    let inner = tool("order", |_, _| Ok(json!({"status": "pending"})));
    let model = Arc::new(Scripted::sequence([Reply::call("order", json!({})).with_id("c1"), Reply::text("ordered")]));
    let app = Harness::new(with_tool(&model, Arc::new(LongRunning::new(inner)))).await;
    let events = app.run("order").await;
    assert_eq!(events[0].long_running_tool_ids, ["c1"]);
    assert!(
        model.requests()[0].tools[0]
            .description
            .ends_with("Its result comes later: do not call it again while it is pending.")
    );
}

#[tokio::test]
async fn the_user_chooses_one_of_the_options_of_the_model() {
    let asks = Reply::call("get_user_choice", json!({"options": ["tea", "coffee"]})).with_id("c1");
    let model = Arc::new(Scripted::sequence([asks, Reply::text("Here is your tea.")]));
    let app = Harness::new(with_tool(&model, builtin("get_user_choice").unwrap())).await;
    let asked = app.run("a drink, please").await;
    assert_eq!(briefs(&asked), ["root: call get_user_choice{\"options\":[\"tea\",\"coffee\"]}"]);
    assert_eq!(asked[0].long_running_tool_ids, ["c1"]);
    let answer = app.send(tool_response("c1", "get_user_choice", json!({"result": "tea"}))).await;
    assert_eq!(briefs(&answer), ["root: Here is your tea."]);
}

#[test]
fn every_built_in_tool_can_be_created() {
    assert!(hatchery_engine::builtin::tools().names().all(|name| builtin(name).is_some()));
    assert!(builtin("nonsense").is_none());
}

#[tokio::test]
async fn missing_arguments_are_an_error() {
    for (name, text) in [
        ("load_memory", "\"query\" is a required property"),
        ("load_artifacts", "\"artifact_names\" is a required property"),
    ] {
        let model = Arc::new(Scripted::sequence([Reply::call(name, json!({})), Reply::text("ok")]));
        let app = Harness::new(with_tool(&model, builtin(name).unwrap())).await;
        let answer = app.run("hi").await[1].function_responses().next().unwrap().response.clone();
        assert!(answer["error"].as_str().unwrap().ends_with(text), "{answer:?}");
    }
}

#[tokio::test]
async fn a_run_is_remembered_after_its_end_if_the_app_says_so() {
    let app = |memory_addition| async move {
        let mut app = Harness::new(llm("root", Scripted::new().default_reply("noted"))).await;
        let settings = AppSettings { memory_addition, ..AppSettings::default() };
        app.app = Arc::new(App::clone(&app.app).with_settings(settings));
        app.run("My bicycle is red.").await;
        app.run("It has a bell.").await;
        app
    };
    assert!(remembered(&app(MemoryAddition::Never).await).await.is_empty());
    let expected = ["It has a bell.", "My bicycle is red.", "noted"].map(String::from);
    assert_eq!(remembered(&app(MemoryAddition::AfterRun).await).await, BTreeSet::from(expected));
}

#[tokio::test]
async fn the_events_before_an_interruption_are_remembered_with_the_rest_of_the_run() {
    let settings = AppSettings { memory_addition: MemoryAddition::AfterRun, ..AppSettings::default() };
    let root = llm("root", Scripted::new().default_reply("noted"));
    let app = Arc::new(App::new("app", root).unwrap().with_settings(settings));
    let stores = services();
    let key = stores.sessions.create("app", USER, Some(SESSION), JsonMap::new()).await.unwrap().key;
    // The host dies after the message of the user, and adds nothing to the memory.
    let sessions = Arc::new(CrashingSessions::new(stores.sessions.clone(), 1));
    let first = Runner::new(Services { sessions, memory: services().memory, ..stores.clone() });
    let request = RunRequest::new(USER, SESSION, Content::user("My bicycle is red."));
    first.run(app.clone(), request).await.unwrap().collect().await.unwrap_err();
    first.drain().await;
    let stored = stores.sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    let resume = RunRequest::resume(USER, SESSION, stored.events[0].invocation_id.clone());
    Runner::new(stores.clone()).run(app, resume).await.unwrap().collect().await.unwrap();
    let found = stores.memory.search("app", USER, "bicycle noted").await.unwrap();
    let texts: BTreeSet<_> = found.iter().map(|entry| entry.content.text()).collect();
    assert_eq!(texts, BTreeSet::from(["My bicycle is red.", "noted"].map(String::from)));
}

/// Returns the texts that the user's memory has of two runs.
async fn remembered(app: &Harness) -> BTreeSet<String> {
    let found = app.runner.services().memory.search("app", USER, "bicycle bell noted").await.unwrap();
    found.iter().map(|entry| entry.content.text()).collect()
}

#[tokio::test]
async fn a_session_is_remembered_when_it_is_closed_if_the_app_says_so() {
    for (memory_addition, expected) in [
        (MemoryAddition::OnClose, vec!["It has a bell.", "My bicycle is red.", "noted"]),
        (MemoryAddition::Never, Vec::new()),
    ] {
        let mut app = Harness::new(llm("root", Scripted::new().default_reply("noted"))).await;
        let settings = AppSettings { memory_addition, ..AppSettings::default() };
        app.app = Arc::new(App::clone(&app.app).with_settings(settings));
        app.run("My bicycle is red.").await;
        app.run("It has a bell.").await;
        assert!(remembered(&app).await.is_empty());
        app.runner.close_session(&app.app, USER, SESSION).await.unwrap();
        assert_eq!(Vec::from_iter(remembered(&app).await), expected);
        let error = app.runner.close_session(&app.app, USER, "nowhere").await.unwrap_err();
        assert!(matches!(error, StoreError::SessionNotFound(_)), "{error}");
    }
}
