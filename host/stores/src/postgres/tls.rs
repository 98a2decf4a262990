//! TLS to the server, by rustls. The server is always authenticated.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hatchery_core::StoreError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

/// The ALPN protocol name, which servers with direct TLS require.
const PROTOCOL: &[u8] = b"postgresql";

/// Returns the settings of a connection, with the authorities of a PEM file or the system's authorities.
pub(super) fn client_config(root_file: Option<&Path>) -> Result<Arc<ClientConfig>, StoreError> {
    let failed = |error: rustls::Error| StoreError::backend("cannot set up TLS to PostgreSQL", error);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(failed)?;
    let mut config = match root_file {
        Some(file) => builder.with_root_certificates(roots(file)?).with_no_client_auth(),
        None => builder.with_platform_verifier().map_err(failed)?.with_no_client_auth(),
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Arc::new(config))
}

/// Reads certificates of authorities.
fn roots(file: &Path) -> Result<RootCertStore, StoreError> {
    let invalid = |error: &dyn std::fmt::Display| {
        StoreError::InvalidRequest(format!(
            "`sslrootcert` {}: {error}; name a PEM file with certificates",
            file.display()
        ))
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| invalid(&error))? {
        let certificate = certificate.map_err(|error| invalid(&error))?;
        roots.add(certificate).map_err(|error| invalid(&error))?;
    }
    if roots.is_empty() { Err(invalid(&"it has no certificate")) } else { Ok(roots) }
}

/// Encrypts connections.
#[derive(Clone)]
pub(super) struct MakeEncrypted(pub(super) Arc<ClientConfig>);

/// Encrypts the connection to one server.
pub(super) struct Encrypt {
    connector: TlsConnector,
    server: ServerName<'static>,
}

pub(super) struct EncryptedConnection(client::TlsStream<Socket>);

impl MakeTlsConnect<Socket> for MakeEncrypted {
    type Stream = EncryptedConnection;
    type TlsConnect = Encrypt;
    type Error = rustls::pki_types::InvalidDnsNameError;

    fn make_tls_connect(&mut self, domain: &str) -> Result<Encrypt, Self::Error> {
        let server = ServerName::try_from(domain)?.to_owned();
        Ok(Encrypt { connector: TlsConnector::from(self.0.clone()), server })
    }
}

impl TlsConnect<Socket> for Encrypt {
    type Stream = EncryptedConnection;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<EncryptedConnection>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.server, socket).await.map(EncryptedConnection) })
    }
}

impl TlsStream for EncryptedConnection {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for EncryptedConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
