//! A wrapper forwards every method of the wrapped object. The implementations here override all methods, so that a
//! method which falls back to its default is noticed; the lint on them fails the build when a trait gets a method that
//! they lack.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use hatchery_core::{
    Agent, AgentKind, AgentTree, ArtifactService, CallContext, CredentialId, CredentialService, Event, EventWindow,
    FunctionDeclaration, Invocation, JsonMap, LiveConnection, LlmRequest, LlmResponse, MemoryEntry, MemoryService,
    Model, ModelCapabilities, ModelError, ModelErrorKind, ModelResolver, NewInvocation, Part, ResponseGrouping,
    ResponseStream, RunError, RunPage, RunService, RunTransition, Services, Session, SessionKey, SessionService, State,
    StoreError, StoredRun, StreamingMode, Timestamp, Tool, ToolError, Toolset, TurnStart, WrapperModel,
    WrapperRunService, WrapperTool, WrapperToolset,
};
use serde_json::{Value, json};

/// Services that are never called.
struct NoServices;

#[async_trait]
impl SessionService for NoServices {
    async fn create(&self, _: &str, _: &str, _: Option<&str>, _: JsonMap) -> Result<Session, StoreError> {
        panic!("not called")
    }

    async fn get(&self, _: &SessionKey, _: EventWindow) -> Result<Option<Session>, StoreError> {
        Ok(None)
    }

    async fn list(&self, _: &str, _: &str) -> Result<Vec<Session>, StoreError> {
        Ok(Vec::new())
    }

    async fn delete(&self, _: &SessionKey) -> Result<(), StoreError> {
        Ok(())
    }

    async fn begin_turn(&self, _: &SessionKey, _: Option<u64>, _: Duration) -> Result<TurnStart, StoreError> {
        panic!("not called")
    }

    async fn renew_turn(&self, _: &SessionKey, _: u64, _: Duration) -> Result<(), StoreError> {
        panic!("not called")
    }

    async fn append_with(&self, _: &SessionKey, _: &Arc<Event>, _: Option<u64>) -> Result<u64, StoreError> {
        panic!("not called")
    }
}

#[async_trait]
impl ArtifactService for NoServices {
    async fn save(&self, _: &SessionKey, _: &str, _: &Part) -> Result<u64, StoreError> {
        panic!("not called")
    }

    async fn load(&self, _: &SessionKey, _: &str, _: Option<u64>) -> Result<Option<Part>, StoreError> {
        Ok(None)
    }

    async fn list(&self, _: &SessionKey) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    async fn versions(&self, _: &SessionKey, _: &str) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn delete(&self, _: &SessionKey, _: &str) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl MemoryService for NoServices {
    async fn add_session(&self, _: &Session) -> Result<(), StoreError> {
        Ok(())
    }

    async fn add_events(&self, _: &SessionKey, _: &[Arc<Event>]) -> Result<(), StoreError> {
        Ok(())
    }

    async fn search(&self, _: &str, _: &str, _: &str) -> Result<Vec<MemoryEntry>, StoreError> {
        Ok(Vec::new())
    }
}

#[async_trait]
impl CredentialService for NoServices {
    async fn load(&self, _: &CredentialId) -> Result<Option<Value>, StoreError> {
        Ok(None)
    }

    async fn save(&self, _: &CredentialId, _: &Value) -> Result<(), StoreError> {
        Ok(())
    }

