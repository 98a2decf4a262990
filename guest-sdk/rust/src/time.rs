//! Sleep: waiting for a time without using CPU time.

use std::time::Duration;

use crate::host::clock;

/// Waits. Futures that are awaited concurrently make progress. It is time of the call, but not CPU time. In unit tests
/// it returns immediately.
///
/// ```no_run
/// # use std::time::Duration;
/// # use hatchery_guest::http;
/// # async fn example() -> Result<(), hatchery_guest::Error> {
/// while http::get("https://api.example.com/orders/7").await?.text().await? != "arrived" {
///     hatchery_guest::time::sleep(Duration::from_secs(1)).await;
/// }
/// # Ok(())
/// # }
/// ```
pub async fn sleep(duration: Duration) {
    clock::sleep(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)).await;
}
