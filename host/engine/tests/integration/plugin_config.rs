//! Plugins from a list: names, arguments, and changes of the catalog.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use hatchery_core::{
    Agent, CallContext, Callback, Content, ItemKind, ItemResolver, JsonMap, Plugin, ResolveError, RunError, Tool,
};
use hatchery_engine::plugins::{ConfiguredPlugins, PluginConfig};
use hatchery_engine::{CatalogSnapshot, CatalogSource, Extensions, PluginSource, Runner};
use hatchery_models::scripted::Scripted;
use serde_json::json;

use crate::support::*;

/// FixedCallback every run instead of the agent.
struct ReplyPlugin(String);

impl Callback for ReplyPlugin {
    fn name(&self) -> &str {
        "says"
    }
}

#[async_trait]
impl Plugin for ReplyPlugin {
    async fn before_run(&self, _: &CallContext) -> Result<Option<Content>, RunError> {
        Ok(Some(Content::model(&self.0)))
    }
}

/// A component whose plugin `says` answers every run with this text. `None` if it is not loaded.
struct Component(Option<&'static str>);

impl Component {
    fn missing(&self, kind: ItemKind, name: &str) -> ResolveError {
        let known = self.0.map(|_| "kitchen/says".to_owned()).into_iter().collect();
        ResolveError::Unknown { kind, name: name.into(), known }
    }
}

impl ItemResolver for Component {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        Err(self.missing(ItemKind::Tool, name))
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        Err(self.missing(ItemKind::Callback, name))
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        Err(self.missing(ItemKind::Agent, name))
    }

    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        match self.0 {
            Some(text) if name == "kitchen/says" || name == "says" => {
                let mark = args.get("mark").and_then(|mark| mark.as_str()).unwrap_or_default();
                Ok(Arc::new(ReplyPlugin(format!("{text}{mark}"))))
            }
            _ => Err(self.missing(ItemKind::Plugin, name)),
        }
    }
}

/// The catalog, which tests can change.
#[derive(Clone)]
struct TestCatalogSource(Arc<Mutex<(u64, Arc<Component>)>>);

impl TestCatalogSource {
    fn new(text: Option<&'static str>) -> Self {
        Self(Arc::new(Mutex::new((1, Arc::new(Component(text))))))
    }

    fn change(&self, text: Option<&'static str>) {
        let mut loaded = self.0.lock().unwrap();
        *loaded = (loaded.0 + 1, Arc::new(Component(text)));
    }

    fn plugins(&self, list: serde_json::Value) -> Result<ConfiguredPlugins, String> {
        let list: Vec<PluginConfig> = serde_json::from_value(list).map_err(|error| error.to_string())?;
        ConfiguredPlugins::new(&list, &Extensions::builtin().plugins, Arc::new(self.clone()))
            .map_err(|error| error.to_string())
    }
}

impl CatalogSource for TestCatalogSource {
    fn snapshot(&self) -> CatalogSnapshot {
        let (generation, component) = &*self.0.lock().unwrap();
        CatalogSnapshot { generation: *generation, resolver: component.clone() }
    }
}

fn error(list: serde_json::Value) -> String {
    TestCatalogSource::new(Some("hello")).plugins(list).err().unwrap()
}

async fn app(loaded: &TestCatalogSource, list: serde_json::Value) -> Harness {
    let mut app = Harness::new(llm("root", Scripted::new().default_reply("model"))).await;
    app.runner = Runner::with_plugins(app.runner.services().clone(), loaded.plugins(list).unwrap());
    app
}

#[tokio::test]
async fn builtin_plugins_are_found_by_name_and_alias() {
    let list = json!([
        "logging",
        {"name": "global_instruction", "args": {"instruction": "Be kind."}},
        {"name": "context_filter", "args": {"turns": 3}},
        "reflect_and_retry",
    ]);
    let names = ["logging_plugin", "global_instruction", "context_filter_plugin", "reflect_and_retry_plugin"];
    assert_eq!(TestCatalogSource::new(None).plugins(list).unwrap().names(), names);
    let list = json!([
        "logging_plugin",
        {"name": "context_filter_plugin", "args": {"turns": 3}},
        {"name": "reflect_and_retry_plugin", "args": {"max_retries": 1}},
    ]);
    assert_eq!(TestCatalogSource::new(None).plugins(list).unwrap().names(), [names[0], names[2], names[3]]);
    let list = json!([{"name": "reflect_retry_tool_plugin", "args": {"max_retries": 1}}]);
    assert_eq!(TestCatalogSource::new(None).plugins(list).unwrap().names(), [names[3]]);
}

#[tokio::test]
async fn errors_of_arguments_name_the_plugin() {
    let cases = [
        (
            json!({"name": "logging", "args": {"level": 1}}),
            "plugin `logging`: unknown field `level`, there are no fields",
        ),
        (json!("global_instruction"), "plugin `global_instruction`: missing field `instruction`"),
        (
            json!({"name": "global_instruction", "args": {"instruction": " "}}),
            "plugin `global_instruction`: `instruction` is empty",
        ),
        (
            json!({"name": "context_filter", "args": {"turn": 3}}),
            "plugin `context_filter`: unknown field `turn`, expected `turns`",
        ),
        (
            json!({"name": "context_filter", "args": {"turns": 0}}),
            "plugin `context_filter`: invalid value: integer `0`, expected a nonzero usize",
        ),
        (
            json!({"name": "reflect_and_retry", "args": {"retries": 0}}),
            "plugin `reflect_and_retry`: unknown field `retries`, expected `max_retries`",
        ),
        (json!({"name": "says", "arg": {}}), "unknown field `arg`, expected `name` or `args`"),
        (json!(3), "invalid type: integer `3`, expected the name of a plugin, or a mapping of `name` and `args`"),
    ];
    for (plugin, message) in cases {
        assert_eq!(error(json!([plugin])), message);
    }
}

