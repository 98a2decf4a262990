//! What a component's instances find around them through WASI: made from its grants when it is loaded, so that what is wrong with them is
//! known then.
//!
//! A granted folder is opened once, without following links, and each instance gets that handle. So an instance sees the folder that the
//! operator granted, wherever it is moved to and whatever is put in its place.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::StdoutStream;
use wasmtime_wasi::filesystem::{Descriptor, Dir};
use wasmtime_wasi::{FsPerms, OpenMode, WasiCtx, WasiCtxBuilder};

use super::deterministic::{Frozen, Seeded};
use super::resolved_path::ResolvedPath;
use super::{Access, ClockGrant, Folder, Grants, RandomGrant, Variable};
use crate::error::LoadError;
use crate::runtime::store::HostState;

/// Most bytes of one answer of `wasi:random`.
const MAX_RANDOM_BYTES: u64 = 1 << 20;

/// The time of day of a component that describes itself: 2026-01-01, midnight (UTC), since 1970.
const DESCRIBE_TIME: Duration = Duration::from_secs(1_767_225_600);

/// Where the random numbers of a component that describes itself begin.
const DESCRIBE_SEED: u64 = 1;

/// Open folders with their paths in the component.
pub(crate) type Preopens = Arc<[(Dir, String)]>;

/// Environment, folders, clocks and random numbers.
pub(crate) struct WasiEnvironment {
    environment: Vec<(String, String)>,
    folders: Preopens,
    clock: ClockGrant,
    random: RandomGrant,
}

impl WasiEnvironment {
    /// What `component` is granted. Opens its folders.
    ///
    /// # Errors
    /// When a folder or a variable of the host is not there, or a folder's path leads through a link.
    pub(crate) fn new(component: &str, grants: &Grants) -> Result<Self, LoadError> {
        let environment = grants.environment.iter().map(|(name, value)| variable(component, name, value));
        Ok(Self {
            environment: environment.collect::<Result<_, _>>()?,
            folders: folders(component, grants)?,
            clock: grants.clock,
            random: grants.random,
        })
    }

    /// The wasi_environment of a component that describes itself, which are the same whatever it is granted: no files, no variables, a clock
    /// that stands still, known random numbers.
    pub(crate) fn bare() -> Self {
        Self {
            environment: Vec::new(),
            folders: Arc::default(),
            clock: ClockGrant::Frozen(DESCRIBE_TIME),
            random: RandomGrant::Seeded(DESCRIBE_SEED),
        }
    }

    /// The open folders.
    pub(crate) fn folders(&self) -> Preopens {
        self.folders.clone()
    }

    /// All but the folders, for one instance.
    pub(crate) fn wasi(&self, stdout: impl StdoutStream + 'static, stderr: impl StdoutStream + 'static) -> WasiCtx {
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout).stderr(stderr).envs(&self.environment).max_random_size(MAX_RANDOM_BYTES);
        // Sockets would go past what the operator says of hosts: the network is there through HTTP only.
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        if let ClockGrant::Frozen(since_1970) = self.clock {
            wasi.wall_clock(Frozen(since_1970));
        }
        if let RandomGrant::Seeded(seed) = self.random {
            wasi.secure_random(Seeded(seed)).insecure_random(Seeded(seed)).insecure_random_seed(seed.into());
        }
        wasi.build()
    }
}

/// Lets instances have the folders that were opened when their component was loaded. `WasiCtxBuilder` would open each one by its path, for
/// each instance.
pub(crate) fn link(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:filesystem/preopens@0.2.12")?.func_wrap("get-directories", directories)?;
    linker.allow_shadowing(false);
    Ok(())
}

type Directories = Vec<(Resource<Descriptor>, String)>;

fn directories(mut store: StoreContextMut<'_, HostState>, (): ()) -> wasmtime::Result<(Directories,)> {
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

fn folders(component: &str, grants: &Grants) -> Result<Preopens, LoadError> {
    let mut seen = HashSet::new();
    let mut open = |folder: &Folder| {
        let failed = |reason: String| LoadError::Folder {
            component: component.into(),
            folder: folder.host.clone(),
            guest: folder.guest.as_str().into(),
            reason,
        };
        if !seen.insert(folder.guest.as_str().to_owned()) {
            return Err(failed("another one is there already".into()));
        }
        let trail = ResolvedPath::new(&folder.host);
        if let Some(link) = trail.first_link(folder.base.as_deref()) {
            let (link, target) = (link.display(), trail.target().display());
            return Err(failed(format!(
                "links are not followed, and `{link}` is one; grant `{target}`, where it leads"
            )));
        }
        let handle = trail.open_folder().map_err(|error: io::Error| failed(error.to_string()))?;
        let (permissions, mode) = match folder.access {
            Access::Read => (FsPerms::ReadOnly, OpenMode::READ),
            Access::Write => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
        };
        Ok((Dir::new(handle, permissions, mode, false), folder.guest.as_str().to_owned()))
    };
    grants.files.iter().map(&mut open).collect()
}
