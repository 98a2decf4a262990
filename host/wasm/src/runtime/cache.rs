//! Code cache: compiled components on disk, so that an unchanged component loads in a millisecond instead of being
//! compiled again.
//!
//! Compiled code is native code: anyone who can make the host load some controls the host. So the cache is a
//! directory that only its owner can enter. Each file ends with a keyed hash (HMAC) of its name and code, and the
//! random key is in its own file. Code is loaded only if the hash matches; in doubt (a link, another owner, a
//! damaged file) the component is compiled again. The cache never fails: a directory that cannot be used costs a log
//! line and time.
//!
//! Code is mapped, not read into memory: pages that no call uses take none, and all hosts share the others. So a file
//! is never changed in place, only replaced.

mod directory;
mod key;

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::runtime::engine::Engine;
use directory::CacheDirectory;
use key::{FileHash, Key, MAC};

/// Follows the code in each file, before the keyed hash. The digits change with the layout.
const MAGIC: &[u8; 8] = b"HATCHC03";

/// Bytes after the code.
const TRAILER: usize = MAGIC.len() + MAC;

/// Bytes that are read at a time to check a file.
const CHUNK: usize = 256 << 10;

/// File extension of compiled code.
const EXTENSION: &str = "cwasm";

#[derive(Debug, Clone)]
pub struct CodeCache(Inner);

#[derive(Debug, Clone)]
enum Inner {
    Off,
    Unusable { directory: PathBuf, reason: String },
    Open(CacheDirectory),
}

/// State of a [`CodeCache`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheState {
    /// No cache: components are compiled each time they are loaded.
    Off,
    /// The directory cannot be used, with the same effect as `Off`.
    Unusable { directory: PathBuf, reason: String },
    /// Compiled code is cached.
    Open {
        directory: PathBuf,
        /// Number of files.
        files: usize,
        /// Size of all files, bytes.
        bytes: u64,
    },
}

impl CodeCache {
    /// Opens the cache in `directory`, which is created if needed and closed to other users. `None`, a link and a
    /// directory of another user mean that components are compiled each time.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let Some(directory) = directory else { return Self(Inner::Off) };
        Self(match CacheDirectory::open(&directory) {
            Ok(directory) => Inner::Open(directory),
            Err(error) => {
                tracing::warn!("{}: no cache of compiled components: {error}", directory.display());
                Inner::Unusable { directory, reason: error.to_string() }
            }
        })
    }

    /// Returns the state of the cache. Blocking: reads the metadata of each file.
    pub fn state(&self) -> CacheState {
        let directory = match &self.0 {
            Inner::Off => return CacheState::Off,
            Inner::Unusable { directory, reason } => {
                return CacheState::Unusable { directory: directory.clone(), reason: reason.clone() };
            }
            Inner::Open(directory) => directory,
        };
        let entries = fs::read_dir(directory.as_path()).into_iter().flatten().filter_map(Result::ok);
        let code = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == EXTENSION));
        let sizes: Vec<u64> = code.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect();
        CacheState::Open { directory: directory.as_path().into(), files: sizes.len(), bytes: sizes.iter().sum() }
    }

    /// Returns the code of the component with this SHA-256; `None` if there is none that can be used. Blocking: reads
    /// a file.
    pub(crate) fn get(&self, engine: &Engine, sha256: &str) -> Option<Component> {
        match &self.0 {
            Inner::Off | Inner::Unusable { .. } => None,
            Inner::Open(directory) => read(engine, directory, &file_name(engine, sha256)),
        }
    }

    /// Stores the code compiled from the component with this SHA-256. Blocking: writes a file.
    ///
    /// # Errors
    /// The reason, if it cannot be stored.
    pub(crate) fn put(&self, engine: &Engine, sha256: &str, code: &[u8]) -> Result<(), String> {
        let directory = match &self.0 {
            Inner::Off => return Err("there is no cache".into()),
            Inner::Unusable { reason, .. } => return Err(reason.clone()),
            Inner::Open(directory) => directory,
        };
        let name = file_name(engine, sha256);
        write(directory, &name, code)
            .map_err(|error| format!("{}: {error}", directory.file(&name).display()))
            .inspect_err(|reason| tracing::warn!("compiled code is not cached: {reason}"))
    }
}

