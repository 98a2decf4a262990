//! Test fixture: a folder with components, its catalog, and calls of its items.

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    AgentContext, AgentHost, AgentKind, CallContext, Content, Embedder, Event, EventSink, EventWindow, Invocation,
    InvocationWriter, ItemResolver, JsonMap, LiveRequest, LiveRequestQueue, MemoryService, Model, ModelResolver,
    NewInvocation, RunConfig, RunError, Services, Session, SessionKey, State, Timestamp, ToolAuthorizer, ToolError,
};
use hatchery_engine::{App, AppDirectory, LiveRunRequest, Plugins, RunRequest, Runner};
use hatchery_models::ModelProviders;
use hatchery_models::scripted::Scripted;
use hatchery_stores::{KeywordMemory, MemoryArtifacts, MemoryCredentials, MemorySessions};
use hatchery_wasm::{
    Catalog, CatalogHandle, CodeCache, ComponentSettings, Engine, EngineOptions, FileState, Grants, Limits, LoadOptions,
};
use serde_json::Value;
use tempfile::TempDir;

/// The engine of all tests that need no special options.
pub static ENGINE: LazyLock<Arc<Engine>> =
    LazyLock::new(|| Engine::new(&EngineOptions { instances: 100, ..EngineOptions::default() }).expect("an engine"));

/// Returns the path of a built component.
pub fn built(name: &str) -> PathBuf {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/wasm32-wasip2/guest");
    let directory = std::env::var_os("HATCHERY_COMPONENTS").map_or(built, PathBuf::from);
    directory.join(format!("{name}.wasm"))
}

/// Returns the path of a component, which must have been built.
pub fn component(name: &str) -> PathBuf {
    let path = built(name);
    assert!(
        path.exists(),
        "{} is missing; build it with `cargo build --profile guest --target wasm32-wasip2 -p {}`",
        path.display(),
        name.replace('_', "-"),
    );
    path
}

/// The catalog of a temporary folder, with its load options.
pub struct TestCatalog {
    directory: TempDir,
    pub options: LoadOptions,
}

impl TestCatalog {
    /// Creates an empty folder, with a code cache that is shared with later test runs.
    pub fn new() -> Self {
        let cache = CodeCache::new(Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("components")));
        let options = LoadOptions { cache, ..LoadOptions::new(ENGINE.clone()) };
        Self { directory: tempfile::tempdir().unwrap(), options }
    }

    /// Adds a built component.
    pub fn with(self, name: &str) -> Self {
        std::fs::copy(component(name), self.path(&format!("{name}.wasm"))).unwrap();
        self
    }

    /// Sets the limits of all components.
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.options.settings.limits = limits;
        self
    }

    /// Sets the settings of a component.
    pub fn with_settings(mut self, component: &str, settings: ComponentSettings) -> Self {
        self.options.settings.components.insert(component.to_owned(), settings);
        self
    }

    /// Sets the grants of a component.
    pub fn with_grants(self, component: &str, grants: Value) -> Self {
        let limits = self.options.settings.limits.clone();
        self.with_settings(component, ComponentSettings { limits, ..settings_with_grants(grants) })
    }

    /// Writes a file.
    pub fn write(&self, file: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    pub async fn open(&self) -> CatalogHandle {
        CatalogHandle::open(self.directory.path(), self.options.clone()).await.unwrap()
    }

    /// Returns the catalog, in which every file must be loaded.
    pub async fn catalog(&self) -> Arc<Catalog> {
        let catalog = self.open().await.current();
        for file in &catalog.files {
            assert_eq!(file.state, FileState::Loaded, "{}", file.path.display());
        }
        catalog
    }

    /// Returns the reason why a file is not loaded.
    pub fn reason(&self, catalog: &Catalog, file: &str) -> String {
        let status = catalog.file(&self.path(file)).expect("a status");
        status.state.reason().unwrap_or_else(|| panic!("{file} is {:?}", status.state)).to_owned()
    }
}

/// Returns settings with these grants, as written in `hatchery.yaml`.
pub fn settings_with_grants(grants: Value) -> ComponentSettings {
    let grants: Grants = serde_json::from_value(grants).unwrap();
    ComponentSettings { grants: Arc::new(grants), ..ComponentSettings::default() }
}

/// Resolves every model name to one scripted model.
pub struct OneModel(pub Arc<Scripted>);

impl ModelResolver for OneModel {
    fn embedder(&self, name: &str) -> Result<Arc<dyn Embedder>, hatchery_core::ModelError> {
        ModelProviders::new().embedder(name)
    }

    fn model(&self, _: &str) -> Result<Arc<dyn Model>, hatchery_core::ModelError> {
        Ok(self.0.clone())
    }
}

