//! Talking to a registry: what is asked for is checked against its digest, and what goes wrong is said in words that name it.

mod failure;
mod token;
mod transport;

use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use oci_client::client::{ClientConfig, ClientProtocol};
use oci_client::manifest::{IMAGE_MANIFEST_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE};
use oci_client::secrets::RegistryAuth;
use oci_client::token_cache::RegistryTokenType;
use oci_client::{Client, RegistryOperation};

use crate::artifact::{Artifact, Layer};
use crate::component::{Digest, Interfaces};
use crate::credentials::Credentials;
use crate::error::RegistryError;
use crate::file;
use crate::progress::{Listener, Progress};
use crate::reference::Reference;
use crate::signature::{KeyId, SigningKey, Subject};
use token::Access;
use transport::{MAX_MANIFEST, Transport};

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
        let subject = Subject { name: reference.name(), version: reference.version() };
        let signature = key.map(|key| key.sign(subject, &bytes)).transpose()?;
        let refused = |reason: String| RegistryError::Refused { reference: reference.to_string(), reason };
        let artifact =
            Artifact::new(&interfaces, Bytes::from(bytes), signature).map_err(|error| refused(error.to_string()))?;
        let file = Digest::of(&artifact.layer);
        let manifest = serde_json::to_vec(&artifact.manifest).map_err(|error| refused(error.to_string()))?;
        let digest = Digest::of(&manifest);
        self.send(reference, artifact, manifest).await?;
        Ok(Pushed { manifest: digest, file, signer: key.map(SigningKey::id) })
    }

    /// What a reference means now.
    pub(crate) async fn look_up(&self, reference: &Reference) -> Result<Found, RegistryError> {
        let transport = Transport::open(self, reference, "pull").await?;
        let accept = format!("{OCI_IMAGE_MEDIA_TYPE}, {IMAGE_MANIFEST_MEDIA_TYPE}");
        let (digest, tag) = (reference.oci().digest(), reference.oci().tag());
        let place = digest.or(tag).unwrap_or("latest");
        let response = transport.get(&format!("manifests/{place}"), Some(&accept)).await?;
        let body = transport.read(response, MAX_MANIFEST).await?;
        let body = body
            .ok_or_else(|| RegistryError::ManifestTooLarge { reference: reference.to_string(), most: MAX_MANIFEST })?;
        let found = Digest::of(&body);
        if let Some(digest) = digest.filter(|digest| *digest != found.as_str()) {
            return Err(failure::other_bytes(reference, digest.to_owned(), found.to_string()));
        }
        Ok(Found { manifest: found, layer: Layer::read(reference, &body)? })
    }

    /// The bytes of what was found. They are a component, they fit their digest, and there is not one more than its manifest announces.
    pub(crate) async fn fetch(&self, reference: &Reference, layer: &Layer) -> Result<Vec<u8>, RegistryError> {
        let transport = Transport::open(self, reference, "pull").await?;
        self.tell(Progress::Receives { reference, bytes: layer.size });
        let mut response = transport.get(&format!("blobs/{}", layer.digest), None).await?;
        let mut bytes = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| transport.broken(&error))? {
            if (bytes.len() + piece.len()) as u64 > layer.size {
                let found = format!("more than {} bytes", layer.size);
                return Err(failure::other_bytes(reference, layer.digest.to_string(), found));
            }
            bytes.extend_from_slice(&piece);
            self.tell(Progress::Bytes(piece.len() as u64));
        }
        let found = Digest::of(&bytes);
        if found != layer.digest {
            return Err(failure::other_bytes(reference, layer.digest.to_string(), found.to_string()));
        }
        Interfaces::read(&reference.to_string(), &bytes)?;
        Ok(bytes)
    }

    async fn send(&self, reference: &Reference, artifact: Artifact, manifest: Vec<u8>) -> Result<(), RegistryError> {
        let bytes = (artifact.layer.len() + artifact.config.len()) as u64;
        self.tell(Progress::Sends { reference, bytes });
        for blob in [artifact.layer, artifact.config] {
            let (client, auth) = self.pusher(reference).await?;
            let digest = Digest::of(&blob);
            // A registry that does not want to say is given it again.
            if !client.blob_exists(reference.oci(), digest.as_str()).await.unwrap_or(false) {
                let sent = client.push_blob(reference.oci(), blob.clone(), digest.as_str()).await;
                sent.map_err(|error| failure::explain(self, reference, &auth, error))?;
            }
            self.tell(Progress::Bytes(blob.len() as u64));
        }
        let (client, auth) = self.pusher(reference).await?;
        let reason =
            |_| RegistryError::Refused { reference: reference.to_string(), reason: "the media type is odd".into() };
        let media_type = OCI_IMAGE_MEDIA_TYPE.parse().map_err(reason)?;
        let sent = client.push_manifest_raw(reference.oci(), manifest, media_type).await;
        sent.map(|_| ()).map_err(|error| failure::explain(self, reference, &auth, error))
    }

    /// A client for one upload, logged in anew as tokens do not last, and who it is. It has a token or what the registry itself asks for, never
    /// a login that it could take to a token service.
    async fn pusher(&self, reference: &Reference) -> Result<(Client, RegistryAuth), RegistryError> {
        let Transport { auth, access, .. } = Transport::open(self, reference, "pull,push").await?;
        let config = ClientConfig {
            protocol: if self.is_https(reference) { ClientProtocol::Https } else { ClientProtocol::Http },
            connect_timeout: Some(CONNECT),
            read_timeout: Some(IDLE),
            user_agent: concat!("hatchery/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| failure::explain(self, reference, &auth, error))?;
        let shown = match &access {
            Access::Bearer(token) => RegistryAuth::Bearer(token.clone()),
            Access::Basic(..) | Access::Anonymous => RegistryAuth::Anonymous,
        };
        client.store_auth_if_needed(reference.registry(), &shown).await;
        if let Access::Basic(user, password) = access {
            for operation in [RegistryOperation::Pull, RegistryOperation::Push] {
                let login = RegistryTokenType::Basic(user.clone(), password.clone());
                client.tokens.insert(reference.oci(), operation, login).await;
            }
        }
        Ok((client, auth))
    }

    fn is_https(&self, reference: &Reference) -> bool {
        !self.plain_http && !reference.is_loopback()
    }

    fn tell(&self, progress: Progress<'_>) {
        (self.listener)(progress);
    }
}

#[cfg(test)]
mod tests;
