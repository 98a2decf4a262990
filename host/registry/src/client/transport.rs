//! Requests to a registry whose answers are read up to a limit, since a registry may send anything.

use oci_client::secrets::RegistryAuth;
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, header};
use serde::Deserialize;

use super::token::{Access, authorize};
use super::{CONNECT, IDLE, Registries, failure};
use crate::error::RegistryError;
use crate::reference::Reference;

/// Most bytes of a manifest, as registries and other clients limit them.
pub(super) const MAX_MANIFEST: u64 = 4 << 20;

/// Most bytes of an error's text.
const MAX_ERROR: u64 = 64 << 10;

/// Most redirects of a request.
const MAX_REDIRECTS: usize = 5;

/// A registry, and what is shown to it.
pub(super) struct Transport<'a> {
    pub(super) client: Client,
    pub(super) registries: &'a Registries,
    pub(super) reference: &'a Reference,
    /// Who one is, for messages and for the token service.
    pub(super) auth: RegistryAuth,
    pub(super) access: Access,
}

/// What a registry says is wrong.
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
    /// Logs in to the registry of `reference` as far as it wants that; `actions` is what is to be done there, as in `pull,push`.
    pub(super) async fn open(
        registries: &'a Registries,
        reference: &'a Reference,
        actions: &str,
    ) -> Result<Self, RegistryError> {
        let auth = registries.credentials.of(reference.registry()).await;
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .read_timeout(IDLE)
            .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")))
            // What is asked for is compared with its size and digest as it was sent.
            .no_gzip()
            .redirect(Policy::custom(redirect))
            .build()
            .map_err(|error| failure::unreachable(registries, reference, &error))?;
        let mut transport = Self { client, registries, reference, auth, access: Access::Anonymous };
        transport.access = authorize(&transport, actions).await?;
        Ok(transport)
    }

    /// A place below the registry's API: `v2/…`.
    pub(super) fn url(&self, path: &str) -> Result<Url, RegistryError> {
        let scheme = if self.registries.is_https(self.reference) { "https" } else { "http" };
        let url = format!("{scheme}://{}/{path}", self.reference.registry());
        url.parse().map_err(|error| RegistryError::Reference {
            reference: self.reference.to_string(),
            reason: format!("{error}"),
        })
    }

    /// Gets what is at a place of the repository, such as `manifests/1.0`.
    pub(super) async fn get(&self, path: &str, accept: Option<&str>) -> Result<Response, RegistryError> {
        let request = self.client.get(self.url(&format!("v2/{}/{path}", self.reference.oci().repository()))?);
        let request = accept.into_iter().fold(request, |request, accept| request.header(header::ACCEPT, accept));
        let response = self.send(self.access.show(request)).await?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(response).await) }
    }

    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, RegistryError> {
        request.send().await.map_err(|error| self.broken(&error))
    }

    /// The whole body, or `None` when it has more than `most` bytes.
    pub(super) async fn read(&self, mut response: Response, most: u64) -> Result<Option<Vec<u8>>, RegistryError> {
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.broken(&error))? {
            if (bytes.len() + piece.len()) as u64 > most {
                return Ok(None);
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes))
    }

    pub(super) fn broken(&self, error: &reqwest::Error) -> RegistryError {
        failure::unreachable(self.registries, self.reference, error)
    }

    /// The error of an answer that is none.
    pub(super) async fn refusal(&self, response: Response) -> RegistryError {
        let status = response.status();
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return failure::unauthorized(self.reference, &self.auth);
            }
            StatusCode::NOT_FOUND => return RegistryError::NotFound { reference: self.reference.to_string() },
            _ => {}
        }
        let text = self.read(response, MAX_ERROR).await.ok().flatten().unwrap_or_default();
        let envelope = serde_json::from_slice::<Envelope>(&text).ok();
        let said = envelope.and_then(|envelope| envelope.errors.into_iter().next()).map(|error| error.message);
        let said = said.unwrap_or_else(|| String::from_utf8_lossy(&text).into_owned());
        let said = if said.trim().is_empty() { said } else { format!(": {said}") };
        failure::refused(self.reference, &format!("status {}{said}", status.as_u16()))
    }
}

/// Follows redirects, but from HTTPS never to plain HTTP.
fn redirect(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    let was_https = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
    if was_https && attempt.url().scheme() != "https" {
        let place = attempt.url().host_str().unwrap_or_default().to_owned();
        return attempt.error(format!("it redirects to {place} over plain HTTP, which is not followed"));
    }
    if attempt.previous().len() > MAX_REDIRECTS {
        return attempt.error("it redirects too often");
    }
    attempt.follow()
}
