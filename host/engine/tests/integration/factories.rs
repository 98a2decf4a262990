//! Registries of factories, and resolvers in layers.

use std::sync::Arc;

use hatchery_core::{ItemResolver, JsonMap, Plugin, ResolveError, Toolset};
use hatchery_engine::build::CallbackPlugin;
use hatchery_engine::toolsets::StaticToolset;
use hatchery_engine::{Extensions, Factories, LayeredResolver, StaticCatalog};
use serde_json::json;

use crate::support::{map, tool};

/// Registers a plugin that takes a level, and a toolset without arguments.
fn extensions() -> Extensions {
    let mut extensions = Extensions::default();
    extensions.plugins.register("audit", |args: JsonMap| match args.get("level") {
        Some(_) => Ok(Arc::new(CallbackPlugin::new("audit")) as Arc<dyn Plugin>),
        None => Err("`level` is missing".into()),
    });
    extensions.plugins.register_alias("audit_plugin", "audit");
    extensions.toolsets.register("maths", |_: JsonMap| Ok(Arc::new(StaticToolset::new("maths")) as Arc<dyn Toolset>));
    extensions
}

fn message<T>(result: Result<T, ResolveError>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn a_factory_gets_the_arguments_of_the_configuration() {
    let extensions = extensions();
    let create = |args| extensions.plugins.create("audit", args).unwrap();
    assert_eq!(create(map(json!({"level": 3}))).unwrap().name(), "audit");
    assert_eq!(create(JsonMap::new()).err().unwrap(), "`level` is missing");
}

#[test]
fn an_alias_resolves_to_its_factory_and_is_not_listed() {
    let plugins = extensions().plugins;
    assert!(plugins.create("audit_plugin", map(json!({"level": 3}))).unwrap().is_ok());
    assert!(plugins.create("x", JsonMap::new()).is_none());
    assert_eq!(plugins.names().collect::<Vec<_>>(), ["audit"]);
}

#[test]
fn a_later_factory_replaces_an_earlier_one_of_the_same_name() {
    let mut extensions = extensions();
    extensions.plugins.register("audit", |_: JsonMap| Err("no longer available".into()));
    let created = extensions.plugins.create("audit", map(json!({"level": 3}))).unwrap();
    assert_eq!(created.err().unwrap(), "no longer available");
    assert_eq!(extensions.plugins.names().collect::<Vec<_>>(), ["audit"]);
}

#[test]
fn a_factory_takes_precedence_over_an_alias_of_its_name() {
    let mut extensions = extensions();
    let error = |plugins: &Factories<Arc<dyn Plugin>>| plugins.create("audit_plugin", JsonMap::new()).unwrap().err();
    assert_eq!(error(&extensions.plugins).unwrap(), "`level` is missing", "it is an alias of `audit`");
    let mut own = Factories::default();
    own.register("audit_plugin", |_: JsonMap| Err("of the program".into()));
    extensions.plugins.extend(own);
    assert_eq!(error(&extensions.plugins).unwrap(), "of the program");
}

#[test]
fn a_later_alias_replaces_an_earlier_one() {
    let mut plugins = extensions().plugins;
    plugins.register("other", |_: JsonMap| Err("of the other one".into()));
    plugins.register_alias("audit_plugin", "other");
    assert_eq!(plugins.create("audit_plugin", JsonMap::new()).unwrap().err().unwrap(), "of the other one");
}

#[test]
fn the_first_layer_that_knows_a_name_resolves_it() {
    let catalog = StaticCatalog::default()
        .with_tool(tool("add", |_, _| Ok(json!(1))))
        .with_plugin(Arc::new(CallbackPlugin::new("audit")))
        .with_toolset(Arc::new(StaticToolset::new("more")))
        .with_toolset(Arc::new(StaticToolset::new("rest")));
    let mut extensions = extensions();
    extensions.toolsets.register("more", |_: JsonMap| Err("it is out of order".into()));
    let layers: [Arc<dyn ItemResolver>; 2] = [Arc::new(extensions), Arc::new(catalog)];
    let resolver = LayeredResolver::new(layers);
    assert!(resolver.tool("exit_loop").is_ok() && resolver.tool("add").is_ok());
    assert!(resolver.toolset("maths").is_ok() && resolver.toolset("rest").is_ok());
    let error = message(resolver.toolset("more"));
    assert_eq!(error, "toolset `more` cannot be used: it is out of order", "the second layer is not asked");
    assert_eq!(message(resolver.toolset("x")), "toolset `x` not found; available: `maths`, `more`, `rest`");
    assert!(resolver.plugin("audit", JsonMap::new()).is_ok(), "plugins of extensions are not items");
    assert_eq!(message(resolver.agent("x")), "agent `x` not found; available: none");
}
