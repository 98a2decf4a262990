//! Thread-local subscribers of `tracing`, with which tests capture logs.

use std::sync::LazyLock;

use tracing::Dispatch;
use tracing::subscriber::NoSubscriber;

/// Keeps events enabled for the subscribers of single threads. With a single subscriber, an event that a thread without
/// one records first would be disabled for all threads.
pub fn keep_events_enabled() {
    static SECOND_SUBSCRIBER: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(NoSubscriber::new()));
    LazyLock::force(&SECOND_SUBSCRIBER);
}
