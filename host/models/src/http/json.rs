//! Requests and responses that are one JSON value.

use bytes::Bytes;
use hatchery_core::{HttpOptions, ModelCallProgress, ModelError, ModelErrorKind};
use reqwest::Url;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Endpoint;

/// Serializes the body of a request. The error is a complete message.
pub(crate) fn to_json(body: &impl Serialize) -> Result<Bytes, String> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|error| format!("the request cannot be written as JSON: {error}"))
}

impl Endpoint {
    /// Sends a request and parses the response.
    pub(crate) async fn post_json<R: DeserializeOwned>(
        &self,
        url: &Url,
        request: &impl Serialize,
    ) -> Result<R, ModelError> {
        let body = to_json(request).map_err(|message| self.origin.error(ModelErrorKind::BadRequest, message))?;
        let response = self.post(url, body, &HttpOptions::default(), &ModelCallProgress::default()).await?;
        let body = self.read_body(response).await?;
        serde_json::from_slice(&body).map_err(|error| self.origin.bad_response(error))
    }
}
