//! The tracing subscriber of the command: log lines on stderr, and the audit log.

mod components;
mod fields;

use anyhow::Context;
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::audit::AuditLayer;
use crate::progress::LogWriter;
use components::ComponentFormat;
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

/// Modules of the MCP library that log errors with the URL of a server, which may hold a key. The host reports these
/// errors without it.
const SILENT_MODULES: [&str; 5] = [
    "rmcp::transport::auth",
    "rmcp::transport::common::client_side_sse",
    "rmcp::transport::common::reqwest",
    "rmcp::transport::streamable_http_client",
    "rmcp::transport::worker",
];

/// Installs the subscriber. `default` is the filter if `HATCHERY_LOG` is not set. `is_for_authors` is true for a command
/// that people use who write components.
pub fn start(format: LogFormat, default: &str, is_for_authors: bool) -> anyhow::Result<()> {
    let directives = std::env::var(VARIABLE).ok().filter(|directives| !directives.trim().is_empty());
    let directives = directives.as_deref().unwrap_or(default);
    // Of two directives for a module the last one counts, so the user's own can switch its log on.
    let silent: String = SILENT_MODULES.iter().map(|module| format!("{module}=off,")).collect();
    let filter = EnvFilter::try_new(format!("{silent}{directives}"))
        .with_context(|| format!("invalid log filter {VARIABLE}=`{directives}`"))?;
    let format_layer = tracing_subscriber::fmt::layer().with_writer(|| LogWriter);
    let log = tracing_subscriber::registry().with(AuditLayer::filtered());
    match format {
        LogFormat::Text => {
            let format_layer = format_layer.fmt_fields(Fields).with_ansi(crate::terminal::stderr_has_colours());
            if is_for_authors {
                let format_layer = format_layer.event_format(ComponentFormat::default());
                log.with(format_layer.with_filter(filter)).try_init()
            } else {
                log.with(format_layer.with_filter(filter)).try_init()
            }
        }
        LogFormat::Json => log.with(format_layer.json().with_filter(filter)).try_init(),
    }
    .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use hatchery_core::sync::MutexExt;
    use tracing_subscriber::fmt::MakeWriter;

    /// Captures the output of a subscriber.
    #[derive(Clone, Default)]
    pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(super) fn text(&self) -> String {
            String::from_utf8(self.0.lock_unpoisoned().clone()).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock_unpoisoned().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }
}
