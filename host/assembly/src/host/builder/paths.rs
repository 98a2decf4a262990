//! Folders and files of the host itself: the code cache, and the paths that no grant may cover.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::host_key;
use crate::storage::{DATA_FOLDER, Storage};
use crate::trust::{ConfigSource, ProtectedPaths};

const DATA_PURPOSE: &str = "the data folder of the host";

/// Returns the default folder for compiled code: `hatchery/code` in the user's cache folder. It is not in the served
/// folder, since everyone who can write to the cache can make the host execute native code. `None` if there is no cache
/// folder.
pub fn user_code_cache(environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(caches.join("hatchery").join("code"))
}

/// Returns the paths of the host that no grant may cover.
pub fn protected_paths(
    source: Option<&ConfigSource>,
    storage: &Storage,
    code_cache: Option<&Path>,
    config: &Config,
) -> ProtectedPaths {
    let mut paths = ProtectedPaths::default().with_services(config);
    if let Some(source) = source {
        paths = paths.private(DATA_PURPOSE, source.folder().join(DATA_FOLDER));
    }
    if let Storage::Directory(data) = storage {
        paths = paths.private(DATA_PURPOSE, data);
    }
    if let Some(file) = std::env::var_os(host_key::SECRET_FILE) {
        paths = paths.private("the key of the host", file);
    }
    if let Some(cache) = code_cache {
        paths = paths.private("the cache of compiled code and its key", cache);
    }
    match source.and_then(ConfigSource::store).and_then(|store| store.file().parent()) {
        Some(folder) => paths.read_only("the list of trusted folders", folder),
        None => paths,
    }
}
