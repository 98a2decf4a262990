//! `cargo xtask load`: prints a line for each row as it is measured, and a table at the end. Its arguments are the
//! seconds of each row, a part of the rows' names, and `--json`.

use std::time::Duration;

use anyhow::Context;
use hatchery_tests::load::{Plan, Report, floor, run};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let (flags, values): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    if flags.iter().any(|flag| flag == floor::FLAG) {
        return floor::serve().await;
    }
    let mut values = values.into_iter();
    let seconds = values.next().unwrap_or_else(|| "5".into());
    let seconds: f64 = seconds.parse().with_context(|| format!("`{seconds}` is not a number of seconds"))?;
    let filter = values.next().unwrap_or_default();
    let plan = Plan { duration: Duration::try_from_secs_f64(seconds)?, connections: 8 };
    let rows = run(&plan, &filter, |row| eprintln!("{row}")).await?;
    if flags.iter().any(|flag| flag == "--json") {
        println!("{}", serde_json::to_string(&rows)?);
    } else {
        print!("{}", Report(&rows));
    }
    Ok(())
}
