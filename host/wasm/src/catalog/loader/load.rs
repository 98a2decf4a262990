//! Loads one component file: reads, checks, compiles and describes it. Or only compiles it, to fill the code cache.

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncReadExt;

use super::tasks::LoadPermit;
use super::{LoadOptions, Progress};
use crate::catalog::revisions::Revisions;
use crate::catalog::settings::Settings;
use crate::contract::component::{Component, Executable};
use crate::contract::version::Contract;
use crate::error::LoadError;
use crate::policy::RequestedGrants;
use crate::runtime::cache::{load_compiled, sha256};
use crate::runtime::compile::CompileError;
use crate::runtime::instance_size::instance_size;
use crate::runtime::program::DevelopmentFile;

/// The result of loading a file.
pub(crate) enum LoadedFile {
    /// The file has the bytes that already serve.
    Unchanged,
    /// A new component.
    Component {
        component: Arc<Component>,
        /// True if the compiled code was in the cache.
        is_from_cache: bool,
    },
}

/// Reads, checks, compiles and describes the component in a file, unless its hash is `current`.
///
/// # Errors
/// If any of these steps fails. The message has a remedy.
pub(crate) async fn load(
    options: &LoadOptions,
    name: &str,
    path: &Path,
    current: Option<&str>,
    mut permit: LoadPermit,
) -> Result<LoadedFile, LoadError> {
    check_name(name, path)?;
    check_trust(&options.settings, name)?;
    permit.acquire().await;
    let bytes = check_load_policy(options, path, read(options, path).await?).await?;
    let hash = sha256(&bytes);
    if current == Some(hash.as_str()) {
        store_revision(options, name, path, move |revisions, name, path| revisions.store_signature(name, &hash, path))
            .await;
        return Ok(LoadedFile::Unchanged);
    }
    let (component, is_from_cache) = describe(options, name, bytes.clone(), hash.clone(), &mut permit).await?;
    store_revision(options, name, path, move |revisions, name, path| revisions.store(name, &hash, &bytes, path)).await;
    Ok(LoadedFile::Component { component, is_from_cache })
}

/// Checks that the configuration of the component's settings is trusted.
pub(super) fn check_trust(settings: &Settings, name: &str) -> Result<(), LoadError> {
    settings.for_component(name).refusal.map_or(Ok(()), |reason| Err(LoadError::Refused(reason)))
}

/// Checks that no granted folder conflicts with the folders that other components may write.
pub(super) fn check_folders(settings: &Settings, name: &str) -> Result<(), LoadError> {
    let conflicting = settings.check_folders(name);
    conflicting.map_err(|conflict| LoadError::Grants { component: name.into(), reason: conflict.to_string() })
}

/// Runs `store` on a blocking thread, to store a revision or its signature.
async fn store_revision(
    options: &LoadOptions,
    name: &str,
    path: &Path,
    store: impl FnOnce(&Revisions, &str, &Path) + Send + 'static,
) {
    let Some(revisions) = options.revisions.clone() else { return };
    let (name, file) = (name.to_owned(), path.to_owned());
    if let Err(error) = tokio::task::spawn_blocking(move || store(&revisions, &name, &file)).await {
        tracing::error!("{}: storing the revision panicked: {error}", path.display());
    }
}

/// Loads the component in a file that belongs to no catalog, with the settings of its name. The load policy, which is
/// for components of others, does not apply.
///
/// # Errors
/// If the component cannot be read, compiled or described.
pub async fn load_component(options: &LoadOptions, path: &Path) -> Result<Arc<Component>, LoadError> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    check_name(&name, path)?;
    let bytes = read(options, path).await?;
    let hash = sha256(&bytes);
    let (component, _) = load_bytes(options, &name, bytes, hash).await?;
    Ok(component)
}

/// A component whose compiled code is in the cache.
#[derive(Debug, Clone)]
pub struct Precompiled {
    pub name: String,
    /// Size of the file in bytes.
    pub size: u64,
    /// True if it was in the cache before.
    pub is_from_cache: bool,
    /// Time for reading, checking and compiling.
    pub took: Duration,
}

/// Compiles the component in a file into the cache, where a host with the same settings finds it. The file is checked
/// as if it was loaded, but its code is not run.
///
/// # Errors
/// If the component would not be loaded, or its code cannot be stored.
pub async fn precompile(options: &LoadOptions, path: &Path) -> Result<Precompiled, LoadError> {
    let started = Instant::now();
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    check_name(&name, path)?;
    let bytes = check_load_policy(options, path, read(options, path).await?).await?;
    Contract::read(&name, &bytes)?;
    let (size, hash) = (bytes.len() as u64, sha256(&bytes));
    let code = code(options, &name, bytes, hash, &mut LoadPermit::default()).await?;
    match code.not_cached {
        Some(reason) => Err(LoadError::NotCached { component: name, reason }),
        None => Ok(Precompiled { name, size, is_from_cache: code.is_from_cache, took: started.elapsed() }),
    }
}

/// Checks that the file name is a valid component name.
pub(crate) fn check_name(name: &str, path: &Path) -> Result<(), LoadError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || !name.chars().all(is_plain) {
        let reason = "a component's name may hold only letters, digits, `_`, `-` and `.`";
        return Err(LoadError::BadFileName { path: path.into(), reason });
    }
    Ok(())
}

