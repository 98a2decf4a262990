//! Where there is no host.

use super::{Call, Reply, failed};
use crate::error::Error;

/// The body of a response that never comes.
pub(super) enum Body {}

impl Body {
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match *self {}
    }
}

pub(super) async fn exchange(call: Call<'_>) -> Result<Reply, Error> {
    let Call { method, url, headers, body, timeout } = call;
    let size = body.len();
    Err(failed(format!(
        "there is no host outside of a component, so nothing answers {method} {url} ({} headers, {size} bytes, timeout {timeout:?})",
        headers.len()
    )))
}