    async fn delete(&self, _: &CredentialId) -> Result<(), StoreError> {
        Ok(())
    }
}

impl ModelResolver for NoServices {
    fn model(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Err(ModelError::new(ModelErrorKind::UnknownModel, name, "there is none"))
    }
}

fn context() -> CallContext {
    let session = Session {
        key: SessionKey::new("app", "user", "session"),
        state: State::default(),
        events: Default::default(),
        revision: 0,
        created: Timestamp::now(),
        last_update_time: Timestamp::now(),
    };
    let services = Services {
        sessions: Arc::new(NoServices),
        artifacts: Arc::new(NoServices),
        memory: Arc::new(NoServices),
        credentials: Arc::new(NoServices),
        models: Arc::new(NoServices),
    };
    CallContext::new(Invocation::new(NewInvocation::new(session, services)).0, "agent", None)
}

fn declaration(name: &str) -> Arc<FunctionDeclaration> {
    Arc::new(FunctionDeclaration { name: name.into(), ..FunctionDeclaration::default() })
}

static AGENTS: LazyLock<AgentTree> =
    LazyLock::new(|| AgentTree::new(Agent::new("inner", "", AgentKind::Sequential)).unwrap());

/// Answers every method differently from its default.
struct InnerTool(Arc<FunctionDeclaration>);

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Tool for InnerTool {
    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.0
    }

    fn qualified_name(&self) -> Cow<'_, str> {
        "component/inner".into()
    }

    fn with_arguments(&self, _: JsonMap) -> Result<Arc<dyn Tool>, String> {
        Ok(Arc::new(Self(declaration("with arguments"))))
    }

    fn is_long_running(&self) -> bool {
        true
    }

    fn is_callable(&self) -> bool {
        false
    }

    fn requires_confirmation(&self) -> bool {
        true
    }

    fn is_idempotent(&self) -> bool {
        false
    }

    fn agents(&self) -> Option<&AgentTree> {
        Some(&AGENTS)
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        request.system_instructions.push("prepared".into());
        request.tools.push(self.0.clone());
        Ok(())
    }

    async fn call(&self, args: JsonMap, _: &CallContext) -> Result<Value, ToolError> {
        Ok(json!({"called with": args}))
    }
}

struct Wrapper<T>(T);

impl WrapperTool for Wrapper<InnerTool> {
    fn inner(&self) -> &dyn Tool {
        &self.0
    }
}

#[test]
fn a_wrapped_tool_gets_every_call() {
    let tool: Arc<dyn Tool> = Arc::new(Wrapper(InnerTool(declaration("inner"))));
    assert_eq!(tool.declaration().name, "inner");
    assert_eq!(tool.qualified_name(), "component/inner");
    assert!(tool.is_long_running() && !tool.is_callable() && tool.requires_confirmation());
    assert!(!tool.is_idempotent());
    assert_eq!(tool.agents().map(|agents| agents.agent(agents.root()).name.as_str()), Some("inner"));
    let refused = tool.with_arguments(JsonMap::new()).err();
    assert_eq!(refused.as_deref(), Some("takes no `args` once it is wrapped"), "the wrapper would be lost");
    futures::executor::block_on(async {
        let mut request = LlmRequest::default();
        tool.prepare(&mut request, &context()).await.unwrap();
        assert_eq!((request.system_instructions.as_slice(), request.tools.len()), (&["prepared".to_owned()][..], 1));
        let args = JsonMap::from_iter([("a".to_owned(), json!(1))]);
        assert_eq!(tool.call(args, &context()).await.unwrap(), json!({"called with": {"a": 1}}));
    });
}

/// A tool under another name.
struct Renamed(InnerTool, Arc<FunctionDeclaration>);

impl WrapperTool for Renamed {
    fn inner(&self) -> &dyn Tool {
        &self.0
    }

    fn declaration(&self) -> &Arc<FunctionDeclaration> {
        &self.1
    }
}

#[test]
fn the_declaration_of_a_wrapper_replaces_the_declaration_of_the_tool_inside() {
    let tool = Renamed(InnerTool(declaration("inner")), declaration("outer"));
    let mut request = LlmRequest { tools: vec![declaration("inner")], ..LlmRequest::default() };
    futures::executor::block_on(Tool::prepare(&tool, &mut request, &context())).unwrap();
    let names: Vec<_> = request.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["inner", "outer"], "another tool of the same name is not replaced");
    assert_eq!(Tool::qualified_name(&tool), "component/inner");
}

