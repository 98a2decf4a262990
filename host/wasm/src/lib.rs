//! Loads WebAssembly components and exposes their items: agents, tools, callbacks, plugins, code executors,
//! summarizers, example providers and models.
//!
//! Read it in this order: [`engine`] and [`limits`] (the sandbox), [`component`] (a loaded revision, and how its
//! exports become the traits of `hatchery-core`), `imports` (the functions that guests can call), [`catalog`] (all
//! loaded components) and [`watch`] (how they are replaced while the host serves).
//!
//! A call of a tool or a callback costs a fresh instance, some 20 µs, unless the operator configures an instance
//! pool. An agent's run and a model's answer always use a fresh one. No guest affects other calls: crashes, loops and
//! floods end as errors that name the component and, for limits, the setting that raises it. Anything beyond
//! computing must be granted by the operator: [`policy`].

pub mod catalog;
mod contract;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
mod guest_log;
pub mod policy;
mod runtime;

pub use cache::{CacheState, CodeCache, file_sha256};
pub use catalog::draining::DrainingRevision;
pub use catalog::revisions::{Revisions, StoredRevision, component_files};
pub use catalog::scan::IGNORED_FOLDERS;
pub use catalog::{Catalog, FileState, FileStatus};
pub use catalog::{inspect, loader, models, settings, watch};
pub use compile::{CompileLimits, Compiler, Worker};
pub use component::{Component, ComponentSettings, Hook};
pub use config::{InstancePoolConfig, InstanceSettings};
pub use contract::{component, version};
pub use engine::{Engine, EngineOptions};
pub use error::LoadError;
pub use inspect::{Inspection, inspect, inspect_file};
pub use limits::{LimitOverrides, Limits};
pub use loader::{
    CatalogItems, CatalogUpdate, LoadOptions, LoadPolicy, Precompiled, Progress, load_component, precompile,
};
pub use models::CatalogModels;
pub use policy::{
    GrantReport, Grants, HostPattern, PathConflict, PrivateEntry, ProtectedPath, Secret, check_readable_folders,
    check_writable_folders,
};
pub use runtime::http::{RecordedHttp, RecordedResponse};
pub use runtime::program::join as join_program;
pub use runtime::store::call_statistics::{ComponentUsage, Quantiles};
pub use runtime::{cache, compile, config, engine, limits, requirements};
pub use settings::{DeterministicMode, HotReload, Settings};
pub use watch::CatalogHandle;
