//! How fast a body has to come.

use std::time::Duration;

use axum::http::StatusCode;
use tokio::time::{Instant, timeout};

use crate::error::ApiError;
use hatchery::config::ServerConfig;

/// The times of one body: it must not pause, keep a minimum rate after two times a pause, and be whole before a deadline.
pub(super) struct Pace {
    start: Instant,
    received: usize,
    pause: Duration,
    rate: usize,
    deadline: Duration,
}

impl Pace {
    /// Starts with the first wait.
    pub(super) fn start(config: &ServerConfig) -> Self {
        Self {
            start: Instant::now(),
            received: 0,
            pause: config.body_timeout,
            rate: config.min_body_rate.bytes().max(1),
            deadline: config.body_deadline,
        }
    }

    /// Counts bytes that came.
    pub(super) fn received(&mut self, bytes: usize) {
        self.received += bytes;
    }

    /// Waits for more.
    ///
    /// # Errors
    /// 408 when it does not come in time.
    pub(super) async fn wait<T>(&self, more: impl Future<Output = T>) -> Result<T, ApiError> {
        let left = self.due().saturating_sub(self.start.elapsed());
        timeout(left.min(self.pause), more)
            .await
            .map_err(|_| if left < self.pause { self.slow() } else { self.silent() })
    }

    /// When the next bytes have to be there, from the start: each received byte earns some time.
    fn due(&self) -> Duration {
        let earned = Duration::from_secs_f64(self.received as f64 / self.rate as f64);
        (self.pause * 2 + earned).min(self.deadline)
    }

    fn silent(&self) -> ApiError {
        let pause = self.pause.as_secs_f64();
        late(format!("nothing more of the body came for {pause} s; send it without pauses"))
    }

    fn slow(&self) -> ApiError {
        late(format!(
            "the body comes too slowly, {} bytes in {:.0} s; send at least {} bytes a second, and all of it within {} s",
            self.received,
            self.start.elapsed().as_secs_f64(),
            self.rate,
            self.deadline.as_secs_f64()
        ))
    }
}

fn late(detail: String) -> ApiError {
    ApiError::new(StatusCode::REQUEST_TIMEOUT, "BODY_TIMEOUT", detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hatchery::byte_size::ByteSize;

    fn pace(received: usize) -> Pace {
        let config = ServerConfig {
            body_timeout: Duration::from_secs(30),
            min_body_rate: ByteSize(1000),
            body_deadline: Duration::from_secs(300),
            ..ServerConfig::default()
        };
        Pace { received, ..Pace::start(&config) }
    }

    #[test]
    fn bytes_earn_time_up_to_the_deadline() {
        for (received, seconds) in [(0, 60), (1000, 61), (100_000, 160), (usize::MAX >> 12, 300)] {
            assert_eq!(pace(received).due(), Duration::from_secs(seconds), "{received} bytes");
        }
    }
}
