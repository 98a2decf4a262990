//! Loads one component file, or only compiles it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::task::{JoinError, JoinHandle};

use super::{LoadOptions, Progress};
use crate::cache::{Code, sha256};
use crate::component::Component;
use crate::error::LoadError;
use crate::policy::Requests;
use crate::version::Contract;

/// Most bytes of a component's file.
const MAX_FILE: u64 = 256 << 20;

/// What loading a file gave.
pub(crate) enum Loaded {
    /// The bytes are those that serve already.
    Unchanged,
    /// A component.
    Component {
        /// Ready to run.
        component: Arc<Component>,
        /// True when it did not have to be compiled.
        is_from_cache: bool,
    },
}

/// Reads, checks, compiles and describes the component in a file, unless its hash is `current`.
///
/// # Errors
/// When any of that fails; the message says what to do.
pub(crate) async fn load(
    options: &LoadOptions,
    name: &str,
    path: &Path,
    current: Option<&str>,
) -> Result<Loaded, LoadError> {
    check_name(name, path)?;
    let bytes = admit(options, path, read(path).await?).await?;
    let hash = sha256(&bytes);
    if current == Some(hash.as_str()) {
        return Ok(Loaded::Unchanged);
    }
    let (component, is_from_cache) = load_bytes(options, name, bytes.clone(), hash.clone()).await?;
    if let Some(revisions) = options.revisions.clone() {
        let name = name.to_owned();
        let kept = tokio::task::spawn_blocking(move || revisions.keep(&name, &hash, &bytes)).await;
        if let Err(error) = kept {
            tracing::error!("{}: keeping a copy broke off: {error}", path.display());
        }
    }
    Ok(Loaded::Component { component, is_from_cache })
}

/// A component whose code is in the cache.
#[derive(Debug, Clone)]
pub struct Precompiled {
    /// Its name.
    pub name: String,
    /// Bytes of its file.
    pub size: u64,
    /// True when it had been compiled before.
    pub is_from_cache: bool,
    /// How long that took, reading included.
    pub took: Duration,
}

/// Puts the code of the component in a file into the cache, where a host with the same settings will find it. It is checked as it would be
/// for being loaded, but nothing of it runs.
///
/// # Errors
/// When it would not be loaded, or its code cannot be kept.
pub async fn precompile(options: &LoadOptions, path: &Path) -> Result<Precompiled, LoadError> {
    let began = Instant::now();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    check_name(&name, path)?;
    let bytes = admit(options, path, read(path).await?).await?;
    Contract::read(&name, &bytes)?;
    let (size, hash) = (bytes.len() as u64, sha256(&bytes));
    let code = compile(options, &name, bytes, hash).await?;
    match code.not_kept {
        Some(reason) => Err(LoadError::NotKept { component: name, reason }),
        None => Ok(Precompiled { name, size, is_from_cache: code.is_from_cache, took: began.elapsed() }),
    }
}

fn check_name(name: &str, path: &Path) -> Result<(), LoadError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(is_plain) {
        let reason = "a component's name may hold only letters, digits, `_`, `-` and `.`";
        return Err(LoadError::BadFileName { path: path.into(), reason });
    }
    Ok(())
}

/// The bytes of a file, unless they are too many to be looked at.
async fn read(path: &Path) -> Result<Bytes, LoadError> {
    let failed = |source| LoadError::Read { path: path.into(), source };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let size = file.metadata().await.map_err(failed)?.len();
    let mut bytes = Vec::new();
    if size <= MAX_FILE {
        // It may have grown.
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > MAX_FILE {
        return Err(LoadError::TooLarge { path: path.into(), size, most: MAX_FILE });
    }
    Ok(bytes.into())
}

/// The same bytes, if they may be loaded.
async fn admit(options: &LoadOptions, path: &Path, bytes: Bytes) -> Result<Bytes, LoadError> {
    let Some(admission) = options.admission.clone() else { return Ok(bytes) };
    let file = path.to_owned();
    let asked = tokio::task::spawn_blocking(move || admission(&file, &bytes).map(|()| bytes)).await;
    asked
        .map_err(|error| LoadError::BrokeOff { path: path.into(), reason: error.to_string() })?
        .map_err(LoadError::NotAdmitted)
}

/// Checks, compiles and describes the component in `bytes`, whose SHA-256 is `hash`. Also says whether its code was in the cache.
pub(crate) async fn load_bytes(
    options: &LoadOptions,
    name: &str,
    bytes: Bytes,
    hash: String,
) -> Result<(Arc<Component>, bool), LoadError> {
    let contract = Contract::read(name, &bytes)?;
    let requests = Requests::read(name, &bytes)?;
    let Code { component: code, is_from_cache, .. } = compile(options, name, bytes, hash.clone()).await?;
    let settings = options.settings.of(name);
    let component =
        Component::describe(options.engine.clone(), name, hash, contract, requests, &code, settings).await?;
    Ok((Arc::new(component), is_from_cache))
}

/// Compiles a component, or takes its code from the cache.
async fn compile(options: &LoadOptions, name: &str, bytes: Bytes, hash: String) -> Result<Code, LoadError> {
    let failed = |reason: String| LoadError::Compile { component: name.into(), reason };
    let (engine, cache, size) = (options.engine.clone(), options.cache.clone(), bytes.len() as u64);
    let work = tokio::task::spawn_blocking(move || cache.load(&engine, &hash, &bytes));
    let compiled = telling(options, name, size, work).await;
    compiled.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(format!("{error:#}")))
}

/// Waits for a compilation, and says that it is under way when it takes long.
async fn telling<T>(options: &LoadOptions, name: &str, size: u64, mut work: JoinHandle<T>) -> Result<T, JoinError> {
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(options.patience) => {}
    }
    options.report(Progress::Compiling { name: name.into(), size });
    work.await
}
