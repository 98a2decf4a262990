//! `hatchery backup`: copies what a host has stored. Works beside a running server.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use hatchery::backup::{BackupItem, Outcome as Found, back_up};
use serde_json::json;

use crate::host::{ConfigArgs, StorageArgs};
use crate::outcome::Outcome;
use crate::terminal::{BOLD, DIM, escape_control, plain_stdout, stdout};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery backup /backups/monday --dir my-agents\n  \
                        hatchery serve my-agents --data-dir /backups/monday\n\n\
    A backup is a data folder. To restore it, stop the server and put the files into its data folder.")]
pub struct Args {
    /// The new folder of the backup
    #[arg(value_name = "TO")]
    target: PathBuf,
    /// The served folder
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The data folder of the server; DIR/.hatchery by default
    #[arg(long, value_name = "DATA_DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.dir.is_dir() {
        bail!("{} is not a folder", args.dir.display());
    }
    let config = args.config.source(&args.dir).load()?.require_host_access()?.config;
    let storage = StorageArgs::in_directory(args.data_dir.clone()).storage(&args.dir);
    let items = back_up(&config, &storage, &args.target).await?;
    if args.json {
        let items: Vec<_> = items.iter().map(to_json).collect();
        writeln!(plain_stdout(), "{}", json!({ "backup": args.target.display().to_string(), "items": items }))?;
    } else {
        let mut out = stdout();
        for item in &items {
            let (what, source) = (describe(item.outcome), escape_control(&item.source));
            writeln!(out, "{BOLD}{:<17}{BOLD:#} {what}  {DIM}{source}{DIM:#}", item.name)?;
        }
    }
    Ok(Outcome::Success)
}

fn describe(found: Found) -> &'static str {
    match found {
        Found::Copied => "copied",
        Found::Empty => "nothing stored yet",
        Found::Elsewhere => "not on this machine's disk; use the tools of that service",
    }
}

fn to_json(item: &BackupItem) -> serde_json::Value {
    let outcome = match item.outcome {
        Found::Copied => "copied",
        Found::Empty => "empty",
        Found::Elsewhere => "elsewhere",
    };
    json!({ "name": item.name, "source": item.source, "outcome": outcome })
}
