//! The cache of builds, in the user's cache folder or `HATCHERY_BUILD_CACHE`.
//!
//! ```text
//! build/sdk-HASH/          the contract and the embedded guest SDKs for Python and JavaScript
//! build/sdk-rust-HASH/     the embedded crate hatchery-guest
//! build/rust-target/       cargo's target folder of components in Rust, so that each dependency is compiled once
//! build/tools-NAME-HASH/   installed build tools; complete if there is a file `ready`
//! build/tools-interpreter-LANGUAGE-HASH/  the interpreter of components in development
//! build/work-HASH/         one project in Python or JavaScript: generated files, the component, and a hash of its sources and tools
//! ```
//!
//! A component is built again only if its sources or the tools have changed. A file lock serializes builds of several
//! processes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use sha2::{Digest, Sha256};

use super::sdk;
use crate::files;

/// The tools whose builds wait for each other.
#[derive(Debug, Clone, Copy)]
pub enum BuildTools {
    Cargo,
    /// Those for Python and JavaScript.
    Scripting,
}

pub struct BuildCache {
    folder: PathBuf,
    /// The lock on the cache, released on drop.
    _lock: File,
}

impl BuildCache {
    /// Opens the cache for builds with some tools. Waits until other processes have finished theirs.
    pub fn open(tools: BuildTools) -> anyhow::Result<Self> {
        let folder = find_folder(|name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute()))?;
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let path = folder.join(match tools {
            BuildTools::Cargo => "cargo.lock",
            BuildTools::Scripting => "lock",
        });
        let lock = File::create(&path).with_context(|| path.display().to_string())?;
        if lock.try_lock().is_err() {
            anstream::eprintln!("waiting for another `hatchery build`");
            lock.lock().with_context(|| path.display().to_string())?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// Returns the folder of the cache. It contains no files of projects, so programs can be started there safely.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the folder of the contract and of the SDKs for Python and JavaScript. Writes them if necessary.
    pub fn unpack_sdk(&self) -> anyhow::Result<PathBuf> {
        self.unpack("sdk", &sdk::scripting_files())
    }

    /// Returns the folder of the crate `hatchery-guest`. Writes it if necessary.
    pub fn unpack_rust_sdk(&self) -> anyhow::Result<PathBuf> {
        Ok(self.unpack("sdk-rust", &[sdk::RUST])?.join("rust"))
    }

    fn unpack(&self, name: &str, files: &[&[sdk::EmbeddedFile]]) -> anyhow::Result<PathBuf> {
        let texts = files.iter().copied().flatten().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        sdk::unpack(files, &self.folder.join(format!("{name}-{}", hash(texts))))
    }

    /// Returns the target folder that components in Rust share.
    pub fn rust_target(&self) -> PathBuf {
        self.folder.join("rust-target")
    }

    /// Returns the folder of build tools. Calls `install` with it if they are not installed. `versions` identifies the
    /// tools.
    pub fn install_tools(
        &self,
        name: &str,
        versions: &[&str],
        install: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join(format!("tools-{name}-{}", hash(versions.iter().map(|text| text.as_bytes()))));
        let ready = folder.join("ready");
        if !ready.is_file() {
            // An earlier installation may have failed halfway.
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            install(&folder)?;
            fs::write(&ready, "").with_context(|| ready.display().to_string())?;
        }
        Ok(folder)
    }

    /// Returns the working folder of a project.
    pub fn work_folder(&self, project: &Path) -> anyhow::Result<PathBuf> {
        let work = self.folder.join(format!("work-{}", hash([project.as_os_str().as_encoded_bytes()])));
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        Ok(work)
    }

    /// Returns the component of a project. If its sources or `tools` have changed, calls `build` with a working folder
    /// and the file to create. `None` if `build` returns false, after it has printed the error.
    pub fn build_component(
        &self,
        project: &Path,
        tools: &[&str],
        build: impl FnOnce(&Path, &Path) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<PathBuf>> {
        let work = self.work_folder(project)?;
        let (component, key_file) = (work.join("component.wasm"), work.join("key"));
        let key = hash_inputs(project, tools)?;
        if component.is_file() && fs::read_to_string(&key_file).is_ok_and(|stored| stored == key) {
            return Ok(Some(component));
        }
        let _ = fs::remove_file(&key_file);
        let _ = fs::remove_file(&component);
        if !build(&work, &component)? {
            return Ok(None);
        }
        ensure!(component.is_file(), "the build tool succeeded but created no component; run `hatchery build` again");
        fs::write(&key_file, key).with_context(|| key_file.display().to_string())?;
        Ok(Some(component))
    }
}

/// Returns the folder of the cache.
fn find_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = variable("HATCHERY_BUILD_CACHE") {
        return Ok(folder);
    }
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let caches = caches.ok_or_else(|| {
        anyhow!("no folder for build tools; set HOME, or set HATCHERY_BUILD_CACHE to an absolute path")
    })?;
    Ok(caches.join("hatchery").join("build"))
}

/// Hashes the tools and the files of a project.
fn hash_inputs(project: &Path, tools: &[&str]) -> anyhow::Result<String> {
    let mut parts: Vec<Vec<u8>> = tools.iter().map(|text| text.as_bytes().to_vec()).collect();
    for path in files::find(project, |name| !name.ends_with(".wasm") && !name.ends_with(".pyc"))? {
        parts.push(path.as_os_str().as_encoded_bytes().to_vec());
        parts.push(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(hash(parts.iter().map(Vec::as_slice)))
}

/// Returns the first 10 bytes of a SHA-256, in hexadecimal.
pub fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_cache(folder: &Path) -> BuildCache {
        BuildCache { folder: folder.to_owned(), _lock: File::create(folder.join("lock")).unwrap() }
    }

    #[test]
    fn the_cache_is_in_the_users_cache_folder_by_default() {
        let folder = |known: &[(&str, &str)]| {
            find_folder(|name| known.iter().find(|(variable, _)| *variable == name).map(|(_, path)| path.into()))
        };
        let all = [("HATCHERY_BUILD_CACHE", "/b"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/home/ada")];
        assert_eq!(folder(&all).unwrap(), Path::new("/b"));
        assert_eq!(folder(&all[1..]).unwrap(), Path::new("/c/hatchery/build"));
        assert_eq!(folder(&all[2..]).unwrap(), Path::new("/home/ada/.cache/hatchery/build"));
        assert!(folder(&[]).unwrap_err().to_string().contains("set HOME, or set HATCHERY_BUILD_CACHE"));
    }

    #[test]
    fn tools_are_installed_once_and_again_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let cache = build_cache(folder.path());
        let mut installations = 0;
        assert!(cache.install_tools("x", &["1"], |_| Err(anyhow!("no network"))).is_err());
        for _ in 0..2 {
            cache
                .install_tools("x", &["1"], |folder| {
                    installations += 1;
                    Ok(fs::write(folder.join("tool"), "")?)
                })
                .unwrap();
        }
        assert_eq!(installations, 1);
        let other = cache.install_tools("x", &["2"], |_| Ok(())).unwrap();
        assert!(!other.join("tool").exists(), "other versions have another folder");
    }

    #[test]
    fn a_component_is_built_again_when_a_file_or_a_tool_has_changed() {
        let (folder, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let cache = build_cache(folder.path());
        let mut builds = 0;
        let mut build = |tools: &str, succeeds: bool| {
            let component = cache.build_component(project.path(), &[tools], |_, out| {
                builds += 1;
                fs::write(out, "")?;
                Ok(succeeds)
            });
            component.unwrap().is_some()
        };
        fs::write(project.path().join("app.py"), "1").unwrap();
        assert!(!build("a", false) && build("a", true) && build("a", true));
        fs::write(project.path().join("app.wasm"), "an old one").unwrap();
        assert!(build("a", true));
        fs::write(project.path().join("app.py"), "2").unwrap();
        assert!(build("a", true) && build("b", true));
        assert_eq!(builds, 4);
    }
}
