//! Connections of one component: the address that is checked is the one that is used, so a name cannot change between the two.

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

use super::fault::{AnyError, Fault};
use crate::policy::{Denial, Grants, Target, blocked_range};
use crate::runtime::limits::{Limit, Limits};

/// Makes connections.
pub(super) type Connector = BoxCloneSyncService<Uri, MaybeHttpsStream<TokioIo<TcpStream>>, AnyError>;

/// TLS sessions that one component may take up again.
const KEPT_TLS_SESSIONS: usize = 64;

/// Names that are looked up at one time, for all components.
const MOST_LOOKUPS: usize = 64;

/// What makes connections for a component.
///
/// # Errors
/// When TLS cannot be set up.
pub(super) fn connector(component: Arc<str>, grants: Arc<Grants>, limits: &Limits) -> Result<Connector, Fault> {
    let (patience, too_slow) = (limits.connect_timeout, limits.hit(Limit::ConnectTimeout));
    let gate = Arc::new(Gate { component, grants, patience });
    let plain = tower::service_fn(move |uri: Uri| {
        let gate = gate.clone();
        async move { gate.connect(&uri).await }
    });
    let any = HttpsConnectorBuilder::new()
        .with_tls_config(tls()?)
        .https_or_http()
        .enable_http1()
        .enable_http2()
        .wrap_connector(plain);
    Ok(BoxCloneSyncService::new(tower::service_fn(move |uri: Uri| {
        let (connected, too_slow) = (timeout(patience, any.clone().oneshot(uri)), Fault::from(too_slow.clone()));
        connected.map(move |in_time| in_time.unwrap_or_else(|_| Err(too_slow.into())))
    })))
}

struct Gate {
    component: Arc<str>,
    grants: Arc<Grants>,
    patience: Duration,
}

impl Gate {
    async fn connect(&self, uri: &Uri) -> Result<TokioIo<TcpStream>, Fault> {
        let target = Target::of(uri).ok_or(Fault::Url)?;
        let addresses = self.addresses(&target).await?;
        // None may use up the time of the others.
        let share = self.patience / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut last = None;
        for address in addresses {
            let connected = timeout(share, TcpStream::connect(address)).await;
            match connected.unwrap_or_else(|late| Err(late.into())) {
                Ok(stream) => {
                    // Requests are written whole.
                    let _ = stream.set_nodelay(true);
                    return Ok(TokioIo::new(stream));
                }
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into());
        Err(Fault::Unreachable { host: target.host_and_port(), kind: error.kind(), reason: error.to_string() })
    }

    /// The addresses of a host that the component may connect to.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, Fault> {
        let no_address = |reason: String| Fault::NoAddress { host: target.host.clone(), reason };
        let found = look_up(target.host.clone(), target.port).await.map_err(|error| no_address(error.to_string()))?;
        let (mut allowed, mut refused) = (Vec::new(), None);
        for address in found {
            match blocked_range(&self.grants.private_network, target, address.ip()) {
                None => allowed.push(address),
                Some(reserved_range) => refused = Some((address.ip(), reserved_range)),
            }
        }
        match refused {
            Some((address, reserved_range)) if allowed.is_empty() => {
                let host = target.host_and_port();
                let what = if target.address.is_some() {
                    reserved_range.to_string()
                } else {
                    format!("at {address}, {reserved_range}")
                };
                let action = format!("connect to `{host}`, {what}");
                Err(Denial::new(&self.component, action, format!("private_network: [\"{host}\"]")).into())
            }
            None if allowed.is_empty() => Err(no_address("the name is known, but has none".into())),
            Some(_) | None => Ok(allowed),
        }
    }
}

/// Asks the system for the addresses of a host. That occupies a thread until the system answers, also when nobody waits any more, so only
/// so many ask at one time.
async fn look_up(host: String, port: u16) -> std::io::Result<Vec<SocketAddr>> {
    static PLACES: Semaphore = Semaphore::const_new(MOST_LOOKUPS);
    let place = PLACES.acquire().await.map_err(std::io::Error::other)?;
    let asked = tokio::spawn(async move {
        let _place = place;
        lookup_host((host.as_str(), port)).await.map(Iterator::collect)
    });
    asked.await.map_err(std::io::Error::other)?
}

/// TLS with the roots of this machine, and sessions of the component's own.
fn tls() -> Result<ClientConfig, Fault> {
    let builder = || {
        let provider = Arc::new(aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(Fault::Tls)
    };
    let mut config = match builder()?.with_platform_verifier() {
        Ok(config) => config.with_no_client_auth(),
        Err(error) => {
            tracing::warn!("components cannot use https: this machine's root certificates cannot be read: {error}");
            builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
        }
    };
    config.resumption = Resumption::in_memory_sessions(KEPT_TLS_SESSIONS);
    Ok(config)
}
