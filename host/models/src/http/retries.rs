//! Retries of requests, until the first byte of a response.

use std::time::{Duration, Instant, SystemTime};

use backon::{ExponentialBuilder, Retryable};
use hatchery_core::{ModelCallProgress, ModelError, RetryOptions};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::retry::{self as categories, BASE_DELAY, ErrorCategory, MAX_DELAY, RetryStrategy};

const MAX_ATTEMPTS: usize = 3;
/// Maximum time since the first attempt at which a retry may be scheduled.
const RETRY_PERIOD: Duration = Duration::from_secs(90);

/// Sends a request until an attempt succeeds, fails for good or is the last one.
pub(super) async fn retry<T, F: Future<Output = Result<T, ModelError>>>(
    options: &RetryOptions,
    progress: &ModelCallProgress,
    send: impl FnMut() -> F,
) -> Result<T, ModelError> {
    let started = Instant::now();
    send.retry(backoff(options))
        .when(|error: &ModelError| {
            is_retried(error, options, started.elapsed()) && progress.exhausted_retries().is_none()
        })
        .adjust(|error: &ModelError, delay| match error.retry_after {
            Some(retry_after) => delay.and((retry_after <= MAX_DELAY).then_some(retry_after)),
            None => match ErrorCategory::from(error.kind).strategy() {
                RetryStrategy::FixedDelay if options.initial_delay.is_none() => delay.map(|_| BASE_DELAY),
                _ => delay,
            },
        })
        .notify(|error, delay| {
            progress.count_retry();
            tracing::debug!(%error, ?delay, "retrying the model call");
        })
        .await
        .map_err(|mut error| {
            let can_succeed = is_retried(&error, options, started.elapsed());
            if let Some(max) = progress.exhausted_retries().filter(|_| can_succeed) {
                error
                    .message
                    .push_str(&format!("; not sent again: the run has used its {max} retries (`max_model_retries`)"));
            }
            error
        })
}

/// Returns the delays between attempts.
pub(crate) fn backoff(retry: &RetryOptions) -> ExponentialBuilder {
    let delay = |seconds: Option<f64>, default| seconds.map_or(default, Duration::from_secs_f64);
    let attempts = retry.attempts.map_or(MAX_ATTEMPTS, |attempts| attempts as usize);
    let backoff = ExponentialBuilder::new()
        .with_min_delay(delay(retry.initial_delay, BASE_DELAY))
        .with_max_delay(delay(retry.max_delay, MAX_DELAY))
        .with_factor(retry.exp_base.map_or(2.0, |base| base.max(1.0) as f32))
        .with_max_times(attempts.saturating_sub(1));
    if retry.jitter == Some(0.0) { backoff } else { backoff.with_jitter() }
}

/// Returns true if a request is sent again after this error, `elapsed` since the first attempt.
fn is_retried(error: &ModelError, options: &RetryOptions, elapsed: Duration) -> bool {
    let can_succeed = match (&options.http_status_codes, error.status) {
        (Some(codes), Some(status)) => codes.contains(&status),
        (_, _) => categories::is_retryable(error.kind.into()),
    };
    can_succeed && elapsed < RETRY_PERIOD
}

/// Parses `Retry-After`, which is a number of seconds or a date.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    match value.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => {
            let date = httpdate::parse_http_date(value).ok()?;
            Some(date.duration_since(SystemTime::now()).unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::ModelErrorKind;

    use super::*;

    #[test]
    fn no_request_is_sent_again_after_ninety_seconds() {
        let error = ModelError::new(ModelErrorKind::Timeout, "m", "slow");
        let codes = RetryOptions { http_status_codes: Some(vec![404]), ..RetryOptions::default() };
        let not_found = ModelError { status: Some(404), ..error.clone() };
        for (error, options) in [(error, RetryOptions::default()), (not_found, codes)] {
            assert!(is_retried(&error, &options, RETRY_PERIOD - Duration::from_millis(1)));
            assert!(!is_retried(&error, &options, RETRY_PERIOD));
        }
    }

    #[test]
    fn retry_after_is_read_as_seconds_or_as_a_date() {
        let read = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            retry_after(&headers)
        };
        assert_eq!(read("7"), Some(Duration::from_secs(7)));
        assert_eq!(read("Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(read("Tue, 31 Dec 2999 23:59:59 GMT").unwrap() > MAX_DELAY);
        assert_eq!(read("soon"), None);
    }
}
