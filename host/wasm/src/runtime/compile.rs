//! Turns the bytes of a component into native code: in a child process with limits on time, memory and threads, or in this process.
//!
//! A component can be made so that compiling it takes minutes and gigabytes. In a child process this ends at a limit of `engine.compile`,
//! the memory goes back to the system with the process, and a crash of the compiler is one rejected file. The child has an empty
//! environment, cannot open files or sockets, and never sees the key of the code cache.
//!
//! It is no boundary against code that runs inside the compiler: what a child returns is native code that this process then executes, so
//! a component that takes over the compiler through a defect has the rights of the host.

mod child;
mod limits;
pub mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::runtime::engine::Engine;
use crate::runtime::limits::units;
pub use limits::CompileLimits;
use limits::check_functions;

/// Where components are compiled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Worker {
    /// In this process, for tests and for embedding the library. Only the limits on files and functions hold: time, memory and threads
    /// are unbounded.
    #[default]
    InProcess,
    /// In a child process for each component. The program has to call [`worker::run`].
    ChildProcess {
        /// The program.
        program: PathBuf,
        /// Arguments that come before those of [`worker::run`].
        args: Vec<OsString>,
    },
}

/// Compiles components, a bounded number at a time; those that wait are served in the order in which they came. Clones share the bound.
#[derive(Debug, Clone)]
pub struct Compiler {
    worker: Worker,
    limits: CompileLimits,
    permits: Arc<Semaphore>,
}

impl Compiler {
    /// A compiler with these limits.
    pub fn new(worker: Worker, limits: CompileLimits) -> Self {
        let permits = Arc::new(Semaphore::new(limits.processes.get() as usize));
        Self { worker, limits, permits }
    }

    /// The same limits with another worker.
    #[must_use]
    pub fn with_worker(self, worker: Worker) -> Self {
        Self { worker, ..self }
    }

    /// What a compilation may use.
    pub fn limits(&self) -> &CompileLimits {
        &self.limits
    }

    /// Waits until one more compilation may begin.
    pub(crate) async fn permit(&self) -> Result<OwnedSemaphorePermit, CompileError> {
        self.permits.clone().acquire_owned().await.map_err(|error| CompileError::Start(std::io::Error::other(error)))
    }

    /// Compiles `bytes` for `engine`. A child process ends when the future is dropped.
    ///
    /// # Errors
    /// When a limit is reached, the compiler fails, or the bytes are not valid.
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
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(CompileError::Crashed(error.to_string())))
}

/// Why a component is not compiled.
#[derive(Debug, Error)]
pub(crate) enum CompileError {
    #[error(
        "compiling it takes more than {time:?} of CPU time; split its largest functions, or raise `engine.compile.time` in hatchery.yaml"
    )]
    Time { time: Duration },
    #[error(
        "compiling it has not ended after {wall:?}; raise `engine.compile.wall` in hatchery.yaml if this machine is busy"
    )]
    Stalled { wall: Duration },
    #[error(
        "compiling it takes more than {} of memory; split its largest functions, or raise `engine.compile.memory` in hatchery.yaml",
        units::bytes(*memory)
    )]
    Memory { memory: u64 },
    #[error(
        "its compiled code has more than {}, a quarter of `engine.compile.memory`; raise that in hatchery.yaml",
        units::bytes(*most)
    )]
    Output { most: u64 },
    #[error(
        "one of its functions has {size} bytes of code, and {most} are allowed; split it, or raise `engine.compile.max_function_size` in \
         hatchery.yaml"
    )]
    FunctionSize { size: u64, most: u64 },
    #[error(
        "it has more than {most} functions; split the component, or raise `engine.compile.max_functions` in hatchery.yaml"
    )]
    Functions { most: u32 },
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
