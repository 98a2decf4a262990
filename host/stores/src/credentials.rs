//! Credentials of users and of the host: in memory, or encrypted in a directory.
//!
//! The name of a file is a hash of the owner and the name of its credential. The file consists of a nonce of 12 bytes
//! and the credential's JSON, encrypted with AES-256-GCM. The owner and the name are authenticated with it, so a file
//! that is copied to another name cannot be decrypted. Several processes may share a directory if they have the same
//! key.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use async_trait::async_trait;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::error::Unspecified;
use hatchery_core::sync::MutexExt;
use hatchery_core::{CredentialId, CredentialService, StoreError};
use hatchery_files::{FileAccess, write_atomically};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::permissions;
use crate::tasks::run_blocking;

/// A [`CredentialService`] that forgets everything when its process ends.
#[derive(Default)]
pub struct MemoryCredentials(Mutex<HashMap<CredentialId, Value>>);

#[async_trait]
impl CredentialService for MemoryCredentials {
    async fn load(&self, id: &CredentialId) -> Result<Option<Value>, StoreError> {
        Ok(self.0.lock_unpoisoned().get(id).cloned())
    }

    async fn save(&self, id: &CredentialId, credential: &Value) -> Result<(), StoreError> {
        self.0.lock_unpoisoned().insert(id.clone(), credential.clone());
        Ok(())
    }

    async fn delete(&self, id: &CredentialId) -> Result<(), StoreError> {
        self.0.lock_unpoisoned().remove(id);
        Ok(())
    }
}

/// A [`CredentialService`] on a directory. The directory is created when the first credential is saved.
pub struct DirectoryCredentials {
    root: PathBuf,
    key: [u8; 32],
}

impl DirectoryCredentials {
    /// Creates a service. Credentials that were saved with another key are lost.
    pub fn new(root: impl Into<PathBuf>, key: [u8; 32]) -> Self {
        Self { root: root.into(), key }
    }

    fn file(&self, id: &CredentialId) -> PathBuf {
        let digest = Sha256::digest(identity(id));
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.root.join(name)
    }

    fn cipher(&self) -> Result<RandomizedNonceKey, Unspecified> {
        RandomizedNonceKey::new(&AES_256_GCM, &self.key)
    }

    fn encrypt(&self, id: &CredentialId, credential: &Value) -> Result<Vec<u8>, Unspecified> {
        let mut text = credential.to_string().into_bytes();
        let nonce = self.cipher()?.seal_in_place_append_tag(Aad::from(identity(id)), &mut text)?;
        let mut file = nonce.as_ref().to_vec();
        file.append(&mut text);
        Ok(file)
    }

    /// Returns a credential; `None` if it was encrypted with another key, or for another owner.
    fn decrypt(&self, id: &CredentialId, file: &[u8]) -> Option<Value> {
        let (nonce, text) = file.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut text = text.to_vec();
        let json = self.cipher().ok()?.open_in_place(nonce, Aad::from(identity(id)), &mut text).ok()?;
        serde_json::from_slice(json).ok()
    }
}

/// Returns an unambiguous encoding of the owner and the name of a credential.
fn identity(id: &CredentialId) -> Vec<u8> {
    let mut bytes = Vec::new();
    for text in [&*id.app, &*id.user, &*id.key] {
        bytes.extend_from_slice(&u64::try_from(text.len()).unwrap_or(u64::MAX).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

#[async_trait]
impl CredentialService for DirectoryCredentials {
    async fn load(&self, id: &CredentialId) -> Result<Option<Value>, StoreError> {
        let file = self.file(id);
        let read = blocking("read", file.clone(), move || match std::fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        });
        let Some(bytes) = read.await? else { return Ok(None) };
        let credential = self.decrypt(id, &bytes);
        if credential.is_none() {
            tracing::warn!(
                app = &*id.app,
                key = id.key,
                "a credential cannot be decrypted and counts as missing; the key of the host has changed"
            );
        }
        Ok(credential)
    }

    async fn save(&self, id: &CredentialId, credential: &Value) -> Result<(), StoreError> {
        let file = self.file(id);
        let failed = || StoreError::backend(context("encrypt", &file), "the cipher has failed");
        let bytes = self.encrypt(id, credential).map_err(|_| failed())?;
        let root = self.root.clone();
        blocking("write", file.clone(), move || {
            permissions::create_dir_all(&root)?;
            write_atomically(&file, &bytes, FileAccess::OwnerOnly)
        })
        .await
    }

    async fn delete(&self, id: &CredentialId) -> Result<(), StoreError> {
        let file = self.file(id);
        blocking("delete", file.clone(), move || match std::fs::remove_file(file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        })
        .await
    }
}

async fn blocking<T: Send + 'static>(
    operation: &str,
    file: PathBuf,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StoreError> {
    run_blocking(|| context(operation, &file), work).await
}

fn context(operation: &str, file: &Path) -> String {
    format!("cannot {operation} the credential {}", file.display())
}
