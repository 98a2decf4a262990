//! Log lines, on stderr.

use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::audit::AuditLayer;
use crate::progress::BehindBar;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

/// The variable that says what is logged.
const VARIABLE: &str = "HATCHERY_LOG";

/// Starts logging. `HATCHERY_LOG` says what, else `default`.
pub fn start(format: LogFormat, default: &str) -> anyhow::Result<()> {
    let directives = std::env::var(VARIABLE).ok().filter(|directives| !directives.trim().is_empty());
    let directives = directives.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(directives).with_context(|| format!("{VARIABLE}=`{directives}`"))?;
    let lines = tracing_subscriber::fmt::layer().with_writer(|| BehindBar);
    let log = tracing_subscriber::registry().with(AuditLayer::filtered());
    match format {
        LogFormat::Text => {
            log.with(lines.with_ansi(crate::terminal::stderr_has_colours()).with_filter(filter)).try_init()
        }
        LogFormat::Json => log.with(lines.json().with_filter(filter)).try_init(),
    }
    .map_err(|error| anyhow::anyhow!("logging cannot start: {error}"))
}
