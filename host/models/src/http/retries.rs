//! Retries of requests, until the first byte of a response.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use backon::{BackoffBuilder, ExponentialBuilder, Retryable};
use hatchery_core::sync::MutexExt;
use hatchery_core::{ModelAttempt, ModelCallProgress, ModelError, ModelErrorKind, RetryOptions, pluralize};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::retry::{self as categories, BASE_DELAY, ErrorCategory, MAX_DELAY, RetryStrategy};

const MAX_ATTEMPTS: usize = 3;
/// Maximum time since the first attempt at which a retry may be scheduled.
const RETRY_PERIOD: Duration = Duration::from_secs(90);

/// A model call whose request may be sent several times.
pub(super) struct RetriedCall<'a> {
    pub(super) model: &'a str,
    pub(super) options: &'a RetryOptions,
    pub(super) progress: &'a ModelCallProgress,
}

/// Sends a request until an attempt succeeds, fails for good or is the last one. Each attempt is part of the trace;
/// `status` returns the HTTP status of a successful one.
pub(super) async fn retry<T, F: Future<Output = Result<T, ModelError>>>(
    call: RetriedCall<'_>,
    status: impl Fn(&T) -> Option<u16>,
    mut send: impl FnMut() -> F,
) -> Result<T, ModelError> {
    let RetriedCall { model, options, progress } = call;
    let started = Instant::now();
    let (attempts, status) = (&Attempts::default(), &status);
    let mut number = 0;
    let attempt = || {
        number += 1;
        attempts.begin(progress.start_attempt(model, number));
        let sent = send();
        async move {
            let result = sent.await;
            attempts.update(|attempt| match &result {
                Ok(response) => attempt.succeed(status(response)),
                Err(error) => attempt.fail(error, ErrorCategory::from(error.kind).name()),
            });
            result
        }
    };
    attempt
        .retry(backoff(options))
        .when(|error: &ModelError| {
            is_retried(error, options, started.elapsed()) && progress.exhausted_retries().is_none()
        })
        .adjust(|error: &ModelError, delay| delay_after(error, delay?, options))
        .notify(|error, delay| {
            progress.count_retry();
            attempts.update(|attempt| attempt.set_retry_delay(delay));
            tracing::debug!(%error, ?delay, "retrying the model call");
        })
        .await
        .map_err(|mut error| {
            let can_succeed = is_retried(&error, options, started.elapsed());
            if let Some(reason) = reason_not_retried(&error, progress).filter(|_| can_succeed) {
                error.message.push_str(&format!("; not sent again: {reason}"));
            }
            error
        })
}

/// Returns the reason why a request that may succeed later is not sent again: the provider asks for a long wait, or the
/// run has used its retries.
fn reason_not_retried(error: &ModelError, progress: &ModelCallProgress) -> Option<String> {
    if let Some(wait) = error.retry_after.filter(|wait| *wait > MAX_DELAY) {
        let (seconds, max) = (wait.as_secs_f64().ceil(), MAX_DELAY.as_secs());
        return Some(format!("it can be sent after {seconds} s, and the host waits for at most {max} s"));
    }
    let retries = pluralize(progress.exhausted_retries()?, "retry", "retries");
    Some(format!("the run has used its {retries} (`max_model_retries`)"))
}

/// The attempts of a call. The last one is kept until the next begins, because the delay between them is known late.
#[derive(Default)]
struct Attempts(Mutex<Option<ModelAttempt>>);

impl Attempts {
    fn begin(&self, attempt: ModelAttempt) {
        *self.0.lock_unpoisoned() = Some(attempt);
    }

    fn update(&self, update: impl FnOnce(&mut ModelAttempt)) {
        if let Some(attempt) = self.0.lock_unpoisoned().as_mut() {
            update(attempt);
        }
    }
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

/// Returns the delay after an error, instead of the one of the backoff. `None` if the provider asks for a longer one
/// than is waited.
fn delay_after(error: &ModelError, backoff: Duration, options: &RetryOptions) -> Option<Duration> {
    match error.retry_after {
        Some(retry_after) => {
            (retry_after <= MAX_DELAY).then(|| retry_after + jitter(retry_after.min(BASE_DELAY), options))
        }
        None => match ErrorCategory::from(error.kind).strategy() {
            RetryStrategy::FixedDelay if options.initial_delay.is_none() => {
                Some(BASE_DELAY + jitter(BASE_DELAY, options))
            }
            _ => Some(backoff),
        },
    }
}

/// Returns a random time shorter than `max`, so that the clients of a provider do not all retry at the same time. Zero
/// if it is switched off.
fn jitter(max: Duration, options: &RetryOptions) -> Duration {
    let once =
        RetryOptions { initial_delay: Some(max.as_secs_f64()), jitter: options.jitter, ..RetryOptions::default() };
    backoff(&once).build().next().unwrap_or_default().saturating_sub(max)
}

/// Returns true if a request is sent again after this error, `elapsed` since the first attempt.
fn is_retried(error: &ModelError, options: &RetryOptions, elapsed: Duration) -> bool {
    let can_succeed = match (&options.http_status_codes, error.status) {
        // The account has no credit left, and waiting does not change that.
        (_, Some(429)) if error.kind == ModelErrorKind::Auth => false,
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
    fn a_random_time_is_added_to_every_delay() {
        let (random, exact) = (RetryOptions::default(), RetryOptions { jitter: Some(0.0), ..RetryOptions::default() });
        let error = |kind, retry_after| ModelError { retry_after, ..ModelError::new(kind, "m", "no") };
        let seconds = Duration::from_secs;
        let later = |time| Some(seconds(time));
        for (error, backoff, base, most) in [
            (error(ModelErrorKind::Network, None), seconds(8), seconds(1), seconds(2)),
            (error(ModelErrorKind::RateLimited, later(20)), seconds(8), seconds(20), seconds(21)),
            (error(ModelErrorKind::RateLimited, later(30)), seconds(8), seconds(30), seconds(31)),
            (error(ModelErrorKind::RateLimited, Some(Duration::ZERO)), seconds(8), Duration::ZERO, Duration::ZERO),
            (error(ModelErrorKind::Server, None), seconds(8), seconds(8), seconds(8)),
        ] {
            assert_eq!(delay_after(&error, backoff, &exact), Some(base), "{error:?}");
            let delays: Vec<_> = (0..20).filter_map(|_| delay_after(&error, backoff, &random)).collect();
            assert!(delays.len() == 20 && delays.iter().all(|delay| (base..=most).contains(delay)), "{delays:?}");
            assert_eq!(delays.iter().any(|delay| delay != &delays[0]), base < most, "{delays:?}");
        }
        assert_eq!(delay_after(&error(ModelErrorKind::RateLimited, later(31)), seconds(8), &random), None);
    }

    #[test]
    fn the_backoff_doubles_up_to_its_maximum_with_up_to_as_much_again() {
        let exact = RetryOptions { attempts: Some(8), jitter: Some(0.0), ..RetryOptions::default() };
        let delays: Vec<_> = backoff(&exact).build().map(|delay| delay.as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 8, 16, 30, 30]);
        let random = RetryOptions { jitter: None, ..exact };
        for (delay, base) in backoff(&random).build().zip(delays) {
            assert!((base..=2 * base).contains(&delay.as_secs()), "{delay:?} for {base} s");
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
