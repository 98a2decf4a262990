//! Where components of other languages are built: the user's cache, or the folder in `HATCHERY_BUILD_CACHE`.
//!
//! ```text
//! build/sdk-HASH/          the guest SDKs and the contract, as this host has them
//! build/tools-NAME-HASH/   installed build tools; a file `ready` says that they are complete
//! build/work-HASH/         one project: what is generated for it, and its component with the key of what it was built from
//! ```
//!
//! Nothing is built anew that was built from the same files with the same tools. Builds in several processes wait for each other.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use sha2::{Digest, Sha256};

use super::sdk;
use crate::files;

/// Where components are built.
pub struct Workshop {
    folder: PathBuf,
    /// Held until the build is over.
    _lock: File,
}

impl Workshop {
    /// Opens it, and waits for builds of other processes.
    pub fn open() -> anyhow::Result<Self> {
        let folder = place(|name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute()))?;
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let path = folder.join("lock");
        let lock = File::create(&path).with_context(|| path.display().to_string())?;
        if lock.try_lock().is_err() {
            anstream::eprintln!("waiting for another `hatchery build`");
            lock.lock().with_context(|| path.display().to_string())?;
        }
        Ok(Self { folder, _lock: lock })
    }

    /// A folder that nothing of any project is in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the SDKs and the contract.
    pub fn sdk(&self) -> anyhow::Result<PathBuf> {
        let files = sdk::all();
        let texts = files.iter().copied().flatten().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]);
        sdk::unpack(&files, &self.folder.join(format!("sdk-{}", hash(texts))))
    }

    /// The folder of tools; `install` puts them there unless it has done so before. `lock` is all that decides what they are.
    pub fn tools(
        &self,
        name: &str,
        lock: &[&str],
        install: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        let folder = self.folder.join(format!("tools-{name}-{}", hash(lock.iter().map(|text| text.as_bytes()))));
        let ready = folder.join("ready");
        if !ready.is_file() {
            // What an earlier attempt has left would only confuse.
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            install(&folder)?;
            fs::write(&ready, "").with_context(|| ready.display().to_string())?;
        }
        Ok(folder)
    }

    /// What is built for the project in a folder: by `build` into the file that it is given, unless nothing has changed since it was
    /// built last. Gives nothing when `build` has said what is wrong and returns false.
    pub fn component(
        &self,
        project: &Path,
        built_with: &[&str],
        build: impl FnOnce(&Path, &Path) -> anyhow::Result<bool>,
    ) -> anyhow::Result<Option<PathBuf>> {
        let work = self.folder.join(format!("work-{}", hash([project.as_os_str().as_encoded_bytes()])));
        fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
        let (component, key_file) = (work.join("component.wasm"), work.join("key"));
        let key = key(project, built_with)?;
        if component.is_file() && fs::read_to_string(&key_file).is_ok_and(|kept| kept == key) {
            return Ok(Some(component));
        }
        let _ = fs::remove_file(&key_file);
        let _ = fs::remove_file(&component);
        if !build(&work, &component)? {
            return Ok(None);
        }
        ensure!(component.is_file(), "the build tool says that it is done, but it has made no component");
        fs::write(&key_file, key).with_context(|| key_file.display().to_string())?;
        Ok(Some(component))
    }
}

fn place(variable: impl Fn(&str) -> Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = variable("HATCHERY_BUILD_CACHE") {
        return Ok(folder);
    }
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let caches = caches.ok_or_else(|| {
        anyhow!("there is no place for build tools; set HOME, or HATCHERY_BUILD_CACHE to the absolute path of a folder")
    })?;
    Ok(caches.join("hatchery").join("build"))
}

/// Stands for all that a component is made of: the tools, and the files of its project.
fn key(project: &Path, built_with: &[&str]) -> anyhow::Result<String> {
    let mut parts: Vec<Vec<u8>> = built_with.iter().map(|text| text.as_bytes().to_vec()).collect();
    for path in files::find(project, |name| !name.ends_with(".wasm") && !name.ends_with(".pyc"))? {
        parts.push(path.as_os_str().as_encoded_bytes().to_vec());
        parts.push(fs::read(&path).with_context(|| path.display().to_string())?);
    }
    Ok(hash(parts.iter().map(Vec::as_slice)))
}

/// The begin of a SHA-256, in hexadecimal.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
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

    fn workshop(folder: &Path) -> Workshop {
        Workshop { folder: folder.to_owned(), _lock: File::create(folder.join("lock")).unwrap() }
    }

    #[test]
    fn it_is_in_the_user_s_cache_unless_told_otherwise() {
        let of = |known: &[(&str, &str)]| {
            place(|name| known.iter().find(|(variable, _)| *variable == name).map(|(_, path)| path.into()))
        };
        let all = [("HATCHERY_BUILD_CACHE", "/b"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/home/ada")];
        assert_eq!(of(&all).unwrap(), Path::new("/b"));
        assert_eq!(of(&all[1..]).unwrap(), Path::new("/c/hatchery/build"));
        assert_eq!(of(&all[2..]).unwrap(), Path::new("/home/ada/.cache/hatchery/build"));
        assert!(of(&[]).unwrap_err().to_string().contains("set HOME, or HATCHERY_BUILD_CACHE"));
    }

    #[test]
    fn tools_are_installed_once_and_again_after_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let workshop = workshop(folder.path());
        let mut installed = 0;
        assert!(workshop.tools("x", &["1"], |_| Err(anyhow!("no network"))).is_err());
        for _ in 0..2 {
            workshop
                .tools("x", &["1"], |folder| {
                    installed += 1;
                    Ok(fs::write(folder.join("tool"), "")?)
                })
                .unwrap();
        }
        assert_eq!(installed, 1);
        let other = workshop.tools("x", &["2"], |_| Ok(())).unwrap();
        assert!(!other.join("tool").exists(), "another lock is another folder");
    }

    #[test]
    fn a_component_is_built_again_when_a_file_or_a_tool_has_changed() {
        let (cache, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let workshop = workshop(cache.path());
        let mut built = 0;
        let mut build = |tools: &str, succeeds: bool| {
            let built = workshop.component(project.path(), &[tools], |_, out| {
                built += 1;
                fs::write(out, "")?;
                Ok(succeeds)
            });
            built.unwrap().is_some()
        };
        fs::write(project.path().join("app.py"), "1").unwrap();
        assert!(!build("a", false) && build("a", true) && build("a", true));
        fs::write(project.path().join("app.wasm"), "an old one").unwrap();
        assert!(build("a", true));
        fs::write(project.path().join("app.py"), "2").unwrap();
        assert!(build("a", true) && build("b", true));
        assert_eq!(built, 4);
    }
}
