//! Tests of hosts in process.

use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, CallContext, Callback, Claim, Content, EventSigner, EventWindow, JsonMap, Model, ModelCapabilities,
    ModelError, ModelErrorKind, Plugin, RunError, SessionKey, SessionService, Tool, Toolset,
};
use hatchery_engine::build::{custom, function_tool, llm};
use hatchery_engine::{App, Extensions, StaticCatalog};
use hatchery_models::ModelProvider;
use hatchery_models::scripted::{Reply, Scripted};

use super::*;
use crate::source::AppOrigin;
use crate::storage::Storage;
use crate::trust::ConfigSource;

const YAML_AGENT: &str = "name: greeter\nmodel: native\ninstruction: Greet.\n";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let file = folder.path().join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }
    folder
}

fn in_memory(folder: &Path) -> HostBuilder {
    Host::builder().folder(folder).storage(Storage::InMemory).code_cache(None)
}

fn parrot(name: &str) -> Agent {
    let agent = custom(name, |cx| async move {
        let text = cx.call.invocation.user_content().text();
        cx.say(text).await?;
        Ok(())
    });
    agent.build().unwrap()
}

async fn answer(host: &Host, app: &str, message: &str) -> String {
    let events = host.run(app, "ada", "first", message).await.unwrap().collect().await.unwrap();
    events.last().unwrap().content.as_ref().unwrap().text()
}

#[tokio::test]
async fn a_host_without_a_folder_runs_native_agents() {
    let host = Host::builder().agent(parrot("parrot")).open().await.unwrap();
    assert_eq!(host.apps().app_names(), ["parrot"]);
    assert_eq!(answer(&host, "parrot", "Hello").await, "Hello");
    let error = host.run("ghost", "ada", "first", "Hello").await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "app `ghost` not found; available: parrot");
    host.close().await;
}

#[tokio::test]
async fn the_origin_of_an_app_is_its_file_or_the_program() {
    let folder = folder(&[("hello/root_agent.yaml", YAML_AGENT), ("parrot/root_agent.yaml", YAML_AGENT)]);
    let host = in_memory(folder.path()).agent(parrot("parrot")).open().await.unwrap();
    let origins = ["hello", "parrot"].map(|app| host.apps().app_origin(app));
    assert_eq!(origins, [AppOrigin::Yaml, AppOrigin::Native], "a native app precedes a file with its name");
    host.close().await;
}

#[tokio::test]
async fn a_native_model_answers_an_agent_of_the_folder() {
    let folder = folder(&[("hello/root_agent.yaml", YAML_AGENT)]);
    let model = Arc::new(Scripted::new().default_reply("Hello from Rust"));
    let host = in_memory(folder.path()).agent(parrot("parrot")).model("native", model).open().await.unwrap();
    assert_eq!(host.apps().app_names(), ["hello", "parrot"]);
    assert_eq!(answer(&host, "hello", "Hi").await, "Hello from Rust");
    assert_eq!(answer(&host, "parrot", "Hi").await, "Hi");
    host.close().await;
}

/// Models that answer with their names.
struct NamedModels;

impl ModelProvider for NamedModels {
    fn patterns(&self) -> &[&'static str] {
        &["house-*", "gemini-*"]
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::new(Scripted::new().default_reply(format!("I am {name}"))))
    }
}

#[tokio::test]
async fn native_providers_take_precedence_over_built_in_providers() {
    let agent = |model: &str| format!("name: greeter\nmodel: {model}\ninstruction: Greet.\n");
    let (house, hosted) = (agent("house-large"), agent("gemini-2.5-flash"));
    let folder = folder(&[("house/root_agent.yaml", &house), ("hosted/root_agent.yaml", &hosted)]);
    let host = in_memory(folder.path()).model_provider(Box::new(NamedModels)).open().await.unwrap();
    assert_eq!(answer(&host, "house", "Who?").await, "I am house-large");
    assert_eq!(answer(&host, "hosted", "Who?").await, "I am gemini-2.5-flash");
    host.close().await;
}

/// Models whose key is missing.
struct KeylessModels;

impl ModelProvider for KeylessModels {
    fn patterns(&self) -> &[&'static str] {
        &["keyless-*"]
    }

    fn create(&self, name: &str) -> Result<Arc<dyn Model>, ModelError> {
        Err(ModelError::new(ModelErrorKind::Auth, name, "it has no key"))
    }

    fn capabilities(&self, _: &str) -> ModelCapabilities {
        ModelCapabilities { live: true, ..ModelCapabilities::default() }
    }
}