#[tokio::test]
async fn the_error_of_an_unknown_plugin_has_its_index_and_the_known_names() {
    assert_eq!(
        error(json!(["logging", "redact"])),
        "plugins[1]: plugin `redact` not found; available: `logging`, `global_instruction`, `context_filter`, \
         `reflect_and_retry`, `kitchen/says`"
    );
}

#[tokio::test]
async fn no_run_starts_before_the_component_of_a_plugin_is_loaded() {
    let loaded = TestCatalogSource::new(None);
    let list: Vec<PluginConfig> = serde_json::from_value(json!(["logging", "kitchen/says"])).unwrap();
    let plugins =
        ConfiguredPlugins::new_while_loading(&list, &Extensions::builtin().plugins, Arc::new(loaded.clone())).unwrap();
    assert!(plugins.names().is_empty());
    let missing = plugins.current().map(|_| ()).unwrap_err();
    assert_eq!(missing.code(), "PLUGIN_MISSING");
    assert!(missing.to_string().contains("kitchen/says"), "{missing}");
    loaded.change(Some("hello"));
    assert_eq!(plugins.current().unwrap().iter().count(), 2);
}

#[tokio::test]
async fn a_plugin_is_listed_once() {
    assert_eq!(
        error(json!(["says", "logging", "kitchen/says"])),
        "plugins[2]: plugin `says` is plugins[0] already; leave one of them out"
    );
}

#[tokio::test]
async fn a_plugin_of_a_component_gets_its_arguments_and_changes_with_the_next_run() {
    let loaded = TestCatalogSource::new(Some("older"));
    let app = app(&loaded, json!([{"name": "kitchen/says", "args": {"mark": "!"}}])).await;
    assert_eq!(app.transcript("hi").await, ["model: older!"]);
    loaded.change(Some("newer"));
    assert_eq!(app.transcript("hi").await, ["model: newer!"]);
}

#[tokio::test]
async fn no_run_starts_while_a_plugin_is_missing() {
    let loaded = TestCatalogSource::new(Some("here"));
    let app = app(&loaded, json!(["says"])).await;
    loaded.change(None);
    let error = app.runner.run(app.app.clone(), app.request(Content::user("secret"))).await.unwrap_err();
    assert_eq!(error.code(), "PLUGIN_MISSING");
    assert_eq!(
        error.to_string(),
        "no run can begin without plugin `says`: plugin `says` not found; available: `logging`, `global_instruction`, \
         `context_filter`, `reflect_and_retry`"
    );
    assert!(app.session().await.events.is_empty(), "nothing is stored");
    loaded.change(Some("back"));
    assert_eq!(app.transcript("hi").await, ["model: back"]);
}

#[tokio::test]
async fn a_builtin_plugin_stays_the_same_when_the_catalog_changes() {
    let loaded = TestCatalogSource::new(None);
    let plugins = loaded.plugins(json!(["logging"])).unwrap();
    let before = plugins.current().unwrap();
    loaded.change(Some("hello"));
    let after = plugins.current().unwrap();
    let logging = |plugins: &hatchery_engine::Plugins| plugins.get("logging_plugin").unwrap().clone();
    assert!(Arc::ptr_eq(&logging(&before), &logging(&after)));
}

#[tokio::test]
async fn a_replaced_list_keeps_plugins_that_are_the_same_and_closes_others_after_their_last_run() {
    struct Counted(&'static str, Arc<AtomicUsize>);
    impl Callback for Counted {
        fn name(&self) -> &str {
            self.0
        }
    }
    #[async_trait]
    impl Plugin for Counted {
        async fn close(&self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (created, closed) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut registered = Extensions::builtin().plugins;
    for name in ["one", "two"] {
        let (created, closed) = (created.clone(), closed.clone());
        registered.register(name, move |_: JsonMap| {
            created.fetch_add(1, Ordering::SeqCst);
            Ok(Arc::new(Counted(name, closed.clone())) as Arc<dyn Plugin>)
        });
    }
    let list = |names: serde_json::Value| serde_json::from_value::<Vec<PluginConfig>>(names).unwrap();
    let catalog = Arc::new(TestCatalogSource::new(None));
    let plugins = ConfiguredPlugins::new(&list(json!(["one", "two"])), &registered, catalog).unwrap();
    let of_run = plugins.current().unwrap();
    let error = plugins.prepare(&list(json!(["one", "nonesuch"]))).err().unwrap();
    assert!(error.to_string().starts_with("plugins[1]: plugin `nonesuch` not found"), "{error}");
    assert_eq!(plugins.names(), ["one", "two"]);
    plugins.replace(plugins.prepare(&list(json!(["one"]))).unwrap());
    assert_eq!((plugins.names(), created.load(Ordering::SeqCst)), (vec!["one".to_owned()], 2));
    drop(plugins.current().unwrap());
    tokio::task::yield_now().await;
    assert_eq!(closed.load(Ordering::SeqCst), 0, "a run uses it");
    drop(of_run);
    drop(plugins.current().unwrap());
    tokio::task::yield_now().await;
    assert_eq!(closed.load(Ordering::SeqCst), 1);
    plugins.close().await;
    assert_eq!(closed.load(Ordering::SeqCst), 2);
}
