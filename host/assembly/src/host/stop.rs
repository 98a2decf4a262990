//! The end of a host. Each wait has a bound, and a log line once it takes longer than usual.

use std::pin::pin;
use std::time::Duration;

use tokio::time::timeout;

use super::Host;

/// How long [`Host::stop`] waits for runs that it has cancelled, and for a change of the configuration in progress.
const MAX_RUN_WAIT: Duration = Duration::from_secs(2);

/// Timeout for closing plugins, connections and code executors. Executors that run code in containers have a shorter
/// one.
const MAX_CLOSE_WAIT: Duration = Duration::from_secs(11);

/// Timeout of the services of sessions and memory for completing their work.
const MAX_STORE_WAIT: Duration = Duration::from_secs(5);

/// How long a wait takes at most without a log line.
const SILENT_WAIT: Duration = Duration::from_millis(500);

impl Host {
    /// Waits until no run is active, then closes the plugins, the toolsets of all apps, the connections to MCP servers
    /// and the code executors. Everything that does not close within eleven seconds is abandoned, with a warning in the
    /// log.
    pub async fn close(self) {
        self.runner.drain().await;
        self.close_parts().await;
    }

    /// [Closes](Host::close) the host and its services of sessions and memory within 18 seconds, for the end of the
    /// process. Stops active runs, which the next start can continue, and abandons everything that does not end in
    /// time. The configuration changes no more.
    pub async fn stop(self) {
        self.runner.stop_runs();
        tokio::join!(
            wait_for("a change of the configuration", MAX_RUN_WAIT, self.live.close()),
            wait_for("runs, the ends of turns and compactions", MAX_RUN_WAIT, self.runner.drain()),
        );
        self.close_parts().await;
        let services = self.services();
        tokio::join!(
            wait_for("the session service", MAX_STORE_WAIT, services.sessions.close()),
            wait_for("the memory service", MAX_STORE_WAIT, services.memory.close()),
        );
    }

    async fn close_parts(&self) {
        let toolsets = async {
            for app in self.apps.app_names().iter().filter_map(|name| self.apps.app(name)) {
                app.close().await;
            }
        };
        let connections = &self.live.parts.connections;
        tokio::join!(
            wait_for("plugins", MAX_CLOSE_WAIT, self.runner.close_plugins()),
            wait_for("toolsets", MAX_CLOSE_WAIT, toolsets),
            wait_for("MCP servers", MAX_CLOSE_WAIT, connections.close_mcp_servers()),
            wait_for("code executors", MAX_CLOSE_WAIT, connections.close_executors()),
        );
    }
}

/// Waits for the end of a part of the host, at most for `max`.
async fn wait_for(part: &str, max: Duration, end: impl Future<Output = ()>) {
    let mut end = pin!(end);
    if timeout(SILENT_WAIT, &mut end).await.is_ok() {
        return;
    }
    tracing::info!("stopping: waiting for {part}, at most {} seconds", max.as_secs());
    if timeout(max.saturating_sub(SILENT_WAIT), end).await.is_err() {
        tracing::warn!("{}", expiry(part, max));
    }
}

fn expiry(part: &str, max: Duration) -> String {
    format!("stopping: gave up waiting for {part} after {} seconds", max.as_secs())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_part_that_does_not_end_is_given_up() {
        let begin = Instant::now();
        wait_for("a part", MAX_CLOSE_WAIT, std::future::pending()).await;
        assert_eq!(begin.elapsed().as_secs(), MAX_CLOSE_WAIT.as_secs());
        assert_eq!(expiry("a part", MAX_CLOSE_WAIT), "stopping: gave up waiting for a part after 11 seconds");
        wait_for("a part", MAX_CLOSE_WAIT, std::future::ready(())).await;
        assert_eq!(begin.elapsed().as_secs(), MAX_CLOSE_WAIT.as_secs());
    }
}
