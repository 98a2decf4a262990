//! The tracing subscriber of the command: log lines on stderr, and the audit log.

mod fields;

use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::audit::AuditLayer;
use crate::progress::LogWriter;
use fields::Fields;

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// The environment variable with the log filter.
const VARIABLE: &str = "HATCHERY_LOG";

/// Installs the subscriber. `default` is the filter if `HATCHERY_LOG` is not set.
pub fn start(format: LogFormat, default: &str) -> anyhow::Result<()> {
    let directives = std::env::var(VARIABLE).ok().filter(|directives| !directives.trim().is_empty());
    let directives = directives.as_deref().unwrap_or(default);
    let filter =
        EnvFilter::try_new(directives).with_context(|| format!("invalid log filter {VARIABLE}=`{directives}`"))?;
    let format_layer = tracing_subscriber::fmt::layer().with_writer(|| LogWriter);
    let log = tracing_subscriber::registry().with(AuditLayer::filtered());
    match format {
        LogFormat::Text => {
            let format_layer = format_layer.fmt_fields(Fields).with_ansi(crate::terminal::stderr_has_colours());
            log.with(format_layer.with_filter(filter)).try_init()
        }
        LogFormat::Json => log.with(format_layer.json().with_filter(filter)).try_init(),
    }
    .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
