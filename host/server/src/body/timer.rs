//! Timeouts and minimum rate of a request body, against slow clients.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::{Instant, timeout};

use crate::error::ApiError;
use hatchery::ServerConfig;

/// Limits of one body: a timeout between two chunks, a minimum rate after two such timeouts, and a timeout for the
/// whole body.
pub(super) struct BodyTimer {
    start: Instant,
    received: usize,
    idle_timeout: Duration,
    /// Bytes per second.
    min_rate: usize,
    timeout: Duration,
}

impl BodyTimer {
    pub(super) fn start(config: &ServerConfig) -> Self {
        Self {
            start: Instant::now(),
            received: 0,
            idle_timeout: config.body_idle_timeout,
            min_rate: config.min_body_rate.bytes().max(1),
            timeout: config.body_timeout,
        }
    }

    pub(super) fn add_received(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// Waits for the next chunk.
    ///
    /// # Errors
    /// 408 if it is not received in time.
    pub(super) async fn wait<T>(&self, chunk: impl Future<Output = T>) -> Result<T, ApiError> {
        let remaining = self.deadline().saturating_sub(self.start.elapsed());
        timeout(remaining.min(self.idle_timeout), chunk)
            .await
            .map_err(|_| if remaining < self.idle_timeout { self.rate_error() } else { self.idle_error() })
    }

    /// Returns the time until which the next chunk must arrive, from the start. Each received byte extends it.
    fn deadline(&self) -> Duration {
        let earned = Duration::from_secs_f64(self.received as f64 / self.min_rate as f64);
        (self.idle_timeout * 2 + earned).min(self.timeout)
    }

    fn idle_error(&self) -> ApiError {
        let seconds = self.idle_timeout.as_secs_f64();
        timed_out(format!("no data of the body was received for {seconds} s; send it without pauses"))
    }

    fn rate_error(&self) -> ApiError {
        timed_out(format!(
            "the body is sent too slowly, {} bytes in {:.0} s; send at least {} bytes per second and the whole body within {} s",
            self.received,
            self.start.elapsed().as_secs_f64(),
            self.min_rate,
            self.timeout.as_secs_f64()
        ))
    }
}

fn timed_out(detail: String) -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::ByteSize;

    fn timer(received: usize) -> BodyTimer {
        let config = ServerConfig {
            body_idle_timeout: Duration::from_secs(30),
            min_body_rate: ByteSize(1000),
            body_timeout: Duration::from_secs(300),
            ..ServerConfig::default()
        };
        BodyTimer { received, ..BodyTimer::start(&config) }
    }

    #[test]
    fn received_bytes_extend_the_deadline_up_to_the_timeout() {
        for (received, seconds) in [(0, 60), (1000, 61), (100_000, 160), (usize::MAX >> 12, 300)] {
            assert_eq!(timer(received).deadline(), Duration::from_secs(seconds), "{received} bytes");
        }
    }
}