pub fn services(model: Scripted) -> Services {
    services_with(Arc::new(OneModel(Arc::new(model))))
}

fn services_with(models: Arc<dyn ModelResolver>) -> Services {
    Services {
        sessions: Arc::new(MemorySessions::new()),
        artifacts: Arc::new(MemoryArtifacts::new()),
        memory: Arc::new(KeywordMemory::default()),
        credentials: Arc::new(MemoryCredentials::default()),
        models,
    }
}

/// Returns the context of a call with this memory.
pub fn context_with_memory(catalog: &Arc<Catalog>, memory: Arc<dyn MemoryService>) -> CallContext {
    let services = Services { memory, ..services(Scripted::new()) };
    context_in(catalog, Invocation::new(NewInvocation::new(session(), services)).0)
}

fn session() -> Session {
    Session {
        key: SessionKey::new("app", "user", "session"),
        state: State::default(),
        events: Default::default(),
        revision: 0,
        created: Timestamp::now(),
        last_update_time: Timestamp::now(),
    }
}

/// Returns an invocation without an engine, with the user message `text`, and the handle that changes its session.
pub fn invocation_with_writer(text: &str) -> (Arc<Invocation>, InvocationWriter) {
    let new = NewInvocation::new(session(), services(Scripted::new()));
    Invocation::new(NewInvocation { id: "e-test".into(), user_content: Arc::new(Content::user(text)), ..new })
}

/// Returns an invocation without an engine, with the user message `text`.
pub fn invocation(text: &str) -> Arc<Invocation> {
    invocation_with_writer(text).0
}

/// Returns the context of a call that can call all tools of the catalog.
pub fn context(catalog: &Arc<Catalog>) -> CallContext {
    context_of(catalog, "hello")
}

/// Returns the context of a call with the user message `text`.
pub fn context_of(catalog: &Arc<Catalog>, text: &str) -> CallContext {
    context_in(catalog, invocation(text))
}

/// Returns the context of a call in this invocation.
pub fn context_in(catalog: &Arc<Catalog>, invocation: Arc<Invocation>) -> CallContext {
    CallContext::new(invocation, "agent", None).with_host(Arc::new(AllTools(catalog.clone())))
}

/// Calls a tool of the catalog in a new context.
pub async fn call(catalog: &Arc<Catalog>, tool: &str, args: Value) -> Result<Value, ToolError> {
    call_in(&context(catalog), catalog, tool, args).await
}

/// Calls a tool of the catalog in a context.
pub async fn call_in(cx: &CallContext, catalog: &Catalog, tool: &str, args: Value) -> Result<Value, ToolError> {
    catalog.tool(tool).unwrap().call(args.as_object().cloned().unwrap_or_default(), cx).await
}

struct AllTools(Arc<Catalog>);

#[async_trait]
impl AgentHost for AllTools {
    async fn run_sub_agent(&self, _: &CallContext, name: &str, _: Arc<dyn EventSink>) -> Result<(), RunError> {
        Err(RunError::NotFound { kind: "Agent", name: name.into(), hint: String::new() })
    }

    async fn call_checked_tool(
        &self,
        cx: &CallContext,
        name: &str,
        args: JsonMap,
        check: ToolAuthorizer<'_>,
    ) -> Result<Value, ToolError> {
        let tool = self.0.tool(name).map_err(|error| ToolError::Recoverable(error.to_string()))?;
        check(&tool.qualified_name())?;
        tool.call(args, cx).await
    }

    fn model(&self, cx: &CallContext) -> Result<(String, Arc<dyn Model>), RunError> {
        Ok(("own".into(), cx.invocation.services.models.model("own")?))
    }
}

/// Records the texts of events, and blocks each one until it gets a permit.
pub struct Listener {
    pub texts: Mutex<Vec<String>>,
    pub permits: tokio::sync::Semaphore,
    pub arrived: tokio::sync::Notify,
}

impl Listener {
    pub fn new(permits: usize) -> Arc<Self> {
        Arc::new(Self {
            texts: Mutex::default(),
            permits: tokio::sync::Semaphore::new(permits),
            arrived: tokio::sync::Notify::new(),
        })
    }

    pub fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap().clone()
    }
}

#[async_trait]
impl EventSink for Listener {
    async fn emit(&self, event: Arc<Event>) -> Result<Arc<Event>, RunError> {
        let text = event.content.as_ref().map(|content| content.text()).unwrap_or_default();
        self.texts.lock().unwrap().push(text);
        self.arrived.notify_one();
        self.permits.acquire().await.map_err(|_| RunError::Stopped)?.forget();
        Ok(event)
    }
}

