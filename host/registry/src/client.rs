//! Client for OCI registries. Verifies the digest of everything that it receives.

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

use crate::artifact::{Artifact, ComponentLayer};
use crate::component::{Digest, Interfaces};
use crate::credentials::Credentials;
use crate::error::RegistryError;
use crate::file;
use crate::progress::{Progress, ProgressListener};
use crate::reference::Reference;
use crate::signature::{KeyId, SignatureSubject, SigningKey};
use token::Authorization;
use transport::{MAX_MANIFEST_BYTES, Transport};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum time without received data.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The hosts for which [`Reference::is_loopback`] returns true, in the notation of `NO_PROXY`.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// Pushes to and pulls from registries.
pub struct RegistryClient {
    credentials: Credentials,
    plain_http: bool,
    listener: ProgressListener,
}

/// A pushed component.
#[derive(Debug)]
pub struct PushedComponent {
    /// The digest of the manifest.
    pub manifest: Digest,
    /// The digest of the component's bytes.
    pub file: Digest,
    /// The key of the signature.
    pub signer: Option<KeyId>,
}

/// The current target of a reference.
pub(crate) struct ResolvedReference {
    pub(crate) manifest: Digest,
    pub(crate) layer: ComponentLayer,
}

impl RegistryClient {
    /// Creates a client. It uses HTTPS, except for registries on this machine or if `plain_http` is set, and the
    /// proxies of the environment, except for registries on this machine.
    pub fn new(credentials: Credentials, plain_http: bool, listener: ProgressListener) -> Self {
        // Fails if the process has already installed a TLS provider. Any provider will do.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { credentials, plain_http, listener }
    }

    /// Pushes a component under a tag. Pushing an unsigned file again results in the same digest.
    ///
    /// # Errors
    /// If the file is not a component, the reference has a digest, or the registry rejects it.
    pub async fn push(
        &self,
        path: &Path,
        reference: &Reference,
        key: Option<&SigningKey>,
    ) -> Result<PushedComponent, RegistryError> {
        if reference.is_pinned() {
            let reason = "a push needs a tag, because the digest is computed from the file".to_owned();
            return Err(RegistryError::InvalidReference { reference: reference.to_string(), reason });
        }
        let missing = || RegistryError::Read {
            path: path.to_owned(),
            source: io::Error::new(io::ErrorKind::NotFound, "file not found"),
        };
        let bytes = file::read(path).await?.ok_or_else(missing)?;
        let interfaces = Interfaces::read(&path.display().to_string(), &bytes)?;
        let subject = SignatureSubject { name: reference.name(), version: reference.version() };
        let signature = key.map(|key| key.sign(subject, &bytes)).transpose()?;
        let unexpected =
            |reason: String| RegistryError::UnexpectedResponse { reference: reference.to_string(), reason };
        let artifact =
            Artifact::new(&interfaces, Bytes::from(bytes), signature).map_err(|error| unexpected(error.to_string()))?;
        let file = Digest::compute(&artifact.layer);
        let manifest = serde_json::to_vec(&artifact.manifest).map_err(|error| unexpected(error.to_string()))?;
        let digest = Digest::compute(&manifest);
        self.upload(reference, artifact, manifest).await?;
        Ok(PushedComponent { manifest: digest, file, signer: key.map(SigningKey::id) })
    }

    /// Fetches the manifest of a reference.
    pub(crate) async fn resolve(&self, reference: &Reference) -> Result<ResolvedReference, RegistryError> {
        let transport = Transport::open(self, reference, "pull").await?;
        let accept = format!("{OCI_IMAGE_MEDIA_TYPE}, {IMAGE_MANIFEST_MEDIA_TYPE}");
        let (digest, tag) = (reference.oci().digest(), reference.oci().tag());
        let target = digest.or(tag).unwrap_or("latest");
        let response = transport.get(&format!("manifests/{target}"), Some(&accept)).await?;
        let body = transport.read(response, MAX_MANIFEST_BYTES).await?;
        let body = body.ok_or_else(|| RegistryError::ManifestTooLarge {
            reference: reference.to_string(),
            max: MAX_MANIFEST_BYTES,
        })?;
        let actual = Digest::compute(&body);
        if let Some(digest) = digest.filter(|digest| *digest != actual.as_str()) {
            return Err(failure::digest_mismatch(reference, digest.to_owned(), actual.to_string()));
        }
        Ok(ResolvedReference { manifest: actual, layer: ComponentLayer::read(reference, &body)? })
    }

