//! Talking to a registry: what is asked for is checked against its digest, and what goes wrong is said in words that name it.

mod failure;

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::manifest::{IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciImageManifest};
use oci_client::secrets::RegistryAuth;
use oci_client::{Client, RegistryOperation};

use crate::artifact::{Artifact, Layer};
use crate::component::{Digest, Interfaces};
use crate::credentials::Credentials;
use crate::error::RegistryError;
use crate::file;
use crate::progress::{Listener, Progress};
use crate::reference::Reference;
use crate::signature::{KeyId, SigningKey};

const CONNECT: Duration = Duration::from_secs(10);
/// How long nothing may come.
const IDLE: Duration = Duration::from_secs(60);

/// Registries, as who one is for them.
pub struct Registries {
    credentials: Credentials,
    plain_http: bool,
    listener: Listener,
}

/// What has been pushed.
#[derive(Debug)]
pub struct Pushed {
    /// The digest of its manifest.
    pub manifest: Digest,
    /// The digest of its bytes.
    pub file: Digest,
    /// The key that has signed it.
    pub signer: Option<KeyId>,
}

/// What a reference means now.
pub(crate) struct Found {
    pub(crate) manifest: Digest,
    pub(crate) layer: Layer,
}

/// A registry on the line.
struct Session<'a> {
    client: Client,
    auth: RegistryAuth,
    reference: &'a Reference,
    registries: &'a Registries,
}

impl Registries {
    /// Registries that are spoken to over HTTPS, but for those on this machine; `plain_http` is for all.
    pub fn new(credentials: Credentials, plain_http: bool, listener: Listener) -> Self {
        // Whoever was first in this process has chosen the provider of TLS, and any serves.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { credentials, plain_http, listener }
    }

    /// Pushes a component under a tag. The same file has the same digest whenever it is pushed, unless it is signed.
    ///
    /// # Errors
    /// When the file is no component, the reference has a digest, or the registry does not take it.
    pub async fn push(
        &self,
        path: &Path,
        reference: &Reference,
        key: Option<&SigningKey>,
    ) -> Result<Pushed, RegistryError> {
        if reference.is_pinned() {
            let reason = "one pushes to a tag, and the digest follows from what is pushed".to_owned();
            return Err(RegistryError::Reference { reference: reference.to_string(), reason });
        }
        let missing = || RegistryError::Read { path: path.to_owned(), source: io::ErrorKind::NotFound.into() };
        let bytes = file::read(path).await?.ok_or_else(missing)?;
        let interfaces = Interfaces::read(&path.display().to_string(), &bytes)?;
        let signature = key.map(|key| key.sign(&format!("{}.wasm", reference.name()), &bytes)).transpose()?;
        let refused = |reason: String| RegistryError::Refused { reference: reference.to_string(), reason };
        let artifact =
            Artifact::new(&interfaces, Bytes::from(bytes), signature).map_err(|error| refused(error.to_string()))?;
        let file = Digest::of(&artifact.layer);
        let manifest = serde_json::to_vec(&artifact.manifest).map_err(|error| refused(error.to_string()))?;
        let digest = Digest::of(&manifest);
        self.open(reference, RegistryOperation::Push).await?.send(artifact, manifest).await?;
        Ok(Pushed { manifest: digest, file, signer: key.map(SigningKey::id) })
    }

    /// What a reference means now.
    pub(crate) async fn look_up(&self, reference: &Reference) -> Result<Found, RegistryError> {
        self.open(reference, RegistryOperation::Pull).await?.manifest().await
    }

    /// The bytes of what was found. They are a component, and they fit their digest.
    pub(crate) async fn fetch(&self, reference: &Reference, layer: &Layer) -> Result<Vec<u8>, RegistryError> {
        let bytes = self.open(reference, RegistryOperation::Pull).await?.layer(layer).await?;
        Interfaces::read(&reference.to_string(), &bytes)?;
        Ok(bytes)
    }

