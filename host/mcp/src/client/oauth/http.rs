//! Requests to authorization servers, whose URLs the MCP server has named: only to where the host may connect.

use std::sync::Arc;
use std::time::Duration;

use hatchery_egress::{Egress, Timeouts, Url, client, describe, read_body, refusal};
use http::{Method, Request, Response};
use reqwest::header::LOCATION;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest,
};

/// Maximum size of an answer.
const MAX_BODY: usize = 1 << 20;

/// Maximum number of redirects of one request.
const MAX_REDIRECTS: usize = 3;

/// An HTTP client that checks each URL and each address against a policy.
pub(super) struct CheckedHttpClient {
    pub(super) egress: Arc<dyn Egress>,
    pub(super) timeout: Duration,
}

impl OAuthHttpClient for CheckedHttpClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let follows = request.redirect_policy == OAuthHttpRedirectPolicy::Follow;
            // A redirect would carry the credentials of anything but a plain request for a document to another host.
            let follows = follows && request.request.method() == Method::GET;
            let request = request.request;
            let mut url: Url = request.uri().to_string().parse()?;
            for _ in 0..=MAX_REDIRECTS {
                let response = self.send(&request, &url).await?;
                let target = response.headers().get(LOCATION).filter(|_| follows && response.status().is_redirection());
                let Some(target) = target else { return Ok(response) };
                url = url.join(target.to_str()?)?;
            }
            Err(format!("there were more than {MAX_REDIRECTS} redirects").into())
        })
    }
}

impl CheckedHttpClient {
    async fn send(&self, request: &Request<Vec<u8>>, url: &Url) -> Result<Response<Vec<u8>>, OAuthHttpClientError> {
        let timeouts = Timeouts { connect: self.timeout, read: self.timeout };
        let sent = client(&self.egress, url, timeouts)?
            .request(request.method().clone(), url.clone())
            .headers(request.headers().clone())
            .body(request.body().clone())
            .timeout(self.timeout)
            .send()
            .await;
        let response = sent.map_err(|error| refusal(&error).unwrap_or_else(|| describe(error)))?;
        let mut answer = Response::builder().status(response.status());
        if let Some(headers) = answer.headers_mut() {
            *headers = response.headers().clone();
        }
        Ok(answer.body(read_body(response, MAX_BODY).await?)?)
    }
}
