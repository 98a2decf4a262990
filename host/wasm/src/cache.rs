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

use crate::engine::Engine;
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

/// Code and where it came from.
pub(crate) struct Code {
    pub(crate) component: Component,
    pub(crate) is_from_cache: bool,
    /// Why it is not in the cache for the next time.
    pub(crate) not_kept: Option<String>,
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

    /// The compiled form of `bytes`, whose SHA-256 is `sha256`. Takes some 70 ms per 100 KB when it has to compile: not for async threads.
    ///
    /// # Errors
    /// When the bytes do not compile.
    pub(crate) fn load(&self, engine: &Engine, sha256: &str, bytes: &[u8]) -> wasmtime::Result<Code> {
        let compiled = |not_kept| move |component| Code { component, is_from_cache: false, not_kept };
        let place = match &self.0 {
            Inner::Off => return Component::new(engine.wasm(), bytes).map(compiled(Some("there is no cache".into()))),
            Inner::Unusable { reason, .. } => {
                return Component::new(engine.wasm(), bytes).map(compiled(Some(reason.clone())));
            }
            Inner::Open(place) => place,
        };
        let name = file_name(engine, sha256);
        if let Some(component) = read(engine, place, &name) {
            return Ok(Code { component, is_from_cache: true, not_kept: None });
        }
        let component = Component::new(engine.wasm(), bytes)?;
        let kept = component.serialize().map_err(io::Error::other).and_then(|code| write(place, &name, &code));
        let not_kept = kept.err().map(|error| format!("{}: {error}", place.path(&name).display()));
        if let Some(reason) = &not_kept {
            tracing::warn!("compiled code is not kept: {reason}");
        }
        Ok(Code { component, is_from_cache: false, not_kept })
    }
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
    // SAFETY: the bytes are those that `write` got from `Component::serialize` for this component and engine: the keyed hash in front of
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
