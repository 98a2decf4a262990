//! Extension points: registries of factories by name, and item resolvers in layers.
//!
//! An extension, such as a toolset of a protocol or an agent class, is registered in [`Extensions`] by the program that
//! opens the host. Neither the engine nor the loader of YAML agents knows it. Its factory is called with the arguments
//! of the configuration and returns the item:
//!
//! ```
//! use std::sync::Arc;
//! use hatchery_core::{ItemResolver, JsonMap, Toolset};
//! use hatchery_engine::build::function_tool;
//! use hatchery_engine::toolsets::StaticToolset;
//! use hatchery_engine::{Extensions, LayeredResolver, StaticCatalog};
//!
//! let mut extensions = Extensions::builtin();
//! extensions.toolsets.register("maths", |_args: JsonMap| {
//!     let pi = function_tool("pi", "The number pi.", |_: JsonMap, _| async { Ok(std::f64::consts::PI) });
//!     Ok(Arc::new(StaticToolset::new("maths").tool(pi)) as Arc<dyn Toolset>)
//! });
//! let layers: [Arc<dyn ItemResolver>; 2] = [Arc::new(extensions), Arc::new(StaticCatalog::default())];
//! let resolver = LayeredResolver::new(layers);
//! assert!(resolver.toolset("maths").is_ok());
//! assert!(resolver.tool("exit_loop").is_ok());
//! ```

use std::ops::Deref;
use std::sync::Arc;

use hatchery_core::{
    Agent, AgentKind, Callback, CodeExecutor, ExampleProvider, ItemKind, ItemResolver, JsonMap, Plugin, ResolveError,
    Summarizer, Tool, Toolset,
};

use crate::factories::Factories;
use crate::plugins::builtin_plugins;
use crate::tools::builtin;

/// The registered extensions of a process. Models have a registry of the same shape in their own crate.
#[derive(Debug, Clone, Default)]
pub struct Extensions {
    /// Tools. A tool that an agent names without arguments is created with empty ones.
    pub tools: Factories<Arc<dyn Tool>>,
    pub toolsets: Factories<Arc<dyn Toolset>>,
    /// Kinds of agents by the `agent_class` of YAML files, in addition to the engine's own.
    pub agent_classes: Factories<AgentKind>,
    /// Plugins. [`ConfiguredPlugins`](crate::plugins::ConfiguredPlugins) creates those that the configuration names,
    /// once.
    pub plugins: Factories<Arc<dyn Plugin>>,
    /// Code executors. An agent's executor is closed with its app.
    pub code_executors: Factories<Arc<dyn CodeExecutor>>,
}

impl Extensions {
    /// Returns the extensions that come with the engine.
    pub fn builtin() -> Self {
        Self { tools: builtin::tools().clone(), plugins: builtin_plugins().clone(), ..Self::default() }
    }
}

/// Items that need no arguments. Agents are created from files and plugins by
/// [`ConfiguredPlugins`](crate::plugins::ConfiguredPlugins), so this resolver has neither.
impl ItemResolver for Extensions {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        self.tools.resolve(ItemKind::Tool, name)
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        Err(ResolveError::Unknown { kind: ItemKind::Callback, name: name.into(), known: Vec::new() })
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        Err(ResolveError::Unknown { kind: ItemKind::Agent, name: name.into(), known: Vec::new() })
    }

    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        self.toolsets.resolve(ItemKind::Toolset, name)
    }

    fn create_toolset(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Toolset>, ResolveError> {
        self.toolsets.resolve_with(ItemKind::Toolset, name, args)
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        self.code_executors.resolve(ItemKind::CodeExecutor, name)
    }
}

/// A chain of resolvers, tried in order: usually built-in items, then configured ones, then the catalog of components.
///
/// The first layer that has a name decides, even if the item is ambiguous or unusable there. If no layer knows it, the
/// error lists the names of all layers. Layers are shared (`Arc<dyn ItemResolver>`) or borrowed (`&dyn ItemResolver`).
#[derive(Clone)]
pub struct LayeredResolver<R = Arc<dyn ItemResolver>> {
    layers: Vec<R>,
}

impl<'a, R: Deref<Target = dyn ItemResolver + 'a>> LayeredResolver<R> {
    /// Creates a resolver of these layers, first to last.
    pub fn new(layers: impl IntoIterator<Item = R>) -> Self {
        Self { layers: layers.into_iter().collect() }
    }

    fn resolve<T>(
        &self,
        kind: ItemKind,
        name: &str,
        resolve: impl Fn(&dyn ItemResolver) -> Result<T, ResolveError>,
    ) -> Result<T, ResolveError> {
        let mut all_known: Vec<String> = Vec::new();
        for layer in &self.layers {
            match resolve(&**layer) {
                Err(ResolveError::Unknown { known, .. }) => {
                    let new: Vec<_> = known.into_iter().filter(|name| !all_known.contains(name)).collect();
                    all_known.extend(new);
                }
                result => return result,
            }
        }
        Err(ResolveError::Unknown { kind, name: name.into(), known: all_known })
    }
}

impl<'a, R: Deref<Target = dyn ItemResolver + 'a> + Send + Sync> ItemResolver for LayeredResolver<R> {
    fn tool(&self, name: &str) -> Result<Arc<dyn Tool>, ResolveError> {
        self.resolve(ItemKind::Tool, name, |layer| layer.tool(name))
    }

    fn callback(&self, name: &str) -> Result<Arc<dyn Callback>, ResolveError> {
        self.resolve(ItemKind::Callback, name, |layer| layer.callback(name))
    }

    fn agent(&self, name: &str) -> Result<Agent, ResolveError> {
        self.resolve(ItemKind::Agent, name, |layer| layer.agent(name))
    }

    fn toolset(&self, name: &str) -> Result<Arc<dyn Toolset>, ResolveError> {
        self.resolve(ItemKind::Toolset, name, |layer| layer.toolset(name))
    }

    fn create_toolset(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Toolset>, ResolveError> {
        self.resolve(ItemKind::Toolset, name, |layer| layer.create_toolset(name, args.clone()))
    }

    fn plugin(&self, name: &str, args: JsonMap) -> Result<Arc<dyn Plugin>, ResolveError> {
        self.resolve(ItemKind::Plugin, name, |layer| layer.plugin(name, args.clone()))
    }

    fn code_executor(&self, name: &str) -> Result<Arc<dyn CodeExecutor>, ResolveError> {
        self.resolve(ItemKind::CodeExecutor, name, |layer| layer.code_executor(name))
    }

    fn summarizer(&self, name: &str) -> Result<Arc<dyn Summarizer>, ResolveError> {
        self.resolve(ItemKind::Summarizer, name, |layer| layer.summarizer(name))
    }

    fn examples(&self, name: &str) -> Result<Arc<dyn ExampleProvider>, ResolveError> {
        self.resolve(ItemKind::Examples, name, |layer| layer.examples(name))
    }
}
