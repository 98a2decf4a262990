//! Lists of a server: fetched page by page, and again after the server has reported a change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::PaginatedRequestParams;
use rmcp::service::ServiceError;
use tokio::sync::Mutex;

use super::McpError;
use super::connection::{Connection, describe_causes};

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 64;

/// A list that is kept until it has changed.
pub(super) struct ServerList<T> {
    items: Mutex<Option<Arc<T>>>,
    /// True if the list has changed since it was fetched.
    is_stale: AtomicBool,
}

impl<T> Default for ServerList<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), is_stale: AtomicBool::new(false) }
    }
}

impl<T> ServerList<T> {
    pub(super) fn mark_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
    }

    /// Returns the list, which is fetched if it is not known, has changed, or is not to be kept.
    pub(super) async fn get(
        &self,
        is_kept: bool,
        fetch: impl Future<Output = Result<T, McpError>>,
    ) -> Result<Arc<T>, McpError> {
        let mut items = self.items.lock().await;
        if self.is_stale.swap(false, Ordering::AcqRel) || !is_kept {
            *items = None;
        }
        if let Some(items) = items.as_ref() {
            return Ok(items.clone());
        }
        let fetched = Arc::new(fetch.await?);
        Ok(items.insert(fetched).clone())
    }

    /// Returns the list that was fetched last. `None` also while one is being fetched.
    pub(super) fn latest(&self) -> Option<Arc<T>> {
        self.items.try_lock().ok().and_then(|items| items.clone())
    }
}

/// Describes an error without the names of Rust types.
fn describe(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => describe_causes(error.error.as_ref()),
        error => error.to_string(),
    }
}

/// Fetches all pages of a list. A connection whose server demands access is closed.
///
/// # Errors
/// If the server refuses, does not answer in time, or has more than `max` items, which `too_many` reports.
pub(super) async fn fetch_pages<T, F>(
    connection: &Connection,
    max: usize,
    too_many: &str,
    fetch: impl Fn(Option<PaginatedRequestParams>) -> F,
) -> Result<Vec<T>, String>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), ServiceError>>,
{
    let timeout = connection.limits.call_timeout;
    let (mut items, mut cursor) = (Vec::new(), None);
    for _ in 0..MAX_PAGES {
        let mut params = PaginatedRequestParams::default();
        params.cursor = cursor;
        let page = tokio::time::timeout(timeout, fetch(Some(params))).await;
        let page = page.map_err(|_| format!("no answer within {} s", timeout.as_secs_f64()))?;
        let (page, next) = page.map_err(|error| {
            connection.refusal(&error);
            describe(&error)
        })?;
        items.extend(page);
        if items.len() > max {
            return Err(too_many.to_owned());
        }
        cursor = next;
        if cursor.is_none() {
            return Ok(items);
        }
    }
    Err(format!("the list has more than {MAX_PAGES} pages"))
}