#[derive(Default)]
struct InnerToolset(Mutex<bool>);

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Toolset for InnerToolset {
    fn name(&self) -> &str {
        "inner"
    }

    fn tool_names(&self) -> Option<Vec<String>> {
        Some(vec!["inner".into()])
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Ok(vec![Arc::new(InnerTool(declaration("inner")))])
    }

    async fn prepare(&self, request: &mut LlmRequest, _: &CallContext) -> Result<(), RunError> {
        request.system_instructions.push("prepared".into());
        Ok(())
    }

    async fn close(&self) {
        *self.0.lock().unwrap() = true;
    }
}

impl WrapperToolset for Wrapper<InnerToolset> {
    fn inner(&self) -> &dyn Toolset {
        &self.0
    }
}

#[test]
fn a_wrapped_toolset_gets_every_call() {
    let toolset = Wrapper(InnerToolset::default());
    let wrapper: &dyn Toolset = &toolset;
    assert_eq!(wrapper.tool_names(), Some(vec!["inner".to_owned()]));
    assert_eq!(wrapper.name(), "inner");
    futures::executor::block_on(async {
        assert_eq!(wrapper.tools(&context()).await.unwrap().len(), 1);
        let mut request = LlmRequest::default();
        wrapper.prepare(&mut request, &context()).await.unwrap();
        assert_eq!(request.system_instructions, ["prepared"]);
        wrapper.close().await;
    });
    assert!(*toolset.0.0.lock().unwrap());
}

const CAPABILITIES: ModelCapabilities = ModelCapabilities {
    schema_with_tools: true,
    lacks_response_schema: true,
    built_in_tools: true,
    response_grouping: ResponseGrouping::Batched,
    live: true,
};

struct InnerModel;

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Model for InnerModel {
    async fn generate(&self, request: LlmRequest, _: StreamingMode) -> Result<ResponseStream, ModelError> {
        Ok(stream::iter([Ok(LlmResponse::text(request.model))]).boxed())
    }

    async fn connect(&self, request: LlmRequest) -> Result<Box<dyn LiveConnection>, ModelError> {
        Err(ModelError::new(ModelErrorKind::Network, request.model, "asked"))
    }

    fn capabilities(&self) -> ModelCapabilities {
        CAPABILITIES
    }
}

impl WrapperModel for Wrapper<InnerModel> {
    fn inner(&self) -> &dyn Model {
        &self.0
    }
}

#[test]
fn a_wrapped_model_gets_every_call() {
    let model: Arc<dyn Model> = Arc::new(Wrapper(InnerModel));
    assert_eq!(model.capabilities(), CAPABILITIES);
    let request = LlmRequest { model: "m".into(), ..LlmRequest::default() };
    let refused = futures::executor::block_on(model.connect(request.clone())).err();
    assert_eq!(refused, Some(ModelError::new(ModelErrorKind::Network, "m", "asked")));
    let responses = futures::executor::block_on(async {
        model.generate(request, StreamingMode::Off).await.unwrap().collect::<Vec<_>>().await
    });
    assert_eq!(responses, [Ok(LlmResponse::text("m"))]);
}

/// Stores the calls instead of runs.
#[derive(Default)]
struct InnerRuns(Mutex<Vec<String>>);

