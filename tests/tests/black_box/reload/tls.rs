//! The certificate of the server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use hatchery_tests::Host;
use reqwest::{Certificate, Client};

use super::{apply, folder};

/// A timeout that only a defect reaches.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A certificate with its key, each in a file.
struct Files {
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn new(folder: &Path, name: &str) -> Self {
        Self { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) }
    }

    /// Replaces the files by the files of a new certificate, and returns it.
    fn write(&self) -> Result<Certificate> {
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        std::fs::write(&self.key, pair.signing_key.serialize_pem())?;
        std::fs::write(&self.certificate, pair.cert.pem())?;
        Ok(Certificate::from_der(pair.cert.der())?)
    }

    fn config(&self) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        format!("server: {{tls: {{certificate: '{certificate}', key: '{key}'}}}}\n")
    }
}

/// Returns true if the server has this certificate for a new client.
async fn has(host: &Host, certificate: &Certificate) -> Result<bool> {
    let client = Client::builder().no_proxy().timeout(TIMEOUT).tls_certs_only([certificate.clone()]).build()?;
    match client.get(format!("{}/health", host.url)).send().await {
        Ok(answer) => Ok(answer.status().is_success()),
        Err(error) if error.is_connect() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Waits until the host has read a certificate more often than before.
async fn wait_for_certificate(host: &Host, file: &Path, change: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let line = format!("the certificate was read again certificate={}", file.display());
    let before = host.log().matches(&line).count();
    change().await?;
    host.wait_until_log(&line, |log| log.matches(&line).count() > before).await
}

#[tokio::test]
async fn the_certificate_follows_its_files_and_their_paths() -> Result<()> {
    let folder = folder("")?;
    let (first, second) = (Files::new(&folder.data(), "first"), Files::new(&folder.data(), "second"));
    let old = first.write()?;
    folder.write_operator_config(&first.config())?;
    let host = Host::serve(&folder).await?;
    ensure!(has(&host, &old).await?, "{}", host.log());
    let mut renewed = old.clone();
    wait_for_certificate(&host, &first.certificate, async || {
        renewed = first.write()?;
        Ok(())
    })
    .await?;
    ensure!(has(&host, &renewed).await? && !has(&host, &old).await?, "{}", host.log());

    // A path without a file changes nothing.
    folder.write_operator_config(&second.config())?;
    host.wait_for_log(&format!("server.tls: {}: No such file or directory", second.certificate.display())).await?;
    host.wait_for_log("; the previous settings remain in force").await?;
    ensure!(has(&host, &renewed).await?, "{}", host.log());

    let moved = second.write()?;
    wait_for_certificate(&host, &second.certificate, async || {
        apply(&host, &folder, &format!("{}# The files exist now.\n", second.config()), &["server.tls"]).await
    })
    .await?;
    ensure!(has(&host, &moved).await? && !has(&host, &renewed).await?, "{}", host.log());
    // The files at the new paths are followed.
    let mut last = moved.clone();
    while !has(&host, &last).await? || has(&host, &moved).await? {
        wait_for_certificate(&host, &second.certificate, async || {
            last = second.write()?;
            Ok(())
        })
        .await?;
    }
    Ok(())
}
