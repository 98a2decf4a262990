//! The checks of `hatchery doctor`: loads a folder like a host and reports findings with their severity and how to fix
//! it. Costs as much as loading the folder, plus a few test loads per component. Changes nothing but the code cache.
//!
//! Each check is a function of the [`Diagnosis`] in its own file.

mod config;
mod files;
mod grants;
mod host;
mod limits;
mod lock_file;
mod models;
mod names;
mod report;

use std::path::Path;
use std::sync::Arc;

use hatchery::trust::{ConfigSource, LoadedConfig};
use hatchery::{Config, ConfigError, HostError, NAMES_FILE, Storage};
use hatchery_wasm::{Catalog, CatalogHandle, LoadOptions};

use crate::compiler;
use crate::host::StorageArgs;
use crate::progress::LoadProgress;
use report::{CheckResults, Finding, Report};

/// The loaded folder that the checks examine.
struct Diagnosis<'a> {
    folder: &'a Path,
    storage: Storage,
    config: Result<&'a Config, &'a ConfigError>,
    /// The configuration and its trust status. `None` if it is invalid.
    loaded_config: Option<&'a LoadedConfig>,
    /// Why the items of the configuration, such as toolsets, cannot all be used. `None` if they can.
    items_error: Option<HostError>,
    options: LoadOptions,
    catalog_handle: CatalogHandle,
    catalog: Arc<Catalog>,
}

/// Loads a folder and runs all checks.
pub async fn diagnose(source: &ConfigSource, storage: &StorageArgs) -> anyhow::Result<Report> {
    let folder = source.folder();
    let loaded_config = source.load().and_then(|loaded| {
        storage.protected_paths(source, &loaded.config).check(&loaded.config, &loaded.file).map(|()| loaded)
    });
    // The other checks run with the default configuration if the file is invalid.
    let config = loaded_config.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default();
    let mut options = compiler::load_options(&config, storage.code_cache(|name| std::env::var_os(name)))?;
    if let Storage::Directory(data) = storage.storage(folder) {
        options.names_file = Some(data.join(NAMES_FILE));
        options.stores_names = false;
    }
    let items_error = hatchery::add_configured_items(&mut options, &config, folder).err();
    let progress = LoadProgress::start();
    options.progress = Some(progress.listener());
    let catalog_handle = CatalogHandle::open(folder, options.clone()).await?;
    drop(progress);
    let diagnosis = Diagnosis {
        folder,
        storage: storage.storage(folder),
        loaded_config: loaded_config.as_ref().ok(),
        config: loaded_config.as_ref().map(|loaded| &loaded.config),
        items_error,
        options,
        catalog: catalog_handle.current(),
        catalog_handle,
    };
    Ok(Report::new(vec![
        CheckResults::new("host", host::check(&diagnosis).await),
        CheckResults::new("files", files::check(&diagnosis)),
        CheckResults::new("names", names::check(&diagnosis.catalog)),
        CheckResults::new("configuration", config::check(&diagnosis)),
        CheckResults::new("grants", grants::check(&diagnosis)),
        CheckResults::new("limits", limits::check(&diagnosis).await),
        CheckResults::new("models", models::check(&diagnosis)),
        CheckResults::new("lock file", lock_file::check(&diagnosis).await),
    ]))
}

impl Diagnosis<'_> {
    /// Returns a path relative to the folder.
    fn relative_path(&self, path: &Path) -> String {
        path.strip_prefix(self.folder).unwrap_or(path).display().to_string()
    }
}
