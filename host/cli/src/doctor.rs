//! Looks at a served folder as a host does that starts, and says what works, what is doubtful and what does not work, with what to do about
//! it. It costs what loading the folder costs, and a few describes for each component; it changes nothing but the code cache.
//!
//! Each group of findings is a function of the [`Visit`], in a file of its own.

mod files;
mod grants;
mod host;
mod limits;
mod locked;
mod models;
mod names;
mod report;
mod settings;

use std::path::Path;
use std::sync::Arc;

use hatchery::trust::{ConfigSource, LoadedConfig};
use hatchery::{Config, ConfigError, Storage};
use hatchery_wasm::{Catalog, CatalogHandle, LoadOptions};

use crate::compiler;
use crate::host::StorageArgs;
use crate::progress::LoadProgress;
use report::{Finding, Group, Report};

/// A folder, and what a host would make of it.
struct Visit<'a> {
    folder: &'a Path,
    storage: Storage,
    config: Result<&'a Config, &'a ConfigError>,
    /// The configuration with what is withheld from it, if it can be read.
    loaded: Option<&'a LoadedConfig>,
    options: LoadOptions,
    /// The way to the catalog, for what looks things up in it.
    handle: CatalogHandle,
    catalog: Arc<Catalog>,
}

/// Examines the folder of a configuration.
pub async fn examine(source: &ConfigSource, storage: &StorageArgs) -> anyhow::Result<Report> {
    let folder = source.folder();
    let read = source.load().and_then(|loaded| {
        storage.protected_paths(source, &loaded.config).check(&loaded.config, &loaded.file).map(|()| loaded)
    });
    // With a file that cannot be read, what else there is can still be looked at.
    let config = read.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default();
    let mut options = compiler::load_options(&config, storage.code_cache(|name| std::env::var_os(name)))?;
    let progress = LoadProgress::start();
    options.progress = Some(progress.listener());
    let handle = CatalogHandle::open(folder, options.clone()).await?;
    drop(progress);
    let visit = Visit {
        folder,
        storage: storage.storage(folder),
        loaded: read.as_ref().ok(),
        config: read.as_ref().map(|loaded| &loaded.config),
        options,
        catalog: handle.current(),
        handle,
    };
    Ok(Report::new(vec![
        Group::new("host", host::findings(&visit)),
        Group::new("files", files::findings(&visit)),
        Group::new("names", names::findings(&visit.catalog)),
        Group::new("settings", settings::findings(&visit)),
        Group::new("grants", grants::findings(&visit)),
        Group::new("limits", limits::findings(&visit).await),
        Group::new("models", models::findings(&visit)),
        Group::new("registry", locked::findings(&visit).await),
    ]))
}

impl Visit<'_> {
    /// A path as people write it who are beside the folder's files.
    fn relative(&self, path: &Path) -> String {
        path.strip_prefix(self.folder).unwrap_or(path).display().to_string()
    }
}
