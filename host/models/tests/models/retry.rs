//! Categories of errors, with their retry strategies and delays.

use std::time::Duration;

use hatchery_core::{ModelError, ModelErrorKind};
use hatchery_models::retry::{ErrorCategory, RetryStrategy, delay, is_retryable, normalized_message};

#[test]
fn each_kind_of_error_has_a_category_with_a_strategy() {
    use RetryStrategy::{ExponentialBackoff, FixedDelay, NoRetry};
    let cases = [
        (ModelErrorKind::Auth, ErrorCategory::Auth, NoRetry, "Authentication failed: m"),
        (ModelErrorKind::RateLimited, ErrorCategory::RateLimited, ExponentialBackoff, "Rate limited: m"),
        (ModelErrorKind::Network, ErrorCategory::Network, FixedDelay, "Network error: m"),
        (ModelErrorKind::BadRequest, ErrorCategory::Client, NoRetry, "Client error: m"),
        (ModelErrorKind::Server, ErrorCategory::Server, ExponentialBackoff, "Server error: m"),
        (ModelErrorKind::Timeout, ErrorCategory::Timeout, ExponentialBackoff, "Request timed out: m"),
        (ModelErrorKind::UnknownModel, ErrorCategory::Model, NoRetry, "Model error: m"),
        (ModelErrorKind::BadResponse, ErrorCategory::Unknown, NoRetry, "Unknown error: m"),
        (ModelErrorKind::Cancelled, ErrorCategory::Unknown, NoRetry, "Unknown error: m"),
    ];
    for (kind, category, strategy, message) in cases {
        assert_eq!(ErrorCategory::from(kind), category);
        assert_eq!(category.strategy(), strategy);
        assert_eq!(is_retryable(category), strategy != NoRetry);
        assert_eq!(normalized_message(&ModelError::new(kind, "x", "m")), message);
    }
}

#[test]
fn a_status_has_a_category() {
    for (status, category) in [
        (400, ErrorCategory::Client),
        (401, ErrorCategory::Auth),
        (403, ErrorCategory::Auth),
        (404, ErrorCategory::Model),
        (408, ErrorCategory::Timeout),
        (422, ErrorCategory::Client),
        (429, ErrorCategory::RateLimited),
        (500, ErrorCategory::Server),
        (504, ErrorCategory::Timeout),
        (529, ErrorCategory::Server),
        (302, ErrorCategory::Unknown),
    ] {
        assert_eq!(ErrorCategory::from_status(status), category, "{status}");
    }
}

#[test]
fn the_words_of_a_message_do_not_change_its_category() {
    let error = ModelError::new(ModelErrorKind::BadRequest, "x", "429 rate limit: the host timed out");
    assert!(!is_retryable(error.kind.into()));
}

#[test]
fn the_delay_depends_on_the_strategy_and_the_attempt() {
    let seconds = |strategy| [0, 1, 2, 3, 4, 5, 40, u32::MAX].map(|attempt| delay(strategy, attempt));
    let all = |delays: [u64; 8]| delays.map(|delay| Some(Duration::from_secs(delay)));
    assert_eq!(seconds(RetryStrategy::NoRetry), [None; 8]);
    assert_eq!(seconds(RetryStrategy::ImmediateRetry), all([0; 8]));
    assert_eq!(seconds(RetryStrategy::FixedDelay), all([1; 8]));
    assert_eq!(seconds(RetryStrategy::ExponentialBackoff), all([1, 2, 4, 8, 16, 30, 30, 30]));
}
