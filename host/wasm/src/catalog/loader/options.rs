//! The options of a load, and the progress that it reports.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::ItemResolver;

use crate::catalog::revisions::Revisions;
use crate::catalog::settings::{HotReload, Settings};
use crate::runtime::cache::CodeCache;
use crate::runtime::compile::{CompileLimits, Compiler, Worker};
use crate::runtime::engine::Engine;

/// How long people wait without a word. Most components are compiled in less.
const PATIENCE: Duration = Duration::from_secs(3);

/// How a directory is loaded.
#[derive(Clone)]
pub struct LoadOptions {
    /// Runs the components.
    pub engine: Arc<Engine>,
    /// Compiles components.
    pub compiler: Compiler,
    /// Keeps compiled code.
    pub cache: CodeCache,
    /// What the operator says of components.
    pub settings: Settings,
    /// How long runs may go on with a revision that was replaced before they are ended.
    pub drain_timeout: Duration,
    /// Keeps what was loaded, to go back to.
    pub revisions: Option<Revisions>,
    /// The file that keeps the owners of names from one start to the next.
    pub names_file: Option<PathBuf>,
    /// Items that YAML agents can use besides those of components and built-in tools. They take precedence.
    pub native_items: Option<Arc<dyn ItemResolver>>,
    /// Asked before a file is loaded.
    pub load_policy: Option<LoadPolicy>,
    /// Told what is being loaded.
    pub progress: Option<Arc<dyn Fn(Progress) + Send + Sync>>,
    /// How long a compilation may take before `progress` is told that it is under way.
    pub progress_delay: Duration,
}

/// Says why a file may not be loaded. It is given the very bytes that are, and may block.
pub type LoadPolicy = Arc<dyn Fn(&Path, &[u8]) -> Result<(), String> + Send + Sync>;

impl LoadOptions {
    /// Default limits, compilation in this process, no cache, no settings.
    pub fn new(engine: Arc<Engine>) -> Self {
        let cache = CodeCache::new(None);
        let (settings, drain_timeout) = (Settings::default(), HotReload::default().drain_timeout);
        Self {
            engine,
            compiler: Compiler::new(Worker::InProcess, CompileLimits::default()),
            cache,
            settings,
            drain_timeout,
            revisions: None,
            names_file: None,
            native_items: None,
            load_policy: None,
            progress: None,
            progress_delay: PATIENCE,
        }
    }

    pub(super) fn report(&self, progress: Progress) {
        if let Some(listener) = &self.progress {
            listener(progress);
        }
    }
}

/// What the loader is doing, for people who wait.
#[derive(Debug, Clone)]
pub enum Progress {
    /// So many components are about to be loaded.
    Found(usize),
    /// One is being compiled, and that takes long.
    Compiling {
        /// Its name.
        name: String,
        /// Bytes of its file.
        size: u64,
    },
    /// One is loaded.
    Loaded {
        /// Its name.
        name: String,
        /// How long it took.
        took: Duration,
        /// True when it did not have to be compiled.
        is_from_cache: bool,
    },
    /// One cannot be loaded.
    Rejected {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
}
