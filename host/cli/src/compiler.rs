//! Compilation of components in child processes of this command: the hidden verb `compile-worker`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hatchery::{Config, catalog};
use hatchery_wasm::compile::worker;
use hatchery_wasm::{LoadError, LoadOptions, Worker};

/// The first argument of a child process.
const VERB: &str = "compile-worker";

/// Compiles one component if this process was started for that. It starts no threads before it has limited itself.
pub fn run_worker() -> Option<ExitCode> {
    let mut args = env::args_os().skip(1);
    (args.next()? == VERB).then(|| worker::run(args))
}

/// How to load components as a configuration says, with compilation in child processes.
///
/// # Errors
/// When components cannot run on this machine.
pub fn load_options(config: &Config, cache: Option<PathBuf>) -> Result<LoadOptions, LoadError> {
    let options = catalog::load_options(config, cache)?;
    let worker = Worker::ChildProcess { program: executable(), args: vec![VERB.into()] };
    Ok(LoadOptions { compiler: options.compiler.with_worker(worker), ..options })
}

/// This very program, even after its file was replaced by another version, where the system offers that.
fn executable() -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        return running.into();
    }
    env::current_exe().unwrap_or_else(|_| "hatchery".into())
}
