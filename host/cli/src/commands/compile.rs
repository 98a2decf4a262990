//! `hatchery compile`: compiles components into the code cache ahead of time.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use hatchery_wasm::{CacheState, Precompiled, precompile};
use serde_json::json;

use crate::host::{ConfigArgs, StorageArgs};
use crate::outcome::Outcome;
use crate::projects::explain_no_component;
use crate::terminal::{BOLD, DIM, ERROR, escape_control, format_error, plain_stdout, printable_path, stdout};
use crate::{compiler, files};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery compile my-agents\n  hatchery compile my-agents --data-dir /var/lib/hatchery\n\n\
                        The second command is for a host that uses the same --data-dir, such as in a container image. \
                        Components are compiled, but not run."
)]
pub struct Args {
    /// The folder with components (*.wasm)
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The data folder of the host, which contains its code cache; the user's cache folder by default
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print a line of JSON for each component
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    files::require_folder(&args.dir)?;
    let components = files::find_components(&args.dir)?;
    if components.is_empty() {
        bail!(explain_no_component(&args.dir));
    }
    let config = args.config.source(&args.dir).load()?.require_host_access()?.config;
    let cache = StorageArgs::in_directory(args.data_dir).code_cache(|name| std::env::var_os(name));
    let options = compiler::load_options(&config, cache)?;
    match options.cache.state() {
        CacheState::Open { .. } => {}
        CacheState::Off => bail!("no folder for compiled code; set HOME or XDG_CACHE_HOME, or pass --data-dir"),
        CacheState::Unusable { directory, reason } => {
            bail!(
                "cannot write compiled code to {}: {reason}; choose another folder with --data-dir",
                directory.display()
            )
        }
    }
    let mut outcome = Outcome::Success;
    let mut files = components.into_iter();
    let mut tasks = VecDeque::new();
    loop {
        while tasks.len() < config.compile.processes.get() as usize
            && let Some(file) = files.next()
        {
            let options = options.clone();
            tasks.push_back(tokio::spawn(async move { (precompile(&options, &file).await, file) }));
        }
        let Some(task) = tasks.pop_front() else { break };
        let (result, file) = task.await?;
        if result.is_err() {
            outcome = Outcome::Failure;
        }
        let result = result.map_err(|error| format_error(&error.into()));
        if args.json { print_json(&result, &file)? } else { print(&result, &file)? }
    }
    Ok(outcome)
}

fn print_json(result: &Result<Precompiled, String>, file: &Path) -> io::Result<()> {
    let file = file.display().to_string();
    let line = match result {
        Ok(compiled) => json!({
            "name": compiled.name, "file": file, "size": compiled.size, "fromCache": compiled.is_from_cache,
            "milliseconds": u64::try_from(compiled.took.as_millis()).unwrap_or(u64::MAX),
        }),
        Err(error) => json!({"file": file, "error": error}),
    };
    writeln!(plain_stdout(), "{line}")
}

fn print(result: &Result<Precompiled, String>, file: &Path) -> io::Result<()> {
    match result {
        Ok(compiled) => {
            let (name, kib) = (escape_control(&compiled.name), compiled.size.div_ceil(1024));
            let (state, ms) = (if compiled.is_from_cache { "cached" } else { "compiled" }, compiled.took.as_millis());
            writeln!(stdout(), "{BOLD}{name}{BOLD:#}  {state}  {DIM}{ms} ms, {kib} KiB{DIM:#}")
        }
        Err(error) => {
            anstream::eprintln!("{ERROR}{}:{ERROR:#} {}", printable_path(file), escape_control(error));
            Ok(())
        }
    }
}
