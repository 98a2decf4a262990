//! `cargo xtask soak`: a host under everything at once; prints a line from time to time, and ends with 1 when something did not hold.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use hatchery_tests::soak::{Plan, run};

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let minutes = std::env::args().nth(1).unwrap_or_else(|| "1".into());
    let minutes: f64 = minutes.parse().with_context(|| format!("`{minutes}` is not a number of minutes"))?;
    let plan = Plan {
        lasts: Duration::try_from_secs_f64(minutes * 60.0)?,
        clients: 16,
        swap_every: Duration::from_millis(250),
        look_every: Duration::from_secs(5),
    };
    let outcome = run(&plan, |sample| println!("{sample}")).await?;
    if let Some(last) = outcome.samples.last() {
        println!("{last}");
        for (kind, count) in &last.good {
            println!("  {count:>8}  {kind} ended as it must");
        }
    }
    for complaint in &outcome.complaints {
        println!("  ✗ {complaint}");
    }
    Ok(if outcome.complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
