//! Connections of one component. The address that is checked is the one that is used, so a DNS answer cannot change
//! in between (DNS rebinding).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use http::Uri;
use hyper_rustls::{HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::rt::TokioIo;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tower::ServiceExt;
use tower::util::BoxCloneSyncService;

use super::error::{AnyError, HttpError};
use crate::policy::{Denial, Grants, Target, blocked_range};
use crate::runtime::limits::{Limit, Limits};

pub(super) type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, AnyError>;

/// TLS sessions that one component may resume.
const MAX_TLS_SESSIONS: usize = 64;

/// Concurrent DNS lookups of all components.
const MAX_LOOKUPS: usize = 64;

/// Creates the connector of a component.
///
/// # Errors
/// If TLS cannot be set up.
pub(super) fn connector(component: Arc<str>, grants: Arc<Grants>, limits: &Limits) -> Result<Connector, HttpError> {
    let (connect_timeout, too_slow) = (limits.connect_timeout, limits.exceeded(Limit::ConnectTimeout));
    let connector = Arc::new(GrantedConnector { component, grants, connect_timeout });
    let tcp = tower::service_fn(move |uri: Uri| {
        let connector = connector.clone();
        async move { connector.connect(&uri).await }
    });
    let http_or_https = HttpsConnectorBuilder::new()
        .with_tls_config(tls()?)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(tcp);
    Ok(BoxCloneSyncService::new(tower::service_fn(move |uri: Uri| {
        let (connected, too_slow) =
            (timeout(connect_timeout, http_or_https.clone().oneshot(uri)), HttpError::from(too_slow.clone()));
        connected.map(move |in_time| in_time.unwrap_or_else(|_| Err(too_slow.into())))
    })))
}

struct GrantedConnector {
    component: Arc<str>,
    grants: Arc<Grants>,
    connect_timeout: Duration,
}

impl GrantedConnector {
    async fn connect(&self, uri: &Uri) -> Result<TokioIo<TcpStream>, HttpError> {
        let target = Target::from_uri(uri).ok_or(HttpError::Url)?;
        let addresses = self.resolve(&target).await?;
        // No address may use up the time of the others.
        let share = self.connect_timeout / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        for address in addresses {
            let connected = timeout(share, TcpStream::connect(address)).await;
            match connected.unwrap_or_else(|late| Err(late.into())) {
                Ok(stream) => {
                    // Requests are written in one piece.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into());
        Err(HttpError::Unreachable { host: target.host_and_port(), kind: error.kind(), reason: error.to_string() })
    }

    /// Resolves a host. Returns the addresses that the component may connect to.
    async fn resolve(&self, target: &Target) -> Result<Vec<SocketAddr>, HttpError> {
        let no_address = |reason: String| HttpError::NoAddress { host: target.host.clone(), reason };
        let resolved = lookup(target.host.clone(), target.port).await.map_err(|error| no_address(error.to_string()))?;
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in resolved {
            match blocked_range(&self.grants.private_network, target, address.ip()) {
                None => allowed.push(address),
                Some(reserved_range) => refused = Some((address.ip(), reserved_range)),
            }
        }
        match refused {
            Some((address, reserved_range)) if allowed.is_empty() => {
                let host = target.host_and_port();
                let detail = if target.address.is_some() {
                    reserved_range.to_string()
                } else {
                    format!("at {address}, {reserved_range}")
                };
                let action = format!("connect to `{host}`, {detail}");
                Err(Denial::new(&self.component, action, format!("private_network: [\"{host}\"]")).into())
            }
            None if allowed.is_empty() => Err(no_address("the name is known, but has none".into())),
            Some(_) | None => Ok(allowed),
        }
    }
}

/// Resolves a host by the system. That occupies a thread until the system answers, even if the caller is dropped, so
/// the number of lookups is bounded.
async fn lookup(host: String, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    static PERMITS: Semaphore = Semaphore::const_new(MAX_LOOKUPS);
    let permit = PERMITS.acquire().await.map_err(std::io::Error::other)?;
    let lookup = tokio::spawn(async move {
        let _permit = permit;
        lookup_host((host.as_str(), port)).await.map(Iterator::collect)
    });
    lookup.await.map_err(std::io::Error::other)?
}

/// Returns a TLS configuration with the root certificates of this machine, and a separate session cache.
fn tls() -> Result<ClientConfig, HttpError> {
    let builder = || {
        let provider = Arc::new(aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(HttpError::Tls)
    };
    let mut config = match builder()?.with_platform_verifier() {
        Ok(config) => config.with_no_client_auth(),
        Err(error) => {
            tracing::warn!("components cannot use https: this machine's root certificates cannot be read: {error}");
            builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
    };
    config.resumption = Resumption::in_memory_sessions(MAX_TLS_SESSIONS);
    Ok(config)
}
