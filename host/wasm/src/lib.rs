//! Loads WebAssembly components and offers what is in them: agents, tools, callbacks, plugins, code executors, summarizers, examples and
//! models.
//!
//! Read it in this order: [`engine`] and [`limits`] (what guests run in), [`component`] (one loaded revision, and how its exports become
//! the traits of `hatchery-core`), `imports` (what a guest can ask for), [`catalog`] (everything that is loaded) and [`watch`] (how that
//! changes while it serves).
//!
//! A call of a tool, a callback and so on costs a fresh instance, some 20 µs, unless the operator has instances kept; so does an agent's
//! run, and a model's answer. Nothing a guest does reaches another call: crashes, loops and floods end as errors that name the component
//! and, for limits, the setting that raises it. What a guest may do beyond computing, the operator grants: [`policy`].

pub mod catalog;
mod contract;
pub mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod policy;
mod runtime;

pub use cache::{CacheState, CodeCache, file_sha256};
pub use catalog::draining::DrainingRevision;
pub use catalog::revisions::{Revisions, StoredRevision, component_files, write_atomically};
pub use catalog::{Catalog, FileState, FileStatus};
pub use catalog::{inspect, loader, models, settings, watch};
pub use compile::{CompileLimits, Compiler, Worker};
pub use component::{Component, Hook};
pub use contract::{component, version};
pub use engine::{Engine, EngineOptions};
pub use error::LoadError;
pub use inspect::{Inspection, inspect, inspect_file};
pub use limits::{LimitOverrides, Limits};
pub use loader::{LoadOptions, LoadPolicy, Precompiled, Progress, precompile};
pub use models::CatalogModels;
pub use policy::{
    GrantReport, Grants, HostPattern, PathConflict, PrivateEntry, ProtectedPath, Secret, check_readable_folders,
    check_writable_folders,
};
pub use runtime::http::{RecordedHttp, RecordedResponse};
pub use runtime::{cache, compile, engine, limits, requirements};
pub use settings::{ComponentSettings, DeterministicMode, EngineSettings, HotReload, Settings, Warm};
pub use watch::CatalogHandle;
