//! HTTP requests to a registry. Responses are read up to a limit.

use oci_client::secrets::RegistryAuth;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, header};
use serde::Deserialize;

use super::token::{Authorization, Challenge, answer, authorize, challenge_of};
use super::{CONNECT_TIMEOUT, READ_TIMEOUT, RegistryClient, failure};
use crate::error::RegistryError;
use crate::reference::Reference;

/// The maximum size of a manifest in bytes, which is the usual limit of registries and clients.
pub(super) const MAX_MANIFEST_BYTES: u64 = 4 << 20;

/// The maximum size of an error response in bytes.
const MAX_ERROR_BYTES: u64 = 64 << 10;

/// The maximum number of redirects of a request.
const MAX_REDIRECTS: usize = 5;

/// A connection to the registry of a reference.
pub(super) struct Transport<'a> {
    pub(super) http: Client,
    pub(super) client: &'a RegistryClient,
    pub(super) reference: &'a Reference,
    /// The login, for messages and for the token service.
    pub(super) auth: RegistryAuth,
    pub(super) authorization: Authorization,
}

/// An error response of a registry.
#[derive(Deserialize)]
struct Envelope {
    errors: Vec<EnvelopeError>,
}

#[derive(Deserialize)]
struct EnvelopeError {
    #[serde(default)]
    message: String,
}

impl<'a> Transport<'a> {
    /// Logs in to the registry of `reference` if it requires it. `actions` are the requested permissions, such as
    /// `pull,push`.
    pub(super) async fn open(
        client: &'a RegistryClient,
        reference: &'a Reference,
        actions: &str,
    ) -> Result<Self, RegistryError> {
        let auth = client.credentials.for_registry(reference.registry()).await;
        let builder = Client::builder();
        // Its traffic, which may be plain HTTP, does not leave this machine.
        let builder = if reference.is_loopback() { builder.no_proxy() } else { builder };
        let http = builder
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")))
            // Sizes and digests belong to the bytes on the wire.
            .no_gzip()
            .redirect(Policy::custom(follow_redirect))
            .build()
            .map_err(|error| failure::unreachable(client, reference, &error))?;
        let mut transport = Self { http, client, reference, auth, authorization: Authorization::Anonymous };
        transport.authorization = authorize(&transport, actions).await?;
        Ok(transport)
    }

    /// Returns the URL of a path of the registry, such as `v2/…`.
    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let scheme = if self.client.is_https(self.reference) { "https" } else { "http" };
        let url = format!("{scheme}://{}/{path}", self.reference.registry());
        url.parse().map_err(|error| RegistryError::InvalidReference {
            reference: self.reference.to_string(),
            reason: format!("{error}"),
        })
    }

    /// Sends a GET request for a path of the repository, such as `manifests/1.0`.
    pub(super) async fn get(&self, path: &str, accept: Option<&str>) -> Result<Response, RegistryError> {
        let url = self.repository_url(path)?;
        let request = |authorization: &Authorization| {
            let request = self.http.get(url.clone());
            let request = accept.into_iter().fold(request, |request, accept| request.header(header::ACCEPT, accept));
            authorization.apply(request)
        };
        let mut response = self.send(request(&self.authorization)).await?;
        if let Some(challenge) = self.later_challenge(&response, &url) {
            let authorization = answer(self, Some(challenge), "pull").await?;
            response = self.send(request(&authorization)).await?;
        }
        if response.status().is_success() { Ok(response) } else { Err(self.response_error(response).await) }
    }

    /// Logs in for uploads if the registry requires it only for them: begins one to see its challenge.
    pub(super) async fn authorize_upload(&mut self) -> Result<(), RegistryError> {
        if !matches!(self.auth, RegistryAuth::Basic(..)) || !matches!(self.authorization, Authorization::Anonymous) {
            return Ok(());
        }
        let url = self.repository_url("blobs/uploads/")?;
        let response = self.send(self.http.post(url.clone()).header(header::CONTENT_LENGTH, 0)).await?;
        if let Some(challenge) = self.later_challenge(&response, &url) {
            self.authorization = answer(self, Some(challenge), "pull,push").await?;
        } else if response.status() == StatusCode::ACCEPTED
            && let Some(upload) = location(&response, &url)
        {
            // An upload that cannot be cancelled expires.
            let _ = self.send(self.http.delete(upload)).await;
        }
        Ok(())
    }

    /// Returns the URL of a path of the repository.
    fn repository_url(&self, path: &str) -> Result<Url, RegistryError> {
        self.url(&format!("v2/{}/{path}", self.reference.oci().repository()))
    }

    /// Returns the challenge of a response to an anonymous request to `url`. A server that the registry redirects to
    /// gets no login.
    fn later_challenge(&self, response: &Response, url: &Url) -> Option<Challenge> {
        let is_asked = response.status() == StatusCode::UNAUTHORIZED
            && response.url().origin() == url.origin()
            && matches!(self.authorization, Authorization::Anonymous);
        is_asked.then(|| challenge_of(response)).flatten()
    }

    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        request.send().await.map_err(|error| self.connection_error(&error))
    }

    /// Reads the body. Returns `None` if it has more than `max` bytes.
    pub(super) async fn read(&self, mut response: Response, max: u64) -> Result<Option<Vec<u8>>, RegistryError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.connection_error(&error))? {
            if (bytes.len() + chunk.len()) as u64 > max {
                return Ok(None);
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Some(bytes))
    }

    pub(super) fn connection_error(&self, error: &reqwest::Error) -> RegistryError {
        failure::unreachable(self.client, self.reference, error)
    }

    /// Converts an error response.
    pub(super) async fn response_error(&self, response: Response) -> RegistryError {
        let status = response.status();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return failure::unauthorized(self.reference, &self.auth);
            }
            StatusCode::NOT_FOUND => return RegistryError::NotFound { reference: self.reference.to_string() },
            _ => {}
        }
        let text = self.read(response, MAX_ERROR_BYTES).await.ok().flatten().unwrap_or_default();
        let envelope = serde_json::from_slice::<Envelope>(&text).ok();
        let message = envelope.and_then(|envelope| envelope.errors.into_iter().next()).map(|error| error.message);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(&text).into_owned());
        let message = if message.trim().is_empty() { message } else { format!(": {message}") };
        failure::unexpected_response(self.reference, &format!("status {}{message}", status.as_u16()))
    }
}

/// Returns the upload that the registry has begun at `url`. `None` if another server has it.
fn location(response: &Response, url: &Url) -> Option<Url> {
    let location = url.join(response.headers().get(header::LOCATION)?.to_str().ok()?).ok()?;
    (location.origin() == url.origin()).then_some(location)
}

/// Follows redirects, except from HTTPS to plain HTTP.
fn follow_redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let was_https = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if was_https && attempt.url().scheme() != "https" {
        let host = attempt.url().host_str().unwrap_or_default().to_owned();
        return attempt.error(format!("it redirects to {host} over plain HTTP, which is not followed"));
    }
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error("it redirects too often");
    }
    attempt.follow()
}
