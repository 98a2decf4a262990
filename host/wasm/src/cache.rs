//! Compiled code on disk, so that an unchanged component loads in a millisecond instead of being compiled again.
//!
//! A file is named by the component's hash, the engine's compatibility hash and the feature set, lies in a directory that only its owner
//! can enter, and begins with the hash of the rest. Code is loaded only from bytes whose hash fits; on any doubt it is compiled anew.
//! The cache never fails: a directory that cannot be used costs a log line and time.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::engine::Engine;

/// Begins each file; the digit changes with its layout.
const MAGIC: &[u8; 8] = b"HATCHC01";

/// Bytes of the hash after the magic.
const HASH: usize = 32;

/// A directory of compiled code.
#[derive(Debug, Clone)]
pub struct CodeCache {
    directory: Option<PathBuf>,
}

/// Code and where it came from.
pub(crate) struct Code {
    pub(crate) component: Component,
    pub(crate) is_from_cache: bool,
}

impl CodeCache {
    /// A cache in `directory`, which is made if needed and closed to others; `None` compiles each time.
    pub fn new(directory: Option<PathBuf>) -> Self {
        let directory = directory.and_then(|directory| match prepare(&directory) {
            Ok(()) => Some(directory),
            Err(error) => {
                tracing::warn!("{}: no cache of compiled components: {error}", directory.display());
                None
            }
        });
        Self { directory }
    }

    /// The compiled form of `bytes`, whose SHA-256 is `sha256`. Takes some 70 ms per 100 KB when it has to compile: not for async threads.
    ///
    /// # Errors
    /// When the bytes do not compile.
    pub(crate) fn load(&self, engine: &Engine, sha256: &str, bytes: &[u8]) -> wasmtime::Result<Code> {
        let Some(directory) = &self.directory else {
            return Ok(Code { component: Component::new(engine.wasm(), bytes)?, is_from_cache: false });
        };
        let path = directory.join(file_name(engine, sha256));
        if let Some(component) = read(engine, &path) {
            return Ok(Code { component, is_from_cache: true });
        }
        let component = Component::new(engine.wasm(), bytes)?;
        if let Err(error) = component.serialize().map_err(io::Error::other).and_then(|code| write(&path, &code)) {
            tracing::warn!("{}: compiled code is not kept: {error}", path.display());
        }
        Ok(Code { component, is_from_cache: false })
    }
}

/// Hexadecimal SHA-256.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn file_name(engine: &Engine, sha256: &str) -> String {
    let mut hasher = DefaultHasher::new();
    engine.wasm().precompile_compatibility_hash().hash(&mut hasher);
    format!("{sha256}-{:016x}-{:x}.cwasm", hasher.finish(), Engine::features())
}

/// The code in a file, if it is whole and was written by this engine.
fn read(engine: &Engine, path: &Path) -> Option<Component> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!("{}: cannot be read, so the component is compiled: {error}", path.display());
            return None;
        }
    };
    let Some(code) = checked(&bytes) else {
        tracing::warn!("{}: is damaged, so the component is compiled again", path.display());
        return None;
    };
    // SAFETY: the bytes are those that `write` got from `Component::serialize`: the hash in front of them says so, the directory can be
    // written by its owner only, and the same bytes are checked and loaded, so nothing can be swapped in between. wasmtime itself
    // refuses code of another version or configuration.
    match unsafe { Component::deserialize(engine.wasm(), code) } {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::warn!("{}: does not fit, so the component is compiled again: {error:#}", path.display());
            None
        }
    }
}

/// The code after a header that fits it.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (hash, code) = bytes.strip_prefix(MAGIC)?.split_at_checked(HASH)?;
    (Sha256::digest(code)[..] == *hash).then_some(code)
}

/// Writes to a file of its own, then renames it, so that no reader sees half of it.
fn write(path: &Path, code: &[u8]) -> io::Result<()> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let temporary =
        path.with_extension(format!("{}-{}.tmp", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(MAGIC)?;
        file.write_all(&Sha256::digest(code))?;
        file.write_all(code)?;
        file.sync_data()
    });
    written.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        // Nothing more can be done about a file that cannot be removed either.
        let _ = fs::remove_file(&temporary);
    })
}

fn prepare(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    close(directory)
}

/// Only the owner may enter; fails when the directory belongs to somebody else.
#[cfg(unix)]
fn close(directory: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn close(_: &Path) -> io::Result<()> {
    Ok(())
}
