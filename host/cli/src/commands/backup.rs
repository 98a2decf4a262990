//! `hatchery backup`: copies the data of a host. The server may be running.

use std::path::PathBuf;

use hatchery::backup::{BackupItem, Outcome as Found, back_up};
use serde_json::json;

use crate::outcome::Outcome;
use crate::service_args::ServiceArgs;
use crate::terminal::{BOLD, DIM, escape_control};

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  hatchery backup /backups/monday --dir my-agents\n  \
                        hatchery serve my-agents --data-dir /backups/monday\n\n\
    A backup is a data folder. To restore it, stop the server and copy the files into its data folder.")]
pub struct Args {
    /// The new folder of the backup
    #[arg(value_name = "TO")]
    target: PathBuf,
    #[command(flatten)]
    folder: ServiceArgs,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    let (config, storage) = args.folder.storage()?;
    let items = back_up(&config, &storage, &args.target).await?;
    let value = json!({
        "backup": args.target.display().to_string(), "items": items.iter().map(to_json).collect::<Vec<_>>(),
    });
    let lines = items.iter().map(|item| {
        let (what, source) = (describe(item.outcome), escape_control(&item.source));
        format!("{BOLD}{:<17}{BOLD:#} {what}  {DIM}{source}{DIM:#}", item.name)
    });
    args.folder.print(&value, lines)
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