#[tokio::test]
async fn the_capabilities_of_a_model_without_a_key_are_known_beside_native_models() {
    let builder = Host::builder().model("native", Arc::new(Scripted::new())).model_provider(Box::new(KeylessModels));
    let host = builder.open().await.unwrap();
    let models = &host.services().models;
    assert!(models.model("keyless-1").is_err() && models.capabilities("keyless-1").live);
    assert!(models.capabilities("native").built_in_tools);
    host.close().await;
}

#[tokio::test]
async fn a_key_in_code_signs_events_instead_of_the_key_in_the_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let signer = EventSigner::new(&[7; 32]);
    let builder = Host::builder().storage(Storage::Directory(folder.path().join("data"))).event_signer(signer.clone());
    let host = builder.agent(parrot("parrot")).open().await.unwrap();
    answer(&host, "parrot", "Hello").await;
    let key = SessionKey::new("parrot", "ada", "first");
    let session = host.services().sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(signer.claim(&key, &session.events[0]), Some(Claim::Run));
    assert_eq!(EventSigner::for_process().claim(&key, &session.events[0]), None);
    assert!(!folder.path().join("data/host.key").exists());
    host.close().await;
}

#[tokio::test]
async fn an_agent_of_the_folder_uses_native_items_by_name() {
    let agent = "name: gambler\nmodel: native\ninstruction: Flip coins.\ntools: [{name: flip_coin}, {name: maths}]\n";
    let folder =
        folder(&[("gambler/root_agent.yaml", agent), ("lost/root_agent.yaml", &agent.replace("maths", "music"))]);
    let flip_coin = function_tool("flip_coin", "Flips a coin.", |_: JsonMap, _| async { Ok("heads") });
    let mut extensions = Extensions::builtin();
    extensions.tools.register("maths", |_| {
        Ok(Arc::new(function_tool("maths", "Adds.", |_: JsonMap, _| async { Ok(3) })) as Arc<dyn Tool>)
    });
    let script = [Reply::call("flip_coin", serde_json::json!({})), Reply::text("Heads!")];
    let host = in_memory(folder.path())
        .model("native", Arc::new(Scripted::sequence(script)))
        .items(StaticCatalog::default().with_tool(Arc::new(flip_coin)))
        .extensions(extensions);
    let host = host.open().await.unwrap();
    assert_eq!(answer(&host, "gambler", "Flip!").await, "Heads!");
    let report = host.apps().report();
    let lost = report.files.iter().find(|file| file.name == "lost").unwrap().reason.as_deref().unwrap();
    assert!(lost.contains("`music`") && lost.contains("`maths`") && lost.contains("`flip_coin`"), "{lost}");
    assert_eq!(lost.matches("`exit_loop`").count(), 1, "{lost}");
}

#[tokio::test]
async fn an_app_of_the_folder_with_the_name_of_a_native_app_is_a_conflict_that_names_both() {
    let folder = folder(&[("parrot/root_agent.yaml", YAML_AGENT)]);
    let host = in_memory(folder.path()).agent(parrot("parrot")).open().await.unwrap();
    assert_eq!(host.apps().app_names(), ["parrot"]);
    assert_eq!(answer(&host, "parrot", "Hi").await, "Hi");
    let file = &host.apps().report().files[0];
    let reason = "`parrot/root_agent.yaml` and a native app of the host are apps named `parrot`; rename one of them";
    assert_eq!((file.state.as_str(), file.reason.as_deref()), ("conflict", Some(reason)));
}

#[tokio::test]
async fn two_native_apps_of_one_name_are_an_error() {
    let error = Host::builder().agent(parrot("a")).agent(parrot("a")).open().await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "two native apps are named `a`; rename one of them");
}

#[tokio::test]
async fn services_are_given_as_objects_or_uris() {
    let sessions: Arc<dyn SessionService> = Arc::new(hatchery_stores::MemorySessions::new());
    let builder = Host::builder().agent(parrot("parrot")).session_service(sessions.clone());
    let host = builder.artifact_service("memory:").memory_service("memory:").open().await.unwrap();
    answer(&host, "parrot", "Hello").await;
    let key = SessionKey::new("parrot", "ada", "first");
    let session = sessions.get(&key, EventWindow::All).await.unwrap().unwrap();
    assert_eq!(session.events.len(), 2);
    let error = Host::builder().session_service("oracle://db").open().await.map(|_| ()).unwrap_err().to_string();
    assert!(error.starts_with("session_service `oracle://db`: "), "{error}");
}