/// Loads code that was just compiled for this engine.
///
/// # Errors
/// If it was compiled for another version or configuration of Wasmtime.
pub(crate) fn load_compiled(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are the result of `Engine::precompile_component` in this process, or in a child process that
    // this process has started and is connected to by pipes. They are as trustworthy as the compiler. Wasmtime
    // refuses code of another configuration.
    unsafe { Component::deserialize(engine.wasm(), code) }
}

/// Returns the hexadecimal SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hexadecimal SHA-256 of a file.
///
/// # Errors
/// If it cannot be read.
pub fn file_sha256(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| sha256(&bytes))
}

/// Returns a name that is unique per component and engine configuration.
fn file_name(engine: &Engine, sha256: &str) -> String {
    let mut hasher = DefaultHasher::new();
    engine.wasm().precompile_compatibility_hash().hash(&mut hasher);
    format!("{sha256}-{:016x}-{:x}.{EXTENSION}", hasher.finish(), Engine::features())
}

/// Maps the code in a file, if the file is complete and was written by this cache for this component and engine.
fn read(engine: &Engine, directory: &CacheDirectory, name: &str) -> Option<Component> {
    let path = directory.file(name);
    match directory.open_file(name).and_then(|file| verify(&directory.key, name, file)) {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!("{}: is damaged or not from this cache, so the component is compiled again", path.display());
            return None;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{}: cannot be used, so the component is compiled: {error}", path.display());
            return None;
        }
    }
    // SAFETY: the file was written by `write` with code that this host compiled for this component and engine. The
    // keyed hash proves it, and only the owner of the directory can read the key, or replace the file after the check.
    // Files are never changed in place. Wasmtime ignores bytes after the code, and refuses code of another version or
    // configuration.
    match unsafe { Component::deserialize_file(engine.wasm(), &path) } {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::warn!("{}: does not fit, so the component is compiled again: {error:#}", path.display());
            None
        }
    }
}

/// Returns true if the end of the file fits its name and the code before it.
fn verify(key: &Key, name: &str, mut file: File) -> io::Result<bool> {
    let Some(code) = file.metadata()?.len().checked_sub(TRAILER as u64) else { return Ok(false) };
    let mut hash = key.hash(name);
    io::copy(&mut BufReader::with_capacity(CHUNK, (&mut file).take(code)), &mut HashWriter(&mut hash))?;
    let mut trailer = Vec::with_capacity(TRAILER);
    file.read_to_end(&mut trailer)?;
    Ok(trailer.strip_prefix(MAGIC).is_some_and(|mac| hash.verify(mac)))
}

/// Writer that feeds a hash.
struct HashWriter<'a>(&'a mut FileHash);

impl Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a temporary file, then renames it, so that no reader sees a partial file.
fn write(directory: &CacheDirectory, name: &str, code: &[u8]) -> io::Result<()> {
    let (temporary, mut file) = directory.create_temporary()?;
    let mut write_all = || {
        let mut hash = directory.key.hash(name);
        hash.update(code);
        file.write_all(code)?;
        file.write_all(MAGIC)?;
        file.write_all(&hash.finish())?;
        file.sync_data()?;
        fs::rename(&temporary, directory.file(name))
    };
    let result = write_all();
    clean_up(&temporary, result)
}

/// Removes a temporary file if `result` is an error.
fn clean_up<T>(temporary: &Path, result: io::Result<T>) -> io::Result<T> {
    result.inspect_err(|_| {
        // A file that cannot be removed is removed later, by `remove_abandoned`.
        let _ = fs::remove_file(temporary);
    })
}
