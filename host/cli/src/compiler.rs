//! Compilation of components in child processes of this command: the hidden command `compile-worker`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hatchery::{Config, catalog};
use hatchery_wasm::compile::worker as compile_worker;
use hatchery_wasm::{LoadError, LoadOptions, Worker};

/// The first argument of a child process.
const WORKER_COMMAND: &str = "compile-worker";

/// Compiles one component and returns the exit code if this process is a worker, otherwise `None`. Must be called
/// before any thread is started, since a worker limits its own resources first.
pub fn run_worker() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    (args.next()? == WORKER_COMMAND).then(|| compile_worker::run(args))
}

/// Returns the worker that compiles in child processes.
pub fn worker() -> Worker {
    Worker::ChildProcess { program: executable(), args: vec![WORKER_COMMAND.into()] }
}

/// Returns the options for loading components with a configuration, with compilation in child processes.
pub fn load_options(config: &Config, cache: Option<PathBuf>) -> Result<LoadOptions, LoadError> {
    catalog::load_options(config, cache, worker())
}

/// Returns the path of this program. On Linux it stays valid when the file is replaced by another version.
fn executable() -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return running.into();
    }
    env::current_exe().unwrap_or_else(|_| "hatchery".into())
}
