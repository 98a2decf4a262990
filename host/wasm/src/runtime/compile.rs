//! Compiler: turns the bytes of a component into native code, in a child process with limits on time, memory and
//! threads, or in this process.
//!
//! A component can be made so that compiling it takes minutes and gigabytes. A child process ends at a limit of
//! `compile`, its memory goes back to the system, and a crash of the compiler is one rejected file. The child has an
//! empty environment, cannot open files or sockets, and never sees the key of the code cache.
//!
//! Non-goal: this is not a boundary against code that runs inside the compiler. The child returns native code that this
//! process then executes, so a component that takes over the compiler through a defect has the rights of the host.

mod child;
mod limits;
pub mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hatchery_core::pluralize;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::runtime::engine::Engine;
use crate::runtime::limits::units;
pub use limits::CompileLimits;
use limits::check_functions;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Worker {
    /// In this process, for tests and for embedding the library. Only the limits on files and functions apply: time,
    /// memory and threads are unbounded.
    #[default]
    InProcess,
    /// In a child process for each component. The program must call [`worker::run`].
    ChildProcess {
        program: PathBuf,
        /// Arguments before the arguments of [`worker::run`].
        args: Vec<OsString>,
    },
}

/// Compiles components, a bounded number at a time, in the order of the requests. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Compiler {
    worker: Worker,
    limits: CompileLimits,
    permits: Arc<Semaphore>,
}

impl Compiler {
    /// Creates a compiler with these limits.
    pub fn new(worker: Worker, limits: CompileLimits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.processes.get() as usize));
        Self { worker, limits, permits }
    }

    /// Returns a compiler with other limits, which compiles in the same way.
    #[must_use]
    pub fn with_limits(&self, limits: CompileLimits) -> Self {
        Self::new(self.worker.clone(), limits)
    }

    /// Returns the limits of a compilation.
    pub fn limits(&self) -> &CompileLimits {
        &self.limits
    }

    /// Waits for a permit to compile.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, CompileError> {
        self.permits.clone().acquire_owned().await.map_err(|error| CompileError::Start(std::io::Error::other(error)))
    }

    /// Compiles `bytes` for `engine`. Dropping the future kills the child process.
    ///
    /// # Errors
    /// If a limit is exceeded, the compiler fails, or the bytes are not valid.
    pub(crate) async fn compile(&self, engine: &Arc<Engine>, bytes: Bytes) -> Result<Vec<u8>, CompileError> {
        let checked = (self.limits.clone(), bytes.clone());
        run_blocking(move || check_functions(&checked.0, &checked.1)).await?;
        match &self.worker {
            Worker::InProcess => {
                let engine = engine.clone();
                let compiled = move || engine.wasm().precompile_component(&bytes).map_err(CompileError::invalid);
                run_blocking(compiled).await
            }
            Worker::ChildProcess { program, args } => child::compile(program, args, &self.limits, bytes).await,
        }
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, CompileError> + Send + 'static,
) -> Result<T, CompileError> {
    let result = tokio::task::spawn_blocking(work).await;
    result.unwrap_or_else(|error| Err(CompileError::Crashed(error.to_string())))
}

/// An error of compiling a component.
#[derive(Debug, Error)]
pub(crate) enum CompileError {
    #[error(
        "compiling it takes more than {time:?} of CPU time; split its largest functions, or raise `compile.time` in hatchery.yaml"
    )]
    Time { time: Duration },
    #[error("compiling it has not ended after {wall:?}; raise `compile.wall` in hatchery.yaml if this machine is busy")]
    Stalled { wall: Duration },
    #[error(
        "compiling it takes more than {} of memory; split its largest functions, or raise `compile.memory` in hatchery.yaml",
        units::format_size(*memory)
    )]
    Memory { memory: u64 },
    #[error(
        "its compiled code has more than {}, a quarter of `compile.memory`; raise that in hatchery.yaml",
        units::format_size(*max)
    )]
    Output { max: u64 },
    #[error(
        "one of its functions has {size} bytes of code, and {max} are allowed; split it, or raise `compile.max_function_size` in \
         hatchery.yaml"
    )]
    FunctionSize { size: u64, max: u64 },
    #[error(
        "it has more than {}; split the component, or raise `compile.max_functions` in hatchery.yaml",
        pluralize(*max, "function", "functions")
    )]
    Functions { max: u32 },
    #[error("the compiler crashed ({0}); change the file to try again")]
    Crashed(String),
    #[error("the compiler cannot be started: {0}")]
    Start(std::io::Error),
    #[error("{0}")]
    Invalid(String),
}

impl CompileError {
    fn invalid(error: wasmtime::Error) -> Self {
        Self::Invalid(format!("{error:#}"))
    }
}
