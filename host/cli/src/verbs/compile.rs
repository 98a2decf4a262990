//! `hatchery compile`.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;
use hatchery_wasm::{CacheState, Precompiled, precompile};
use serde_json::json;

use crate::host::{ConfigArgs, StorageArgs};
use crate::terminal::{BOLD, DIM, ERROR, explain, harmless, plain_stdout, stdout};
use crate::verbs::Outcome;
use crate::{compiler, files};

/// What to compile, and where the code goes.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery compile my-agents\n  hatchery compile my-agents --data-dir /var/lib/hatchery   \
                        for an image whose host is started with the same --data-dir\n\nNothing \
                        of the components runs."
)]
pub struct Args {
    /// The folder with components (*.wasm)
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The data folder of the host that will serve, which keeps compiled code there; the user's cache when left out
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Write a line of JSON for each component
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.dir.is_dir() {
        bail!("{} is not a folder", args.dir.display());
    }
    let components = files::find(&args.dir, |name| name.ends_with(".wasm"))?;
    if components.is_empty() {
        bail!("no component in {}; `hatchery build` makes one", args.dir.display());
    }
    let config = args.config.source(&args.dir).load()?.require_host_access()?.config;
    let cache = StorageArgs::in_directory(args.data_dir).code_cache(|name| std::env::var_os(name));
    let options = compiler::load_options(&config, cache)?;
    match options.cache.state() {
        CacheState::Open { .. } => {}
        CacheState::Off => bail!("there is no place for compiled code; set HOME or XDG_CACHE_HOME, or pass --data-dir"),
        CacheState::Unusable { directory, reason } => {
            bail!("{}: cannot keep compiled code: {reason}; choose another place with --data-dir", directory.display())
        }
    }
    let mut outcome = Outcome::Success;
    let mut files = components.into_iter();
    let mut under_way = VecDeque::new();
    loop {
        while under_way.len() < config.compile.processes.get() as usize
            && let Some(file) = files.next()
        {
            let options = options.clone();
            under_way.push_back(tokio::spawn(async move { (precompile(&options, &file).await, file) }));
        }
        let Some(next) = under_way.pop_front() else { break };
        let (made, file) = next.await?;
        match made {
            Ok(made) if args.json => print_json(&made, &file)?,
            Ok(made) => print(&made)?,
            Err(error) => {
                outcome = Outcome::Failure;
                let error = explain(&error.into());
                if args.json {
                    writeln!(plain_stdout(), "{}", json!({"file": file, "error": error}))?;
                } else {
                    anstream::eprintln!("{ERROR}{}:{ERROR:#} {error}", file.display());
                }
            }
        }
    }
    Ok(outcome)
}

fn print_json(made: &Precompiled, file: &Path) -> io::Result<()> {
    let line = json!({
        "name": made.name, "file": file, "size": made.size, "fromCache": made.is_from_cache,
        "milliseconds": u64::try_from(made.took.as_millis()).unwrap_or(u64::MAX),
    });
    writeln!(plain_stdout(), "{line}")
}

fn print(made: &Precompiled) -> io::Result<()> {
    let (name, kib, took) = (harmless(&made.name), made.size.div_ceil(1024), made.took.as_millis());
    let how = if made.is_from_cache { "cached" } else { "compiled" };
    writeln!(stdout(), "{BOLD}{name}{BOLD:#}  {how}  {DIM}{took} ms, {kib} KiB{DIM:#}")
}
