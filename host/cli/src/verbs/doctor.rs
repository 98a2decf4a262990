//! `hatchery doctor`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;

use crate::doctor::examine;
use crate::host::{ConfigArgs, StorageArgs};
use crate::terminal::{plain_stdout, stdout};
use crate::verbs::Outcome;

/// What to look at.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hatchery doctor my-agents\n  hatchery doctor my-agents --json\n\nThe exit code is 1 when something \
                        would not work. Nothing is served, no agent runs and no model is asked. Components are \
                        asked what they offer, without any of the rights that they are granted."
)]
pub struct Args {
    /// The folder that is or will be served
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The data folder of the host that serves it; DIR/.hatchery when left out
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Write the report as JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    if !args.dir.is_dir() {
        bail!("{} is not a folder", args.dir.display());
    }
    let report = examine(&args.config.source(&args.dir), &StorageArgs::in_directory(args.data_dir)).await?;
    if args.json {
        writeln!(plain_stdout(), "{}", serde_json::to_string(&report)?)?;
    } else {
        report.print(&mut stdout())?;
    }
    Ok(if report.ok { Outcome::Success } else { Outcome::Failure })
}
