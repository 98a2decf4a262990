//! What a component's instances find around them through WASI: made from its grants when it is loaded, so that what is wrong with them is
//! known then.

use std::collections::HashSet;
use std::path::PathBuf;

use wasmtime_wasi::cli::StdoutStream;
use wasmtime_wasi::{FsPerms, WasiCtx, WasiCtxBuilder};

use super::fixed::{Frozen, Seeded};
use super::{Access, ClockGrant, Folder, Grants, RandomGrant, Variable};
use crate::error::{CallError, LoadError};

/// Environment, folders, clocks and random numbers.
#[derive(Debug)]
pub(crate) struct Surroundings {
    environment: Vec<(String, String)>,
    folders: Vec<Opened>,
    clock: ClockGrant,
    random: RandomGrant,
}

/// A folder as each instance gets it.
#[derive(Debug)]
struct Opened {
    host: PathBuf,
    guest: String,
    permissions: FsPerms,
}

impl Surroundings {
    /// What `component` is granted.
    ///
    /// # Errors
    /// When a folder or a variable of the host is not there.
    pub(crate) fn new(component: &str, grants: &Grants) -> Result<Self, LoadError> {
        let environment = grants.environment.iter().map(|(name, value)| variable(component, name, value));
        Ok(Self {
            environment: environment.collect::<Result<_, _>>()?,
            folders: folders(component, grants)?,
            clock: grants.clock,
            random: grants.random,
        })
    }

    /// The same for one instance. Costs the opening of each folder.
    ///
    /// # Errors
    /// When a folder has gone since the component was loaded.
    pub(crate) fn wasi(
        &self,
        stdout: impl StdoutStream + 'static,
        stderr: impl StdoutStream + 'static,
    ) -> Result<WasiCtx, CallError> {
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout).stderr(stderr).envs(&self.environment);
        // Sockets would go past what the operator says of hosts: the network is there through HTTP only.
        wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        for Opened { host, guest, permissions } in &self.folders {
            wasi.preopened_dir(host, guest, *permissions)
                .map_err(|error| CallError::Folder { folder: host.clone(), reason: error.root_cause().to_string() })?;
        }
        if let ClockGrant::Frozen(since_1970) = self.clock {
            wasi.wall_clock(Frozen(since_1970));
        }
        if let RandomGrant::Seeded(seed) = self.random {
            wasi.secure_random(Seeded(seed)).insecure_random(Seeded(seed)).insecure_random_seed(seed.into());
        }
        Ok(wasi.build())
    }
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

fn folders(component: &str, grants: &Grants) -> Result<Vec<Opened>, LoadError> {
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
        std::fs::read_dir(&folder.host).map_err(|error| failed(error.to_string()))?;
        let permissions = match folder.access {
            Access::Read => FsPerms::ReadOnly,
            Access::Write => FsPerms::ReadWrite,
        };
        Ok(Opened { host: folder.host.clone(), guest: folder.guest.as_str().into(), permissions })
    };
    grants.files.iter().map(&mut open).collect()
}
