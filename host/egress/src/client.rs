//! HTTP clients that connect only where a policy allows it. The address that is checked is the one that is used, so a
//! DNS answer cannot change in between (DNS rebinding).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
pub use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Response};
use thiserror::Error;

/// Decides where a host may connect to.
pub trait Egress: Send + Sync {
    /// Checks the scheme, the host and the port of a URL.
    ///
    /// # Errors
    /// The refusal with the setting that would allow it.
    fn check_url(&self, url: &Url) -> Result<(), String>;

    /// Checks an address that the host of a URL has.
    ///
    /// # Errors
    /// The refusal with the setting that would allow it.
    fn check_address(&self, url: &Url, address: IpAddr) -> Result<(), String>;
}

/// Timeouts of a client.
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the next byte of a response.
    pub read: Duration,
}

/// Checks the scheme, the host and a literal address of a URL, before its host is resolved.
///
/// # Errors
/// The reason of the refusal.
pub fn check(egress: &Arc<dyn Egress>, url: &Url) -> Result<(), String> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("`{url}` is neither http nor https"));
    }
    egress.check_url(url)?;
    literal_address(url).map_or(Ok(()), |address| egress.check_address(url, address))
}

/// Returns a client for requests to one URL. It follows no redirects and uses no proxy, which would hide the address.
///
/// # Errors
/// The refusal, or the reason why there is no client.
pub fn client(egress: &Arc<dyn Egress>, url: &Url, timeouts: Timeouts) -> Result<Client, String> {
    check(egress, url)?;
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .connect_timeout(timeouts.connect)
        .read_timeout(timeouts.read)
        .dns_resolver(CheckedResolver { egress: egress.clone(), url: url.clone() })
        .build()
        .map_err(|error| format!("cannot create an HTTP client: {error}"))
}

/// Returns the address if the host of a URL is an IP address, which is not resolved.
fn literal_address(url: &Url) -> Option<IpAddr> {
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// The refusal of all addresses of a host.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct RefusedAddress(String);

/// Returns the refusal that has caused an error of a request.
pub fn refusal(error: &reqwest::Error) -> Option<String> {
    let mut causes = std::iter::successors(std::error::Error::source(error), |error| error.source());
    causes.find_map(|cause| cause.downcast_ref::<RefusedAddress>()).map(|RefusedAddress(reason)| reason.clone())
}

/// Resolves the host of a URL to the addresses that are allowed.
struct CheckedResolver {
    egress: Arc<dyn Egress>,
    url: Url,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, url) = (self.egress.clone(), self.url.clone());
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let (mut allowed, mut refusal) = (Vec::new(), None);
            for address in found {
                match egress.check_address(&url, address.ip()) {
                    Ok(()) => allowed.push(address),
                    Err(reason) => refusal = Some(reason),
                }
            }
            match refusal {
                Some(reason) if allowed.is_empty() => Err(RefusedAddress(reason).into()),
                Some(_) | None => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

/// Describes an error of a request with its causes, without the URL, which may hold credentials.
pub fn describe(error: reqwest::Error) -> String {
    causes(&error.without_url())
}

fn causes(error: &reqwest::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), std::error::Error::source(error));
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text.push_str(&format!(": {reason}"));
        }
        cause = error.source();
    }
    text
}

/// The reason why a body was not read.
#[derive(Debug, Error)]
pub enum BodyError {
    /// It is larger than the limit. The rest was not read.
    #[error("it is larger than {0} bytes")]
    TooLarge(usize),
    /// The connection failed. The error does not have its URL.
    #[error("{}", causes(.0))]
    Connection(reqwest::Error),
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// If the body is larger, or the connection fails.
pub async fn read_body(response: Response, limit: usize) -> Result<Vec<u8>, BodyError> {
    let mut chunks = response.bytes_stream();
    let mut body = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| BodyError::Connection(error.without_url()))?;
        if body.len() + chunk.len() > limit {
            return Err(BodyError::TooLarge(limit));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