    async fn open<'a>(
        &'a self,
        reference: &'a Reference,
        operation: RegistryOperation,
    ) -> Result<Session<'a>, RegistryError> {
        let config = ClientConfig {
            protocol: if self.is_https(reference) { ClientProtocol::Https } else { ClientProtocol::Http },
            connect_timeout: Some(CONNECT),
            read_timeout: Some(IDLE),
            user_agent: concat!("hatchery/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let auth = self.credentials.of(reference.registry()).await;
        let failed = |error| failure::explain(self, reference, &auth, error);
        let client = Client::try_from(config).map_err(failed)?;
        client.auth(reference.oci(), &auth, operation).await.map_err(failed)?;
        Ok(Session { client, auth, reference, registries: self })
    }

    fn is_https(&self, reference: &Reference) -> bool {
        !self.plain_http && !reference.is_loopback()
    }
}

impl Session<'_> {
    async fn send(&self, artifact: Artifact, manifest: Vec<u8>) -> Result<(), RegistryError> {
        let bytes = (artifact.layer.len() + artifact.config.len()) as u64;
        self.tell(Progress::Sends { reference: self.reference, bytes });
        for blob in [artifact.layer, artifact.config] {
            let digest = Digest::of(&blob);
            // A registry that does not want to say is given it again.
            if !self.client.blob_exists(self.reference.oci(), digest.as_str()).await.unwrap_or(false) {
                let sent = self.client.push_blob(self.reference.oci(), blob.clone(), digest.as_str()).await;
                sent.map_err(|error| self.failed(error))?;
            }
            self.tell(Progress::Bytes(blob.len() as u64));
        }
        let reason = |_| RegistryError::Refused {
            reference: self.reference.to_string(),
            reason: "the media type is odd".into(),
        };
        let media_type = OCI_IMAGE_MEDIA_TYPE.parse().map_err(reason)?;
        let sent = self.client.push_manifest_raw(self.reference.oci(), manifest, media_type).await;
        sent.map(|_| ()).map_err(|error| self.failed(error))
    }

    async fn manifest(&self) -> Result<Found, RegistryError> {
        let accepted = [OCI_IMAGE_MEDIA_TYPE, IMAGE_MANIFEST_MEDIA_TYPE];
        let pulled = self.client.pull_manifest_raw(self.reference.oci(), &self.auth, &accepted).await;
        let (body, _) = pulled.map_err(|error| self.failed(error))?;
        let not = |reason| RegistryError::NotComponent { what: self.reference.to_string(), reason };
        let manifest: OciImageManifest =
            serde_json::from_slice(&body).map_err(|error| not(format!("its manifest cannot be read: {error}")))?;
        Ok(Found { manifest: Digest::of(&body), layer: Layer::find(self.reference, manifest)? })
    }

    /// The bytes of a layer: not one more than its manifest announces.
    async fn layer(&self, layer: &Layer) -> Result<Vec<u8>, RegistryError> {
        self.tell(Progress::Receives { reference: self.reference, bytes: layer.size });
        let stream = self.client.pull_blob_stream(self.reference.oci(), layer.digest.as_str()).await;
        let mut stream = stream.map_err(|error| self.failed(error))?;
        let mut bytes = Vec::new();
        while let Some(piece) = stream.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                // The client compares digests, too, but does not know what they are of.
                Err(error) if failure::is_of_digest(&error) => break,
                Err(error) => return Err(failure::unreachable(self.registries, self.reference, &error)),
            };
            if (bytes.len() + piece.len()) as u64 > layer.size {
                let found = format!("more than {} bytes", layer.size);
                return Err(failure::other_bytes(self.reference, layer.digest.to_string(), found));
            }
            bytes.extend_from_slice(&piece);
            self.tell(Progress::Bytes(piece.len() as u64));
        }
        let found = Digest::of(&bytes);
        if found != layer.digest {
            return Err(failure::other_bytes(self.reference, layer.digest.to_string(), found.to_string()));
        }
        Ok(bytes)
    }

    fn tell(&self, progress: Progress<'_>) {
        (self.registries.listener)(progress);
    }

    fn failed(&self, error: oci_client::errors::OciDistributionError) -> RegistryError {
        failure::explain(self.registries, self.reference, &self.auth, error)
    }
}
