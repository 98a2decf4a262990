//! HTTP transport of unit tests: requests go to the mock host.

use super::{Call, Reply, http_error};
use crate::error::Error;
use crate::testing::{self, HttpRequest};

/// The body of a response, in one chunk.
pub(super) struct Body(Option<Vec<u8>>);

impl Body {
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.take().filter(|body| !body.is_empty()))
    }
}

pub(super) async fn exchange(call: Call<'_>) -> Result<Reply, Error> {
    let Call { method, url, headers, body, timeout } = call;
    let (method, url) = (method.to_owned(), url.to_string());
    let request = HttpRequest { method, url, headers: headers.to_vec(), body: body.to_vec(), timeout };
    let response = testing::imports::http::exchange(request).map_err(|error| match error.code.as_str() {
        // There is no mock host outside of a test.
        "NO_HOST" => http_error(error.message),
        _ => error,
    })?;
    Ok(Reply { status: response.status, headers: response.headers, body: Body(Some(response.body)) })
}
