//! A remote agent: its card, which is read lazily, and the connection that the card describes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hatchery_core::sync::MutexExt;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;

use super::connection::Connection;
use super::{CardSource, ClientError, RemoteAgentConfig};
use crate::card::{AgentCard, Interface, JSON_RPC};
use crate::codec::Version;
use crate::error::excerpt;
use hatchery_egress::{BodyError, FileError, Timeouts, client, read_body, read_file};

/// Lifetime of a cached card.
const CARD_LIFETIME: Duration = Duration::from_secs(300);

/// A remote agent. Cheap to share.
pub(super) struct Peer {
    pub(super) config: RemoteAgentConfig,
    /// The connection, and when its card was read.
    connection: Mutex<Option<(Instant, Arc<Connection>)>>,
}

impl Peer {
    pub(super) fn new(config: RemoteAgentConfig) -> Arc<Self> {
        Arc::new(Self { config, connection: Mutex::default() })
    }

    /// Returns the connection. Reads the card first if it is outdated.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, ClientError> {
        let known = self.connection.lock_unpoisoned().clone();
        if let Some((_, connection)) = known.filter(|(read, _)| read.elapsed() < CARD_LIFETIME) {
            return Ok(connection);
        }
        let headers = self.headers()?;
        let (card, card_url) = self.read_card(&headers).await?;
        let connection = Arc::new(self.connect(&card, card_url.as_ref(), headers)?);
        *self.connection.lock_unpoisoned() = Some((Instant::now(), connection.clone()));
        Ok(connection)
    }

    /// Drops the cached connection, so that the next message reads the agent card again.
    pub(super) fn reset(&self) {
        *self.connection.lock_unpoisoned() = None;
    }

    /// Reads the card. Also returns its URL, which is the base of the URLs in it; `None` for a file.
    async fn read_card(&self, headers: &HeaderMap) -> Result<(AgentCard, Option<Url>), ClientError> {
        let RemoteAgentConfig { card, egress, limits, .. } = &self.config;
        let (bytes, url) = match card {
            CardSource::Url(text) => {
                let url = Url::parse(text).map_err(|error| ClientError::Card(format!("`{text}`: {error}")))?;
                let client = client(egress, &url, self.timeouts()).map_err(ClientError::Refused)?;
                let request = client.get(url.clone()).headers(headers.clone()).header("accept", "application/json");
                let read = async {
                    let lost = |error| ClientError::request(error, limits.read_timeout);
                    let response = request.send().await.map_err(lost)?;
                    if !response.status().is_success() {
                        return Err(ClientError::Card(format!("the answer has the status {}", response.status())));
                    }
                    read_answer(response, limits.max_card, "card", "max_card", limits.read_timeout).await
                };
                let timeout = limits.connect_timeout + limits.connect_timeout;
                let body =
                    tokio::time::timeout(timeout, read).await.map_err(|_| ClientError::CardTimeout(timeout))??;
                (body, Some(url))
            }
            CardSource::File(path) => {
                let read = read_file(path, limits.max_card).await.map_err(|error| match error {
                    FileError::TooLarge(limit) => ClientError::TooLarge { what: "card", limit, key: "max_card" },
                    FileError::Io(error) => ClientError::CardFile { file: path.clone(), reason: error.to_string() },
                });
                (read?, None)
            }
        };
        let json: Value = serde_json::from_slice(&bytes).map_err(|error| ClientError::Card(error.to_string()))?;
        Ok((AgentCard::from_json(&json).map_err(ClientError::Card)?, url))
    }

    /// Creates a connection to the interface that is chosen from a card.
    fn connect(&self, card: &AgentCard, card_url: Option<&Url>, headers: HeaderMap) -> Result<Connection, ClientError> {
        let RemoteAgentConfig { egress, limits, .. } = &self.config;
        let (interface, version) = choose_interface(card)?;
        let url = match card_url {
            Some(base) => base.join(&interface.url),
            None => Url::parse(&interface.url),
        };
        let url = url.map_err(|error| ClientError::Card(format!("`{}`: {error}", excerpt(&interface.url))))?;
        let client = client(egress, &url, self.timeouts()).map_err(ClientError::Refused)?;
        Ok(Connection {
            client,
            egress: egress.clone(),
            url,
            version,
            headers,
            tenant: interface.tenant.clone(),
            is_streaming: card.streaming,
            limits: limits.clone(),
        })
    }

    fn timeouts(&self) -> Timeouts {
        let limits = &self.config.limits;
        Timeouts { connect: limits.connect_timeout, read: limits.read_timeout }
    }

    fn headers(&self) -> Result<HeaderMap, ClientError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.config.headers {
            let invalid = || ClientError::Header(name.clone());
            let value = value.read().map_err(|missing| ClientError::variable(name, missing))?;
            let mut value = HeaderValue::from_str(&value).map_err(|_| invalid())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?, value);
        }
        Ok(headers)
    }
}

/// Returns the newest interface that this host speaks.
fn choose_interface(card: &AgentCard) -> Result<(&Interface, Version), ClientError> {
    let usable = card.interfaces.iter().filter(|it| it.binding.eq_ignore_ascii_case(JSON_RPC));
    let usable = usable.filter_map(|interface| Some((interface, Version::from_name(&interface.version)?)));
    // Of several with the same version, the first is preferred.
    let best = usable.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.ok_or_else(|| {
        let offered =
            card.interfaces.iter().take(5).map(|it| format!("{} {}", excerpt(&it.binding), excerpt(&it.version)));
        ClientError::Interface(offered.collect::<Vec<_>>().join(", "))
    })
}

/// Reads an answer of limited size.
pub(super) async fn read_answer(
    response: Response,
    limit: usize,
    what: &'static str,
    key: &'static str,
    read_timeout: Duration,
) -> Result<Vec<u8>, ClientError> {
    read_body(response, limit).await.map_err(|error| match error {
        BodyError::TooLarge(limit) => ClientError::TooLarge { what, limit, key },
        BodyError::Connection(error) => ClientError::request(error, read_timeout),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(interfaces: &[(&str, &str)]) -> AgentCard {
        let interfaces = interfaces.iter().map(|(binding, version)| Interface {
            url: format!("https://{version}.example"),
            binding: (*binding).into(),
            version: (*version).into(),
            tenant: None,
        });
        AgentCard { interfaces: interfaces.collect(), ..AgentCard::default() }
    }

    #[test]
    fn the_newest_version_is_chosen() {
        for offered in [[("JSONRPC", "0.3.0"), ("JSONRPC", "1.0")], [("JSONRPC", "1.0"), ("JSONRPC", "0.3")]] {
            assert_eq!(choose_interface(&card(&offered)).unwrap().1, Version::V1_0);
        }
        assert_eq!(choose_interface(&card(&[("GRPC", "1.0"), ("JSONRPC", "0.3")])).unwrap().1, Version::V0_3);
        let error = choose_interface(&card(&[("GRPC", "1.0"), ("JSONRPC", "7.0")])).unwrap_err();
        let expected = "it speaks GRPC 1.0, JSONRPC 7.0; this host speaks JSONRPC in versions 0.3 and 1.0";
        assert_eq!(error.to_string(), expected);
    }
}