#[cfg(feature = "firestore")]
#[tokio::test]
async fn hosts_on_one_firestore_database_share_sessions() {
    use hatchery_stores::firestore::{FirestoreClient, FirestoreProperties};

    let Some(address) = hatchery_test_services::firestore_emulator() else { return };
    let project = format!("test-{}", uuid::Uuid::new_v4());
    let client = FirestoreClient::builder(project).emulator(address).build().unwrap();
    for turn in 1..=2 {
        let host = Host::builder().agent(parrot("parrot")).firestore(&client, &FirestoreProperties::default());
        let host = host.storage(Storage::InMemory).open().await.unwrap();
        answer(&host, "parrot", "Hello").await;
        let sessions = host.services().sessions.list("parrot", "ada").await.unwrap();
        assert_eq!(sessions.iter().map(|session| session.revision).collect::<Vec<_>>(), [2 * turn]);
        host.close().await;
    }
}

#[tokio::test]
async fn settings_in_code_replace_the_settings_of_the_folder() {
    let folder = folder(&[("hatchery.yaml", "plugins: [logging]\n")]);
    let config = Config::parse("app_defaults: {max_llm_calls: 9}", Path::new("hatchery.yaml")).unwrap();
    let host = in_memory(folder.path()).config(config).open().await.unwrap();
    assert!(host.plugin_names().is_empty());
    assert_eq!(host.config().app_defaults.to_string(), "max_llm_calls: 9");
}

/// A plugin and a toolset that record their names when they are closed.
struct CloseRecorder(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Callback for CloseRecorder {
    fn name(&self) -> &str {
        self.0
    }
}

#[async_trait]
impl Plugin for CloseRecorder {
    async fn before_run(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(Some(Content::model(format!("{} is closed", self.0))))
    }

    async fn close(&self) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[async_trait]
impl Toolset for CloseRecorder {
    fn name(&self) -> &str {
        self.0
    }

    async fn tools(&self, _: &CallContext) -> Result<Vec<Arc<dyn Tool>>, RunError> {
        Ok(Vec::new())
    }

    async fn close(&self) {
        self.1.lock().unwrap().push(self.0);
    }
}

#[tokio::test]
async fn plugins_and_then_the_toolsets_of_all_apps_are_closed_with_the_host() {
    let closed = Arc::new(Mutex::new(Vec::new()));
    let app = |name| {
        let toolset = Arc::new(CloseRecorder(name, closed.clone()));
        App::new(name, llm("root").instruction("x").toolset(toolset).build().unwrap()).unwrap()
    };
    let plugin = Arc::new(CloseRecorder("plugin", closed.clone()));
    let host = Host::builder().plugin(plugin).app(app("dice")).app(app("trip")).open().await.unwrap();
    assert_eq!(answer(&host, "dice", "Roll").await, "plugin is closed");
    host.close().await;
    assert_eq!(*closed.lock().unwrap(), ["plugin", "dice", "trip"]);
}

#[tokio::test]
async fn reproducible_hosts_have_no_compaction_and_no_recorder() {
    let yaml = "plugins: [{name: recorder, args: {folder: recorded}}, logging]\n\
                app_defaults: {max_llm_calls: 9, compaction: {interval: 1, overlap: 0}}\n\
                apps: {dice: {compaction: {token_threshold: 1, retention: 1}}}\n";
    let folder = folder(&[("hatchery.yaml", yaml)]);
    let host = in_memory(folder.path()).reproducible().open().await.unwrap();
    assert_eq!(host.plugin_names(), ["logging_plugin"]);
    assert_eq!(host.config().app_defaults.to_string(), "max_llm_calls: 9");
    assert_eq!(host.config().apps["dice"].to_string(), "");
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let error = Host::open("/no/such").await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "/no/such is not a folder");
}

#[test]
fn compiled_code_is_cached_in_the_users_cache_folder() {
    let cache = |variables: &[(&str, &str)]| {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        user_code_cache(find)
    };
    let both = [("XDG_CACHE_HOME", "/caches"), ("HOME", "/home/ada")];
    assert_eq!(cache(&both), Some("/caches/hatchery/code".into()));
    assert_eq!(cache(&both[1..]), Some("/home/ada/.cache/hatchery/code".into()));
    let relative = [("XDG_CACHE_HOME", "agents"), ("HOME", "")];
    assert_eq!(cache(&relative), None, "a relative path could be in the served folder");
}

/// Returns the errors of the calls of an app, and the error of its run.
async fn errors(host: &Host, app: &str, session: &str) -> (Vec<String>, Option<RunError>) {
    let mut run = host.run(app, "ada", session, "Go").await.unwrap();
    let mut failed = Vec::new();
    while let Some(event) = run.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => return (failed, Some(error)),
        };
        let errors = event.function_responses().filter_map(|response| response.response.get("error")?.as_str());
        failed.extend(errors.map(ToOwned::to_owned));
    }
    (failed, None)
}

