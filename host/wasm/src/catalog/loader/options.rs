//! Options of loading, and the progress that it reports.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::{AgentKind, ItemResolver};
use hatchery_engine::Factories;

use crate::catalog::revisions::Revisions;
use crate::catalog::settings::{HotReload, Settings};
use crate::runtime::cache::CodeCache;
use crate::runtime::compile::{CompileLimits, Compiler, Worker};
use crate::runtime::engine::Engine;

/// Default of [`LoadOptions::progress_delay`]. Most components compile faster.
const PROGRESS_DELAY: Duration = Duration::from_secs(3);

/// Options of loading a directory.
#[derive(Clone)]
pub struct LoadOptions {
    pub engine: Arc<Engine>,
    pub compiler: Compiler,
    pub cache: CodeCache,
    /// Agent classes of extensions, for YAML agents.
    pub agent_classes: Factories<AgentKind>,
    pub settings: Settings,
    /// Maximum time that runs may continue with a replaced revision.
    pub drain_timeout: Duration,
    /// Stores loaded revisions for rollback. `None` stores none.
    pub revisions: Option<Revisions>,
    /// The file that stores the owners of names between starts.
    pub names_file: Option<PathBuf>,
    /// Whether changed owners are written to `names_file`. A host that does not serve only reads it.
    pub stores_names: bool,
    /// Additional items for YAML agents. They take precedence over items of components and built-in tools.
    pub native_items: Option<Arc<dyn ItemResolver>>,
    /// Names of native apps. An app of the directory with one of these names is a conflict and does not serve.
    pub native_apps: BTreeSet<String>,
    /// Decides which files may be loaded. `None` allows all.
    pub load_policy: Option<LoadPolicy>,
    /// Called with progress reports.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// Time after which a compilation is reported as slow.
    pub progress_delay: Duration,
}

/// The items that YAML agents can refer to, except items of components.
pub struct CatalogItems {
    /// The agent classes of extensions.
    pub agent_classes: Factories<AgentKind>,
    /// `None` if there are none.
    pub native_items: Option<Arc<dyn ItemResolver>>,
}

/// Options to replace in a catalog that is being served. `None` keeps an option.
#[derive(Default)]
pub struct CatalogUpdate {
    /// YAML agents are loaded again with these items.
    pub items: Option<CatalogItems>,
    /// Limits of compilations.
    pub compile: Option<CompileLimits>,
    /// The policy that decides from now on which files may be loaded; `Some(None)` allows all. Files that are loaded
    /// are checked again, and stop serving if the policy rejects them.
    pub load_policy: Option<Option<LoadPolicy>>,
    pub drain_timeout: Option<Duration>,
    /// Number of stored revisions of each component.
    pub max_revisions: Option<usize>,
}

/// Returns an error with the reason if a file may not be loaded. It is called with the path and the bytes to load, and
/// may block.
pub type LoadPolicy = Arc<dyn Fn(&Path, &[u8]) -> Result<(), String> + Send + Sync>;

impl LoadOptions {
    /// Creates options with default limits, compilation in this process, no cache and no settings.
    pub fn new(engine: Arc<Engine>) -> Self {
        let cache = CodeCache::new(None);
        let (settings, drain_timeout) = (Settings::default(), HotReload::default().drain_timeout);
        Self {
            engine,
            compiler: Compiler::new(Worker::InProcess, CompileLimits::default()),
            cache,
            agent_classes: Factories::default(),
            settings,
            drain_timeout,
            revisions: None,
            names_file: None,
            stores_names: true,
            native_items: None,
            native_apps: BTreeSet::new(),
            load_policy: None,
            progress: None,
            progress_delay: PROGRESS_DELAY,
        }
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(listener) = &self.progress {
            listener(progress);
        }
    }
}

/// Progress of the loader, for display.
#[derive(Debug, Clone)]
pub enum Progress {
    /// This many components are about to be loaded.
    Found(usize),
    /// A component is being compiled, and that takes long.
    Compiling {
        name: String,
        /// Size of the file in bytes.
        size: u64,
    },
    /// A component is loaded.
    Loaded {
        name: String,
        took: Duration,
        /// True if the compiled code was in the cache.
        is_from_cache: bool,
    },
    /// A component cannot be loaded.
    Rejected { name: String, reason: String },
}
