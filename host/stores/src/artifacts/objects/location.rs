//! Addresses of object stores, and connections to them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hatchery_core::StoreError;
use hatchery_egress::is_loopback;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, RetryConfig};
use reqwest::Url;

/// Timeout of a request, bodies included. Overridden by `AWS_TIMEOUT` and its counterparts.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A failed request is repeated for this time, and no more often than this.
const RETRY_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_RETRIES: usize = 4;

/// A service for objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Provider {
    S3,
    GoogleCloud,
    Azure,
    /// A store that the caller has connected.
    Custom,
}

impl Provider {
    /// Returns the provider's word for a bucket.
    pub(super) fn container(self) -> &'static str {
        match self {
            Self::S3 | Self::GoogleCloud => "bucket",
            Self::Azure => "container",
            Self::Custom => "store",
        }
    }

    /// Returns the settings of the credentials as text.
    pub(super) fn credentials(self) -> &'static str {
        match self {
            Self::S3 => "the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of this machine)",
            Self::GoogleCloud => "the credentials (GOOGLE_APPLICATION_CREDENTIALS, or the account of this machine)",
            Self::Azure => {
                "the credentials (AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or the identity of this machine)"
            }
            Self::Custom => "its credentials",
        }
    }

    /// Returns the settings of the server's address as text.
    pub(super) fn endpoint(self) -> &'static str {
        match self {
            Self::S3 => "AWS_REGION and AWS_ENDPOINT_URL",
            Self::GoogleCloud => "GOOGLE_BASE_URL",
            Self::Azure => "AZURE_STORAGE_ENDPOINT",
            Self::Custom => "its address",
        }
    }

    /// Returns the prefix of the environment variables with settings.
    fn variables(self) -> &'static str {
        match self {
            Self::S3 => "AWS_",
            Self::GoogleCloud => "GOOGLE_",
            Self::Azure => "AZURE_",
            Self::Custom => "",
        }
    }

    /// Returns the environment variables with the address of a server.
    fn endpoints(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
            Self::GoogleCloud => &["GOOGLE_BASE_URL"],
            Self::Azure => &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
            Self::Custom => &[],
        }
    }
}

/// A bucket and a prefix in it. Displays as a URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    provider: Provider,
    /// The bucket, or the name of a store that the caller has connected.
    container: String,
    prefix: Path,
}

impl Location {
    pub(super) fn parse(uri: &str) -> Result<Self, StoreError> {
        let invalid = || crate::uri::invalid(uri, crate::uri::ARTIFACT_URIS);
        let (scheme, rest) = uri.split_once("://").ok_or_else(invalid)?;
        let provider = match scheme {
            "s3" => Provider::S3,
            "gs" => Provider::GoogleCloud,
            "az" => Provider::Azure,
            _ => return Err(invalid()),
        };
        let (container, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if container.is_empty() || !container.bytes().all(is_name) || prefix.starts_with('/') {
            return Err(invalid());
        }
        let prefix = Path::parse(prefix).map_err(|_| invalid())?;
        Ok(Self { provider, container: container.into(), prefix })
    }

    /// Returns the location of a store that the caller has connected.
    pub(super) fn for_custom_store(name: &str, prefix: &str) -> Result<Self, StoreError> {
        let prefix = Path::parse(prefix).map_err(|_| StoreError::InvalidName {
            name: prefix.to_owned(),
            reason: "a prefix has no empty segment, no `.` and no `..`",
        })?;
        Ok(Self { provider: Provider::Custom, container: name.into(), prefix })
    }

    pub(super) fn provider(&self) -> Provider {
        self.provider
    }

    pub(super) fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Connects to the store with the settings in the variables of its provider.
    pub(super) fn connect(
        &self,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Arc<dyn ObjectStore>, StoreError> {
        // Fails if the program has installed one, which is then used.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let prefix = self.provider.variables();
        let variables: Vec<_> = variables.into_iter().filter(|(name, _)| name.starts_with(prefix)).collect();
        let is_local = self.check_endpoint(&variables)?;
        let settings = variables.iter().map(|(name, value)| (name.to_ascii_lowercase(), value));
        let client = ClientOptions::new().with_timeout(TIMEOUT).with_connect_timeout(CONNECT_TIMEOUT);
        let client = if is_local { client.with_allow_http(true) } else { client };
        let retry = RetryConfig { max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
        // The bucket comes last: a variable does not replace it.
        let connected: object_store::Result<Arc<dyn ObjectStore>> = match self.provider {
            Provider::S3 => {
                let builder = AmazonS3Builder::new().with_client_options(client).with_retry(retry);
                let builder = settings.fold(builder, |builder, (name, value)| match name.parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                });
                builder.with_bucket_name(&self.container).build().map(|store| Arc::new(store) as _)
            }
            Provider::GoogleCloud => {
                let builder = GoogleCloudStorageBuilder::new().with_client_options(client).with_retry(retry);
                let builder = settings.fold(builder, |builder, (name, value)| match name.parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                });
                builder.with_bucket_name(&self.container).build().map(|store| Arc::new(store) as _)
            }
            Provider::Azure => {
                let builder = MicrosoftAzureBuilder::new().with_client_options(client).with_retry(retry);
                let builder = settings.fold(builder, |builder, (name, value)| match name.parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                });
                builder.with_container_name(&self.container).build().map(|store| Arc::new(store) as _)
            }
            Provider::Custom => Err(object_store::Error::NotImplemented {
                operation: "connect".into(),
                implementer: self.container.clone(),
            }),
        };
        connected.map_err(|error| {
            let credentials = self.provider.credentials();
            StoreError::InvalidRequest(format!("cannot connect to {self}: {error}; check {credentials}"))
        })
    }

    /// Checks that the server is reached over https, or that the operator allows http. Returns true if it is this
    /// machine's own.
    fn check_endpoint(&self, variables: &[(String, String)]) -> Result<bool, StoreError> {
        let value = |name: &str| variables.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let endpoint = self.provider.endpoints().iter().find_map(|name| Some((*name, value(name)?)));
        let Some((name, url)) = endpoint else { return Ok(false) };
        let invalid =
            |reason: &str| Err(StoreError::InvalidRequest(format!("cannot connect to {self}: {name} {reason}")));
        let Ok(url) = Url::parse(url) else { return invalid("is not a URL, such as `https://storage.example.com`") };
        let is_loopback = is_loopback(&url);
        let allow = format!("{}ALLOW_HTTP", self.provider.variables());
        let is_allowed = value(&allow).is_some_and(|value| matches!(value, "1" | "true" | "yes" | "on"));
        if url.scheme() == "https" || is_loopback || is_allowed {
            return Ok(is_loopback);
        }
        invalid(&format!("is not an https URL; set {allow}=true to send data without encryption"))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, container, prefix } = self;
        match provider {
            Provider::S3 => write!(f, "s3://{container}")?,
            Provider::GoogleCloud => write!(f, "gs://{container}")?,
            Provider::Azure => write!(f, "az://{container}")?,
            Provider::Custom => write!(f, "{container}")?,
        }
        if prefix.is_root() { Ok(()) } else { write!(f, "/{prefix}") }
    }
}
