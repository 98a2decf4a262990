//! `hatchery doctor`: checks a folder and suggests fixes.

use std::io::Write;
use std::path::PathBuf;

use crate::doctor::diagnose;
use crate::dotenv::DotEnvSource;
use crate::files::require_folder;
use crate::host::{ConfigArgs, StorageArgs};
use crate::outcome::Outcome;
use crate::terminal::{plain_stdout, stdout};

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  hatchery doctor my-agents\n  hatchery doctor my-agents --json\n\nLoads the folder as a host \
                        would, without serving it: no agent runs and no model is called. Components describe \
                        themselves, without any of their grants. The exit code is 1 if there is an error."
)]
pub struct Args {
    /// The served folder
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// The data folder of the host; DIR/.hatchery by default
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Returns the `.env` files to read.
    pub fn dotenv(&self) -> DotEnvSource {
        DotEnvSource::for_served_folder(&self.dir, &self.config)
    }
}

pub async fn run(args: Args) -> anyhow::Result<Outcome> {
    require_folder(&args.dir)?;
    let report = diagnose(&args.config.source(&args.dir), &StorageArgs::in_directory(args.data_dir)).await?;
    if args.json {
        writeln!(plain_stdout(), "{}", serde_json::to_string(&report)?)?;
    } else {
        report.print(&mut stdout())?;
    }
    Ok(if report.is_ok { Outcome::Success } else { Outcome::Failure })
}