/// Reads a file, unless it is larger than the limit.
pub(crate) async fn read(options: &LoadOptions, path: &Path) -> Result<Bytes, LoadError> {
    let max = options.compiler.limits().max_file_size;
    let failed = |source| LoadError::Read { path: path.into(), source };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let size = file.metadata().await.map_err(failed)?.len();
    let mut bytes = Vec::new();
    if size <= max {
        // The file may have grown since.
        file.take(max.saturating_add(1)).read_to_end(&mut bytes).await.map_err(failed)?;
    }
    let size = size.max(bytes.len() as u64);
    if size > max {
        return Err(LoadError::TooLarge { path: path.into(), size, max });
    }
    Ok(bytes.into())
}

/// Returns the bytes if the load policy allows to load them.
pub(crate) async fn check_load_policy(options: &LoadOptions, path: &Path, bytes: Bytes) -> Result<Bytes, LoadError> {
    let Some(load_policy) = options.load_policy.clone() else { return Ok(bytes) };
    let file = path.to_owned();
    let result = tokio::task::spawn_blocking(move || load_policy(&file, &bytes).map(|()| bytes)).await;
    result
        .map_err(|error| LoadError::Panicked { path: path.into(), reason: error.to_string() })?
        .map_err(LoadError::Refused)
}

/// Checks, compiles and describes the component in `bytes`, whose SHA-256 is `hash`. Also returns true if its code was
/// in the cache.
pub(crate) async fn load_bytes(
    options: &LoadOptions,
    name: &str,
    bytes: Bytes,
    hash: String,
) -> Result<(Arc<Component>, bool), LoadError> {
    describe(options, name, bytes, hash, &mut LoadPermit::default()).await
}

async fn describe(
    options: &LoadOptions,
    name: &str,
    bytes: Bytes,
    hash: String,
    permit: &mut LoadPermit,
) -> Result<(Arc<Component>, bool), LoadError> {
    let contract = Contract::read(name, &bytes)?;
    let requests = RequestedGrants::read(name, &bytes)?;
    check_folders(&options.settings, name)?;
    let Code { executable, is_from_cache, .. } = code(options, name, bytes, hash.clone(), permit).await?;
    let settings = options.settings.for_component(name);
    let component =
        Component::describe(options.engine.clone(), name, hash, contract, requests, &executable, settings).await?;
    Ok((Arc::new(component), is_from_cache))
}

/// Compiled code and its origin.
struct Code {
    executable: Executable,
    is_from_cache: bool,
    /// The reason why it could not be stored in the cache.
    not_cached: Option<String>,
}

/// Takes a component's code from the cache, or compiles it. The program of a development component is not compiled.
async fn code(
    options: &LoadOptions,
    name: &str,
    bytes: Bytes,
    hash: String,
    permit: &mut LoadPermit,
) -> Result<Code, LoadError> {
    let failed = |reason: String| LoadError::Compile { component: name.into(), reason };
    let (bytes, hash, program) = match DevelopmentFile::split(&bytes) {
        Some(DevelopmentFile { interpreter, program }) => {
            let hash = sha256(&interpreter);
            (interpreter, hash, Some(program))
        }
        None => (bytes, hash, None),
    };
    let (engine, cache, key, file) = (options.engine.clone(), options.cache.clone(), hash.clone(), bytes.clone());
    // The compiler reports why a file cannot be parsed.
    let read = move || (cache.get(&engine, &key), instance_size(&file).unwrap_or_default());
    let (cached, instance_size) = tokio::task::spawn_blocking(read).await.map_err(|error| failed(error.to_string()))?;
    if let Some(component) = cached {
        let executable = Executable { component, program, instance_size };
        return Ok(Code { executable, is_from_cache: true, not_cached: None });
    }
    permit.release();
    let code = compile(options, name, bytes, permit).await.map_err(|error| failed(error.to_string()))?;
    permit.acquire().await;
    let (engine, cache) = (options.engine.clone(), options.cache.clone());
    let loaded = tokio::task::spawn_blocking(move || {
        // Only code that can be loaded is cached.
        let loaded = load_compiled(&engine, &code)?;
        let not_cached = cache.put(&engine, &hash, &code).err();
        // Mapped from the cache, the code takes less memory.
        let mapped = if not_cached.is_none() { cache.get(&engine, &hash) } else { None };
        let executable = Executable { component: mapped.unwrap_or(loaded), program, instance_size };
        Ok::<_, wasmtime::Error>(Code { executable, is_from_cache: false, not_cached })
    });
    loaded.await.map_err(|error| failed(error.to_string()))?.map_err(|error| failed(format!("{error:#}")))
}

/// Compiles a component. Waits for its turn first. Reports [`Progress::Compiling`] if compiling takes long.
async fn compile(
    options: &LoadOptions,
    name: &str,
    bytes: Bytes,
    permit: &LoadPermit,
) -> Result<Vec<u8>, CompileError> {
    let _permit = options.compiler.permit().await?;
    permit.begin_compiling();
    let size = bytes.len() as u64;
    let mut work = pin!(options.compiler.compile(&options.engine, bytes));
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = tokio::time::sleep(options.progress_delay) => {}
    }
    options.report(Progress::Compiling { name: name.into(), size });
    work.await
}
