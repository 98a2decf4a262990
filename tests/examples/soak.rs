//! `cargo xtask soak`: runs the soak test. Prints a line per sample and tables at the end; the exit code is 1 if a
//! condition is violated. Its arguments are a number of minutes and `--json`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use hatchery_tests::soak::{Plan, Report, run};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let (flags, values): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let is_json = flags.iter().any(|flag| flag == "--json");
    let minutes = values.into_iter().next().unwrap_or_else(|| "1".into());
    let minutes: f64 = minutes.parse().with_context(|| format!("`{minutes}` is not a number of minutes"))?;
    let plan = Plan {
        duration: Duration::try_from_secs_f64(minutes * 60.0)?,
        clients: 16,
        attackers: 4,
        swap_interval: Duration::from_millis(250),
        sample_interval: Duration::from_secs(5),
    };
    let outcome = run(&plan, |sample| eprintln!("{sample}")).await?;
    if is_json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        print!("{}", Report(&outcome));
    }
    Ok(if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
