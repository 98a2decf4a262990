//! The WASI environment of a component's instances: variables, preopened folders, clocks and random numbers. It is
//! built from the grants when the component is loaded, so errors in the grants show up then.
//!
//! A granted folder is opened once, without following links, and every instance uses that handle. An instance therefore
//! sees the folder that the operator granted, even if the folder is moved or something else is put at its path.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::StdoutStream;
use wasmtime_wasi::filesystem::{Descriptor, Dir};
use wasmtime_wasi::{FsPerms, OpenMode, WasiCtx, WasiCtxBuilder};

use super::deterministic::{FrozenClock, SeededRng};
use super::resolved_path::ResolvedPath;
use super::{Access, ClockGrant, Folder, Grants, RandomGrant, Variable};
use crate::error::LoadError;
use crate::runtime::store::HostState;

/// Maximum number of bytes that one call of `wasi:random` returns.
const MAX_RANDOM_BYTES: u64 = 1 << 20;

/// Wall clock during `describe`: 2026-01-01T00:00:00Z, as time since 1970.
const DESCRIBE_TIME: Duration = Duration::from_secs(1_767_225_600);

/// Random seed during `describe`.
const DESCRIBE_SEED: u64 = 1;

/// Opened folders with their paths in the component.
pub(crate) type Preopens = Arc<[(Dir, String)]>;

/// The WASI environment of one component.
pub(crate) struct WasiEnvironment {
    environment: Vec<(String, String)>,
    folders: Preopens,
    clock: ClockGrant,
    random: RandomGrant,
}

impl WasiEnvironment {
    /// Builds the environment that `component` is granted, and opens its folders.
    ///
    /// # Errors
    /// If a folder or a variable of the host does not exist, or if a folder's path leads through a link.
    pub(crate) fn new(component: &str, grants: &Grants) -> Result<Self, LoadError> {
        let environment = grants.environment.iter().map(|(name, value)| variable(component, name, value));
        Ok(Self {
            environment: environment.collect::<Result<_, _>>()?,
            folders: open_folders(component, grants)?,
            clock: grants.clock,
            random: grants.random,
        })
    }

    /// Returns the environment for `describe`. It is the same for every component: no files, no variables, a frozen
    /// clock and seeded random numbers.
    pub(crate) fn for_describe() -> Self {
        Self {
            environment: Vec::new(),
            folders: Arc::default(),
            clock: ClockGrant::Frozen(DESCRIBE_TIME),
            random: RandomGrant::Seeded(DESCRIBE_SEED),
        }
    }

    pub(crate) fn preopens(&self) -> Preopens {
        self.folders.clone()
    }

    /// Builds the WASI context of one instance, without the folders.
    pub(crate) fn wasi(&self, stdout: impl StdoutStream + 'static, stderr: impl StdoutStream + 'static) -> WasiCtx {
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout).stderr(stderr).envs(&self.environment).max_random_size(MAX_RANDOM_BYTES);
        // Sockets would bypass the network grants: the network is available through HTTP only.
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        if let ClockGrant::Frozen(since_1970) = self.clock {
            wasi.wall_clock(FrozenClock(since_1970));
        }
        if let RandomGrant::Seeded(seed) = self.random {
            wasi.secure_random(SeededRng(seed)).insecure_random(SeededRng(seed)).insecure_random_seed(seed.into());
        }
        wasi.build()
    }
}

/// Overrides `get-directories` to return the folders that were opened at load time. `WasiCtxBuilder` would open each
/// folder by its path for each instance.
pub(crate) fn link_preopens(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:filesystem/preopens@0.2.12")?.func_wrap("get-directories", get_directories)?;
    linker.allow_shadowing(false);
    Ok(())
}

type Directories = Vec<(Resource<Descriptor>, String)>;

fn get_directories(mut store: StoreContextMut<'_, HostState>, (): ()) -> wasmtime::Result<(Directories,)> {
    let state = store.data_mut();
    let folders = state.folders.clone();
    let mut directories = Vec::with_capacity(folders.len());
    for (folder, path) in folders.iter() {
        directories.push((state.resources().push(Descriptor::Dir(folder.clone()))?, path.clone()));
    }
    Ok((directories,))
}

fn variable(component: &str, name: &str, value: &Variable) -> Result<(String, String), LoadError> {
    let value = match value {
        Variable::Text(text) => text.clone(),
        Variable::Host { from } => std::env::var(from).map_err(|source| LoadError::Variable {
            component: component.into(),
            variable: name.into(),
            from: from.clone(),
            source,
        })?,
    };
    Ok((name.to_owned(), value))
}

fn open_folders(component: &str, grants: &Grants) -> Result<Preopens, LoadError> {
    let mut guest_paths = HashSet::new();
    let mut open = |folder: &Folder| {
        let failed = |reason: String| LoadError::Folder {
            component: component.into(),
            folder: folder.host.clone(),
            guest: folder.guest.as_str().into(),
            reason,
        };
        if !guest_paths.insert(folder.guest.as_str().to_owned()) {
            return Err(failed("another one exists already".into()));
        }
        let resolved = ResolvedPath::new(&folder.host);
        if let Some(link) = resolved.first_link(folder.base.as_deref()) {
            let (link, target) = (link.display(), resolved.target().display());
            return Err(failed(format!("`{link}` is a link, and links are not followed; grant its target `{target}`")));
        }
        let handle = resolved.open_folder().map_err(|error: io::Error| failed(error.to_string()))?;
        let (permissions, mode) = match folder.access {
            Access::Read => (FsPerms::ReadOnly, OpenMode::READ),
            Access::Write => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
        };
        Ok((Dir::new(handle, permissions, mode, false), folder.guest.as_str().to_owned()))
    };
    grants.files.iter().map(&mut open).collect()
}
