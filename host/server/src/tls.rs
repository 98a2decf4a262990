//! TLS with a certificate and a key in files, which are read again when they change.

mod expiry;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use hatchery::TlsConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::time::MissedTickBehavior;
use tokio_rustls::TlsAcceptor;

use crate::connections::ALPN;

/// Interval between checks of the files. A change counts when it is this old.
const INTERVAL: Duration = Duration::from_millis(500);

/// The certificate of a server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ArcSwap<TlsConfig>>,
    provider: Arc<CryptoProvider>,
    current: Arc<CurrentCertificate>,
    acceptor: TlsAcceptor,
    /// Stamps of the files from before they were read for the first time.
    first: Stamps,
}

/// The certificate for the next handshake.
#[derive(Debug)]
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// When the files were changed, and their sizes.
type Stamps = [Option<(SystemTime, u64)>; 2];

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// The problem, with the file.
    pub(crate) fn open(config: &TlsConfig) -> Result<Self, String> {
        let first = stamps(config);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let current = Arc::new(CurrentCertificate(ArcSwap::from_pointee(read(config, &provider)?)));
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let mut server = builder.with_no_client_auth().with_cert_resolver(current.clone());
        server.alpn_protocols = ALPN.map(<[u8]>::to_vec).to_vec();
        let acceptor = TlsAcceptor::from(Arc::new(server));
        Ok(Self { config: Arc::new(ArcSwap::from_pointee(config.clone())), provider, current, acceptor, first })
    }

    /// Returns the acceptor of connections. Each connection uses the current certificate.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Reads the files again whenever they have changed. Never returns.
    pub(crate) async fn follow_files(&self) {
        let (mut used, mut seen) = (self.first, self.first);
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let now = stamps(&self.config.load());
            // The two files are not replaced atomically, so they are read once they no longer change.
            if now == seen && now != used {
                used = now;
                self.reload();
            }
            seen = now;
        }
    }

    /// Reads the files again. If they cannot be used, the previous certificate is kept.
    fn reload(&self) {
        let config = TlsConfig::clone(&self.config.load());
        match self.prepare(&config) {
            Ok(replace) => replace(),
            Err(problem) => tracing::error!("server.tls: {problem}; the previous certificate stays in use"),
        }
    }

    /// Reads the files of a configuration. Returns a function that replaces the certificate.
    ///
    /// # Errors
    /// The problem, with the file.
    pub(crate) fn prepare(&self, config: &TlsConfig) -> Result<impl FnOnce() + Send + use<>, String> {
        let (key, tls, config) = (read(config, &self.provider)?, self.clone(), config.clone());
        Ok(move || {
            tracing::info!(certificate = %config.certificate.display(), "the certificate was read again");
            tls.current.0.store(Arc::new(key));
            tls.config.store(Arc::new(config));
        })
    }
}

fn stamps(config: &TlsConfig) -> Stamps {
    let stamp = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    };
    [stamp(&config.certificate), stamp(&config.key)]
}

/// Checks that a server can use a certificate and its key.
///
/// # Errors
/// The problem, with the file.
pub fn check_tls(config: &TlsConfig) -> Result<(), String> {
    Tls::open(config).map(|_| ())
}

/// Reads a certificate with its key.
fn read(config: &TlsConfig, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let (certificate, key) = (config.certificate.display(), config.key.display());
    let certificates = CertificateDer::pem_file_iter(&config.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| format!("{certificate}: {}", describe(error)))?;
    let Some(first) = certificates.first() else {
        return Err(format!("{certificate}: it has no certificate in PEM"));
    };
    expiry::check(first, SystemTime::now()).map_err(|problem| format!("{certificate}: {problem}"))?;
    let private = PrivateKeyDer::from_pem_file(&config.key).map_err(|error| match error {
        pem::Error::NoItemsFound => format!("{key}: it has no private key in PEM"),
        error => format!("{key}: {}", describe(error)),
    })?;
    CertifiedKey::from_der(certificates, private, provider)
        .map_err(|error| format!("{certificate} and {key} do not fit together: {error}"))
}

fn describe(error: pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        error => format!("it is not PEM: {error}"),
    }
}