impl InnerRuns {
    fn note(&self, call: String) {
        self.0.lock().unwrap().push(call);
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl RunService for InnerRuns {
    async fn add(&self, run: &StoredRun) -> Result<StoredRun, StoreError> {
        self.note(format!("add {}", run.id));
        Ok(StoredRun { id: "added".into(), ..run.clone() })
    }

    async fn start(&self, run: &StoredRun, fence: u64) -> Result<StoredRun, StoreError> {
        self.note(format!("start {} in {fence}", run.id));
        Ok(StoredRun { id: "started".into(), ..run.clone() })
    }

    async fn change(
        &self,
        session: &SessionKey,
        run: &str,
        fence: Option<u64>,
        transition: &RunTransition,
    ) -> Result<Option<StoredRun>, StoreError> {
        self.note(format!("change {run} of {} in {fence:?}: {transition:?}", session.id));
        Ok(Some(StoredRun::new(session.clone(), "changed", 0)))
    }

    async fn start_later(&self, run: &StoredRun, fence: u64) -> Result<(), StoreError> {
        self.note(format!("start {} later in {fence}", run.id));
        Ok(())
    }

    async fn change_later(
        &self,
        session: &SessionKey,
        run: &str,
        fence: u64,
        transition: &RunTransition,
    ) -> Result<(), StoreError> {
        self.note(format!("change {run} of {} later in {fence}: {transition:?}", session.id));
        Ok(())
    }

    async fn get(&self, session: &SessionKey, run: &str) -> Result<Option<StoredRun>, StoreError> {
        self.note(format!("get {run} of {}", session.id));
        Ok(Some(StoredRun::new(session.clone(), "got", 0)))
    }

    async fn list(&self, session: &SessionKey, from: Option<u64>, limit: usize) -> Result<RunPage, StoreError> {
        self.note(format!("list {limit} of {} from {from:?}", session.id));
        Ok(RunPage { runs: Vec::new(), next: Some(7) })
    }

    async fn find_running(&self, session: &SessionKey) -> Result<Option<String>, StoreError> {
        self.note(format!("find the running one of {}", session.id));
        Ok(Some("running".to_owned()))
    }

    async fn has_turn(&self, session: &SessionKey) -> Result<bool, StoreError> {
        self.note(format!("find a turn of {}", session.id));
        Ok(true)
    }

    async fn list_interrupted(&self, apps: &[String], limit: usize) -> Result<Vec<StoredRun>, StoreError> {
        self.note(format!("list {limit} interrupted of {apps:?}"));
        Ok(vec![StoredRun::new(SessionKey::new("app", "user", "session"), "interrupted", 0)])
    }
}

impl WrapperRunService for Wrapper<InnerRuns> {
    fn inner(&self) -> &dyn RunService {
        &self.0
    }
}

#[test]
fn a_wrapped_run_service_gets_every_call() {
    let runs = Wrapper(InnerRuns::default());
    let wrapper: &dyn RunService = &runs;
    let session = SessionKey::new("app", "user", "session");
    let run = StoredRun::new(session.clone(), "r", 0);
    futures::executor::block_on(async {
        assert_eq!(wrapper.add(&run).await.unwrap().id, "added");
        assert_eq!(wrapper.start(&run, 1).await.unwrap().id, "started");
        let changed = wrapper.change(&session, "r", Some(2), &RunTransition::Wait).await.unwrap();
        assert_eq!(changed.unwrap().id, "changed");
        wrapper.start_later(&run, 3).await.unwrap();
        wrapper.change_later(&session, "r", 4, &RunTransition::Finish).await.unwrap();
        assert_eq!(wrapper.get(&session, "r").await.unwrap().unwrap().id, "got");
        assert_eq!(wrapper.list(&session, Some(5), 6).await.unwrap().next, Some(7));
        assert_eq!(wrapper.find_running(&session).await.unwrap().as_deref(), Some("running"));
        assert!(wrapper.has_turn(&session).await.unwrap());
        let interrupted = wrapper.list_interrupted(&["app".to_owned()], 8).await.unwrap();
        assert_eq!(interrupted.first().unwrap().id, "interrupted");
    });
    let expected = [
        "add r",
        "start r in 1",
        "change r of session in Some(2): Wait",
        "start r later in 3",
        "change r of session later in 4: Finish",
        "get r of session",
        "list 6 of session from Some(5)",
        "find the running one of session",
        "find a turn of session",
        "list 8 interrupted of [\"app\"]",
    ];
    assert_eq!(*runs.0.0.lock().unwrap(), expected);
}
