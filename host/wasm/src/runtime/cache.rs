//! Compiled code on disk, so that an unchanged component loads in a millisecond instead of being compiled again.
//!
//! Compiled code is native code: whoever can make the host load some owns the host. So the cache lies in a directory that only its owner
//! can enter, each file begins with a keyed hash of what it is for and of its code, and the random key is in a file of its own. Code is
//! loaded only when that hash fits; on any doubt (a link, another owner, a damaged file) it is compiled anew. The cache never fails: a
//! directory that cannot be used costs a log line and time.

mod key;
mod place;

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::runtime::engine::Engine;
use key::{Key, MAC};
use place::Place;

/// Begins each file; the digit changes with its layout.
const MAGIC: &[u8; 8] = b"HATCHC02";

/// How the name of a file of code ends.
const EXTENSION: &str = "cwasm";

/// A directory of compiled code.
#[derive(Debug, Clone)]
pub struct CodeCache(Inner);

#[derive(Debug, Clone)]
enum Inner {
    Off,
    Unusable { directory: PathBuf, reason: String },
    Open(Place),
}

/// How a cache is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheState {
    /// There is none: components are compiled each time that they are loaded.
    Off,
    /// Its directory cannot be used, with the same effect.
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// Why.
        reason: String,
    },
    /// It keeps what is compiled.
    Open {
        /// The directory.
        directory: PathBuf,
        /// How many files of code it has.
        files: usize,
        /// Their bytes.
        bytes: u64,
    },
}

impl CodeCache {
    /// A cache in `directory`, which is made if needed and closed to others; `None` compiles each time. So does a directory that is a
    /// link or that belongs to somebody else.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let Some(directory) = directory else { return Self(Inner::Off) };
        Self(match Place::open(&directory) {
            Ok(place) => Inner::Open(place),
            Err(error) => {
                tracing::warn!("{}: no cache of compiled components: {error}", directory.display());
                Inner::Unusable { directory, reason: error.to_string() }
            }
        })
    }

    /// How it is now. Looks at each of its files: not for async threads.
    pub fn state(&self) -> CacheState {
        let place = match &self.0 {
            Inner::Off => return CacheState::Off,
            Inner::Unusable { directory, reason } => {
                return CacheState::Unusable { directory: directory.clone(), reason: reason.clone() };
            }
            Inner::Open(place) => place,
        };
        let entries = fs::read_dir(place.directory()).into_iter().flatten().filter_map(Result::ok);
        let code = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == EXTENSION));
        let sizes: Vec<u64> = code.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect();
        CacheState::Open { directory: place.directory().into(), files: sizes.len(), bytes: sizes.iter().sum() }
    }

    /// Returns the code of the component with this SHA-256, or `None` if there is none that can be used. Reads a file: not for async
    /// threads.
    pub(crate) fn get(&self, engine: &Engine, sha256: &str) -> Option<Component> {
        match &self.0 {
            Inner::Off | Inner::Unusable { .. } => None,
            Inner::Open(place) => read(engine, place, &file_name(engine, sha256)),
        }
    }

    /// Keeps code that was just compiled from the component with this SHA-256. Writes a file: not for async threads.
    ///
    /// # Errors
    /// When it cannot be kept, with the reason.
    pub(crate) fn put(&self, engine: &Engine, sha256: &str, code: &[u8]) -> Result<(), String> {
        let place = match &self.0 {
            Inner::Off => return Err("there is no cache".into()),
            Inner::Unusable { reason, .. } => return Err(reason.clone()),
            Inner::Open(place) => place,
        };
        let name = file_name(engine, sha256);
        write(place, &name, code)
            .map_err(|error| format!("{}: {error}", place.path(&name).display()))
            .inspect_err(|reason| tracing::warn!("compiled code is not kept: {reason}"))
    }
}

/// Loads code that was just compiled for this engine.
///
/// # Errors
/// When it was compiled for another version or configuration of wasmtime.
pub(crate) fn load_compiled(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: the bytes are the result of `Engine::precompile_component` in this process, or in a child process that this process has
    // started and connected to by pipes. They are as trustworthy as the compiler. wasmtime refuses code of another configuration.
    unsafe { Component::deserialize(engine.wasm(), code) }
}

/// Hexadecimal SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same of a file.
///
/// # Errors
/// When it cannot be read.
pub fn file_sha256(path: &Path) -> io::Result<String> {
    fs::read(path).map(|bytes| sha256(&bytes))
}

/// Says which component and which engine the code is for.
fn file_name(engine: &Engine, sha256: &str) -> String {
    let mut hasher = DefaultHasher::new();
    engine.wasm().precompile_compatibility_hash().hash(&mut hasher);
    format!("{sha256}-{:016x}-{:x}.{EXTENSION}", hasher.finish(), Engine::features())
}

/// The code in a file, if it is whole and was written by this cache for this component and engine.
fn read(engine: &Engine, place: &Place, name: &str) -> Option<Component> {
    let path = place.path(name);
    let bytes = match place.read(name) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{}: cannot be used, so the component is compiled: {error}", path.display());
            return None;
        }
    };
    let Some(code) = checked(&place.key, name, &bytes) else {
        tracing::warn!("{}: is damaged or not from this cache, so the component is compiled again", path.display());
        return None;
    };
    // SAFETY: the bytes are those that `write` got from this host's compiler for this component and engine: the keyed hash in front of
    // them says so, and only the owner of the directory can read the key. The same bytes are checked and loaded, so nothing can be
    // swapped in between. wasmtime itself refuses code of another version or configuration.
    match unsafe { Component::deserialize(engine.wasm(), code) } {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::warn!("{}: does not fit, so the component is compiled again: {error:#}", path.display());
            None
        }
    }
}

/// The code after a header that fits it and the file's name.
fn checked<'a>(key: &Key, name: &str, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (mac, code) = bytes.strip_prefix(MAGIC)?.split_at_checked(MAC)?;
    key.fits(&[name.as_bytes(), code], mac).then_some(code)
}

/// Writes to a file of its own, then renames it, so that no reader sees half of it.
fn write(place: &Place, name: &str, code: &[u8]) -> io::Result<()> {
    let (temporary, mut file) = place.create_temporary()?;
    let mut written = || {
        file.write_all(MAGIC)?;
        file.write_all(&place.key.mac(&[name.as_bytes(), code]))?;
        file.write_all(code)?;
        file.sync_data()?;
        fs::rename(&temporary, place.path(name))
    };
    let result = written();
    clean_up(&temporary, result)
}

/// Removes a temporary file whose use has failed.
fn clean_up<T>(temporary: &Path, result: io::Result<T>) -> io::Result<T> {
    result.inspect_err(|_| {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = fs::remove_file(temporary);
    })
}