/// Runs the custom agent at the root of an app in a new context.
pub async fn run_custom(catalog: &Arc<Catalog>, app: &str, listener: &Arc<Listener>) -> Result<(), RunError> {
    run_custom_in(catalog, app, AgentContext { call: context(catalog), sink: listener.clone() }).await
}

/// Runs the custom agent at the root of an app in a context.
pub async fn run_custom_in(catalog: &Catalog, app: &str, cx: AgentContext) -> Result<(), RunError> {
    match &catalog.app(app).unwrap().root().kind {
        AgentKind::Custom(custom) => custom.code.run(cx).await,
        kind => panic!("not a custom agent: {}", kind.label()),
    }
}

/// A session with an app in the engine.
pub struct Chat {
    runner: Runner,
    app: Arc<App>,
    session: String,
}

impl Chat {
    pub fn new(catalog: &Catalog, app: &str, models: Arc<dyn ModelResolver>, plugins: Plugins) -> Self {
        let runner = Runner::with_plugins(services_with(models), plugins);
        Self { runner, app: catalog.app(app).unwrap().clone(), session: "session".into() }
    }

    /// Uses the session with this id.
    pub fn in_session(self, id: &str) -> Self {
        Self { session: id.into(), ..self }
    }

    /// Sends a message. Returns the events and the error that ended the run.
    pub async fn say(&self, message: &str, config: RunConfig) -> (Vec<Arc<Event>>, Option<RunError>) {
        let mut request = RunRequest::new("user", self.session.as_str(), Content::user(message));
        request.config = RunConfig { auto_create_session: true, ..config };
        let mut run = self.runner.run(self.app.clone(), request).await.unwrap();
        let mut events = Vec::new();
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => events.push(event),
                Err(error) => return (events, Some(error)),
            }
        }
        (events, None)
    }

    /// Holds a live conversation: sends each request, and reads until the end of the turn that it begins. Returns the
    /// events and the error that ended the run.
    pub async fn talk(
        &self,
        requests: impl IntoIterator<Item = LiveRequest>,
        config: RunConfig,
    ) -> (Vec<Arc<Event>>, Option<RunError>) {
        let queue = LiveRequestQueue::new(8);
        let mut request = LiveRunRequest::new("user", self.session.as_str());
        request.config = RunConfig { auto_create_session: true, ..config };
        let mut run = self.runner.run_live(self.app.clone(), request, queue.clone()).await.unwrap();
        let mut events = Vec::new();
        for request in requests {
            queue.send(request).await.unwrap();
            loop {
                match run.next().await.expect("an event") {
                    Ok(event) => {
                        let is_end = event.turn_complete == Some(true);
                        events.push(event);
                        if is_end {
                            break;
                        }
                    }
                    Err(error) => return (events, Some(error)),
                }
            }
        }
        queue.close();
        while let Some(item) = run.next().await {
            match item {
                Ok(event) => events.push(event),
                Err(error) => return (events, Some(error)),
            }
        }
        (events, None)
    }

    /// Returns the stored session.
    pub async fn session(&self) -> Session {
        let key = SessionKey::new(self.app.name.as_str(), "user", self.session.as_str());
        self.runner.services().sessions.get(&key, EventWindow::default()).await.unwrap().unwrap()
    }
}

/// Runs an app in the engine. Returns the events and the error that ended the run.
pub async fn run_app(
    catalog: &Catalog,
    app: &str,
    message: &str,
    model: Scripted,
    config: RunConfig,
) -> (Vec<Arc<Event>>, Option<RunError>) {
    let models = Arc::new(OneModel(Arc::new(model)));
    Chat::new(catalog, app, models, Plugins::default()).say(message, config).await
}

/// Returns author and text of each event.
pub fn transcript(events: &[Arc<Event>]) -> Vec<(String, String)> {
    let text = |event: &Event| event.content.as_ref().map(|content| content.text()).unwrap_or_default();
    events.iter().map(|event| (event.author.clone(), text(event))).collect()
}

struct CatalogApps(Arc<Catalog>);

impl AppDirectory for CatalogApps {
    fn app(&self, name: &str) -> Option<Arc<App>> {
        self.0.app(name).cloned()
    }

    fn app_names(&self) -> Vec<String> {
        self.0.apps.keys().cloned().collect()
    }
}

impl Chat {
    /// Lets the code of runs run the apps of the catalog.
    pub fn with_apps(self, catalog: &Arc<Catalog>) -> Self {
        self.runner.set_apps(Arc::new(CatalogApps(catalog.clone())));
        self
    }

    pub fn services(&self) -> &Services {
        self.runner.services()
    }
}