#[tokio::test]
async fn access_that_the_configuration_has_no_longer_is_withdrawn() {
    let document = r#"{"openapi": "3.1.0", "paths": {"/x": {"get": {"operationId": "op"}}}}"#;
    let tool = |api: &str| format!("  - {{name: OpenAPIToolset, args: {{api: {api}, prefix: {api}_}}}}\n");
    let tools = [tool("kept"), tool("moved"), tool("removed")].concat();
    let agent = format!("name: caller\nmodel: native\ninstruction: Call.\ntools:\n{tools}");
    let far = "agent_class: A2aAgent\nname: far\nargs: {agent: far}\n";
    // Nothing listens on port 1.
    let api = |url: &str| format!("{{document: doc.json, base_url: '{url}'}}");
    let (here, there) = (api("http://127.0.0.1:1"), api("http://127.0.0.1:2"));
    let before = format!(
        "openapi: {{apis: {{kept: {here}, moved: {here}, removed: {here}}}}}\n\
         a2a: {{agents: {{far: {{card: 'http://127.0.0.1:1/card'}}}}, push: {{network: [hooks.example]}}}}\n"
    );
    let after = format!("openapi: {{apis: {{kept: {here}, moved: {there}}}}}\n");
    let folder = folder(&[
        ("caller/root_agent.yaml", &agent),
        ("far/root_agent.yaml", far),
        ("doc.json", document),
        ("operator.yaml", &before),
    ]);
    let file = folder.path().join("operator.yaml");
    let calls = ["moved_op", "removed_op"];
    let calls = calls.iter().fold(Reply::call("kept_op", serde_json::json!({})), |reply, name| {
        reply.and_call(*name, serde_json::json!({}))
    });
    let model = Scripted::new().on_tool("removed_op", Reply::text("done")).default_reply(calls);
    let source = ConfigSource::new(folder.path()).with_file(Some(file.clone()));
    let builder = Host::builder().config_source(source).storage(Storage::InMemory).code_cache(None);
    let host = builder.watch(true).model("native", Arc::new(model)).open().await.unwrap();
    let hook = "https://hooks.example/x".parse().unwrap();
    let may_push = |host: &Host| {
        let policy = host.live().parts.connections.push_policy();
        policy.is_some_and(|policy| hatchery_egress::Egress::check_url(&*policy, &hook).is_ok())
    };
    let is_refused =
        |error: &String| error.ends_with("the host may not connect there; the log of the host holds the cause");
    let code = |error: Option<RunError>| match error {
        Some(RunError::Agent { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    let failed = errors(&host, "caller", "first").await.0;
    assert!(failed.len() == 3 && !failed.iter().any(is_refused), "{failed:?}");
    assert_eq!(code(errors(&host, "far", "first").await.1), "A2A_UNREACHABLE");
    assert!(may_push(&host));
    std::fs::write(&file, after).unwrap();
    for session in (0..).map(|number: u64| number.to_string()).take_while(|_| may_push(&host)) {
        errors(&host, "caller", &session).await;
    }
    let failed = errors(&host, "caller", "last").await.0;
    assert_eq!(failed.iter().map(is_refused).collect::<Vec<_>>(), [false, true, true], "{failed:?}");
    assert_eq!(code(errors(&host, "far", "last").await.1), "A2A_NOT_ALLOWED");
    host.close().await;
}

#[tokio::test]
async fn an_agent_uses_an_integration_of_the_configuration() {
    let agent = |name: &str| {
        format!(
            "name: clerk\nmodel: native\ninstruction: Help.\ntools:\n  \
             - {{name: ApplicationIntegrationToolset, args: {{integration: {name}}}}}\n"
        )
    };
    // Nothing listens on port 1.
    let config = "integrations: {jira: {project: p, location: us-central1, connection: jira, actions: [Assign], \
                  endpoint: 'http://127.0.0.1:1'}}\n";
    let folder = folder(&[
        ("clerk/root_agent.yaml", &agent("jira")),
        ("lost/root_agent.yaml", &agent("crm")),
        ("operator.yaml", config),
    ]);
    let source = ConfigSource::new(folder.path()).with_file(Some(folder.path().join("operator.yaml")));
    let builder = Host::builder().config_source(source).storage(Storage::InMemory).code_cache(None);
    let model = Arc::new(Scripted::new().default_reply("Hello"));
    let host = builder.model("native", model).open().await.unwrap();
    let error = errors(&host, "clerk", "first").await.1.unwrap();
    assert_eq!(error.code(), "OPENAPI_UNAVAILABLE");
    let cause = "the API `jira` is not available: the request failed: ";
    assert!(error.to_string().contains(cause), "{error}");
    let report = host.apps().report();
    let lost = report.files.iter().find(|file| file.name == "lost").unwrap().reason.as_deref().unwrap();
    assert!(lost.contains("hatchery.yaml has no integration `crm`; available: `jira`"), "{lost}");
}
