//! `cargo xtask load`: prints a line for each measurement, and tables at the end.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use hatchery_tests::load::{self, Plan, Program, Report, floor, idle, slopes, startup};
use tokio::runtime::Builder;

/// Measures a release build of the host over HTTP.
#[derive(Parser)]
struct Arguments {
    /// Duration of each row in seconds
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Measure only rows of the host whose names contain this text, and neither starts nor long or idle sessions
    #[arg(long)]
    filter: Option<String>,
    /// Another server, as NAME=PATH
    #[arg(long = "rival", value_parser = Program::parse)]
    rivals: Vec<Program>,
    /// Write the picture of long sessions to this file
    #[arg(long)]
    svg: Option<PathBuf>,
    /// Print the report as JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Become the bare server
    #[arg(long = &floor::FLAG[2..], hide = true)]
    floor: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.floor {
        return Builder::new_multi_thread().enable_all().build()?.block_on(floor::serve());
    }
    // One thread serves its connections in turn. Several let some of a thousand wait for a multiple of the others' time.
    Builder::new_current_thread().enable_all().build()?.block_on(measure(arguments))
}

async fn measure(arguments: Arguments) -> anyhow::Result<()> {
    let plan = Plan {
        duration: Duration::try_from_secs_f64(arguments.seconds)?,
        connections: 8,
        filter: arguments.filter.clone().unwrap_or_default(),
        rivals: arguments.rivals,
    };
    let mut report = Report { rows: load::run(&plan, |row| eprintln!("{row}")).await?, ..Report::default() };
    if arguments.filter.is_none() {
        report.starts = startup::run(|start| eprintln!("{start}")).await?;
        report.slopes = slopes::run(&plan, |slope| eprintln!("{slope}")).await?;
        report.idle = idle::run(&plan, |idle| eprintln!("{idle}")).await?;
    }
    if let Some(file) = arguments.svg.filter(|_| !report.slopes.is_empty()) {
        std::fs::write(&file, slopes::draw(&report.slopes)).with_context(|| file.display().to_string())?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}