    /// Downloads a component. Verifies its size, its digest and that it is a component. Reads at most as many bytes as
    /// the manifest declares.
    pub(crate) async fn fetch(&self, reference: &Reference, layer: &ComponentLayer) -> Result<Vec<u8>, RegistryError> {
        let transport = Transport::open(self, reference, "pull").await?;
        self.report(Progress::Download { reference, bytes: layer.size });
        let mut response = transport.get(&format!("blobs/{}", layer.digest), None).await?;
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| transport.connection_error(&error))? {
            if (bytes.len() + chunk.len()) as u64 > layer.size {
                let actual = format!("more than {} bytes", layer.size);
                return Err(failure::digest_mismatch(reference, layer.digest.to_string(), actual));
            }
            bytes.extend_from_slice(&chunk);
            self.report(Progress::Transferred(chunk.len() as u64));
        }
        let actual = Digest::compute(&bytes);
        if actual != layer.digest {
            return Err(failure::digest_mismatch(reference, layer.digest.to_string(), actual.to_string()));
        }
        Interfaces::read(&reference.to_string(), &bytes)?;
        Ok(bytes)
    }

    async fn upload(&self, reference: &Reference, artifact: Artifact, manifest: Vec<u8>) -> Result<(), RegistryError> {
        let bytes = (artifact.layer.len() + artifact.config.len()) as u64;
        self.report(Progress::Upload { reference, bytes });
        for blob in [artifact.layer, artifact.config] {
            let (client, auth) = self.upload_client(reference).await?;
            let digest = Digest::compute(&blob);
            // If the registry does not answer the query, the blob is uploaded again.
            if !client.blob_exists(reference.oci(), digest.as_str()).await.unwrap_or(false) {
                let result = client.push_blob(reference.oci(), blob.clone(), digest.as_str()).await;
                result.map_err(|error| failure::explain(self, reference, &auth, error))?;
            }
            self.report(Progress::Transferred(blob.len() as u64));
        }
        let (client, auth) = self.upload_client(reference).await?;
        let reason = |_| RegistryError::UnexpectedResponse {
            reference: reference.to_string(),
            reason: "the media type is invalid".into(),
        };
        let media_type = OCI_IMAGE_MEDIA_TYPE.parse().map_err(reason)?;
        let result = client.push_manifest_raw(reference.oci(), manifest, media_type).await;
        result.map(|_| ()).map_err(|error| failure::explain(self, reference, &auth, error))
    }

    /// Creates a client for one upload with a new token, because tokens expire. Returns the login too, for error
    /// messages. The client has a token, or the login if the registry itself requires it. It never has a login that it
    /// could send to a token service.
    async fn upload_client(&self, reference: &Reference) -> Result<(Client, RegistryAuth), RegistryError> {
        let mut transport = Transport::open(self, reference, "pull,push").await?;
        transport.authorize_upload().await?;
        let Transport { auth, authorization, .. } = transport;
        let config = ClientConfig {
            protocol: if self.is_https(reference) { ClientProtocol::Https } else { ClientProtocol::Http },
            connect_timeout: Some(CONNECT_TIMEOUT),
            read_timeout: Some(READ_TIMEOUT),
            user_agent: concat!("hatchery/", env!("CARGO_PKG_VERSION")),
            // A proxy for no address, which replaces the proxies of the environment.
            http_proxy: reference.is_loopback().then(|| "http://localhost".to_owned()),
            no_proxy: reference.is_loopback().then(|| LOOPBACK.to_owned()),
            ..ClientConfig::default()
        };
        let client = Client::try_from(config).map_err(|error| failure::explain(self, reference, &auth, error))?;
        let initial = match &authorization {
            Authorization::Bearer(token) => RegistryAuth::Bearer(token.clone()),
            Authorization::Basic(..) | Authorization::Anonymous => RegistryAuth::Anonymous,
        };
        client.store_auth_if_needed(reference.registry(), &initial).await;
        if let Authorization::Basic(user, password) = authorization {
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

    fn report(&self, progress: Progress<'_>) {
        (self.listener)(progress);
    }
}

#[cfg(test)]
mod tests;
