//! Pulled components of a folder: adding, restoring and updating them.
//!
//! A signed component `NAME.wasm` has its signature in `NAME.wasm.minisig`. Every operation verifies both files, even
//! if nothing is pulled.

use std::path::{Path, PathBuf};

use hatchery_files::serialize_path;
use serde::Serialize;

use crate::client::{RegistryClient, ResolvedReference};
use crate::component::{Digest, check_name};
use crate::error::RegistryError;
use crate::file;
use crate::lock::{LockEntry, Lockfile};
use crate::reference::Reference;
use crate::signature::{KeyId, SignatureStatus, SignatureSubject, SignatureVerifier, signature_path};

/// A folder with pulled components.
pub struct ComponentFolder {
    path: PathBuf,
    client: RegistryClient,
    verifier: SignatureVerifier,
}

/// Treatment of locked components by a pull.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PullMode {
    /// Adds components to the lockfile.
    #[default]
    Add,
    /// Replaces locked components by the current ones of the registries.
    Update,
    /// Only restores locked components. Others are an error, and `hatchery.lock` does not change.
    Locked,
}

/// A component that matches its lockfile entry.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PulledComponent {
    pub name: String,
    #[serde(serialize_with = "serialize_path")]
    pub file: PathBuf,
    pub reference: Reference,
    /// The digest of the manifest.
    pub manifest: Digest,
    /// The digest of the component's bytes.
    pub digest: Digest,
    /// The trusted key of the signature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<KeyId>,
    /// The changes of the pull.
    pub change: Change,
    /// Warnings, one sentence each.
    pub warnings: Vec<String>,
}

/// The change of a component by a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The component is new.
    Added,
    /// The file was missing and has been pulled.
    Restored,
    /// The component has been replaced.
    Updated,
    /// The existing file has been verified.
    Unchanged,
}

/// A component that has been verified, and is not stored yet.
struct VerifiedComponent {
    pulled: PulledComponent,
    /// `None` if the folder has them.
    files: Option<ComponentFiles>,
}

struct ComponentFiles {
    bytes: Vec<u8>,
    signature: Option<String>,
}

impl ComponentFolder {
    /// Creates the folder with a client and a verifier for pulls.
    pub fn new(path: PathBuf, client: RegistryClient, verifier: SignatureVerifier) -> Self {
        Self { path, client, verifier }
    }

    /// Pulls a component and adds it to the lockfile. If it is already locked to this reference, it is restored. A
    /// component that is locked to another reference, or a file with other content that was not pulled, is only
    /// replaced in [`PullMode::Update`].
    ///
    /// # Errors
    /// If the name is in use, the component cannot be pulled, is invalid or lacks a required signature, or another pull
    /// changes it at the same time.
    pub async fn add(
        &self,
        reference: &Reference,
        name: Option<&str>,
        mode: PullMode,
    ) -> Result<PulledComponent, RegistryError> {
        let name = name.unwrap_or(reference.name());
        check_name(name)?;
        let (lock, exists) = {
            // A pull writes the file before the entry.
            let _guard = file::lock(&self.path).await;
            (Lockfile::read(&self.path).await?, self.component_path(name).exists())
        };
        let before = lock.components.get(name);
        let verified = match (before, mode) {
            (locked, PullMode::Update) => self.update(name, reference, locked).await?,
            (Some(locked), _) if locked.reference == *reference => self.verify_or_restore(name, locked).await?,
            (Some(locked), _) => {
                return Err(RegistryError::ReferenceConflict {
                    name: name.to_owned(),
                    locked: locked.reference.to_string(),
                    requested: reference.to_string(),
                });
            }
            (None, PullMode::Locked) => {
                return Err(RegistryError::NotLocked { name: name.to_owned(), path: Lockfile::path(&self.path) });
            }
            (None, PullMode::Add) => {
                if exists {
                    self.check_existing(name, reference).await?;
                }
                self.update(name, reference, None).await?
            }
        };
        self.store(verified, before, mode).await
    }

    /// Restores all locked components, or updates them in [`PullMode::Update`]. Returns the name and the result of each
    /// component.
    ///
    /// # Errors
    /// If the lockfile is missing or invalid.
    pub async fn restore(
        &self,
        mode: PullMode,
    ) -> Result<Vec<(String, Result<PulledComponent, RegistryError>)>, RegistryError> {
        let lock = Lockfile::read(&self.path).await?;
        if lock.components.is_empty() {
            return Err(RegistryError::EmptyLockfile { path: Lockfile::path(&self.path) });
        }
        let mut results = Vec::new();
        for (name, locked) in lock.components {
            let verified = if mode == PullMode::Update {
                self.update(&name, &locked.reference, Some(&locked)).await
            } else {
                self.verify_or_restore(&name, &locked).await
            };
            let result = match verified {
                Ok(verified) => self.store(verified, Some(&locked), mode).await,
                Err(error) => Err(error),
            };
            results.push((name, result));
        }
        Ok(results)
    }

    /// Writes the files of a component, and its lockfile entry if it has changed. Reads the lockfile again, because
    /// other pulls may have added entries since this one began.
    ///
    /// # Errors
    /// If the entry is no longer `before`, with which this pull began: the files of the other pull are kept.
    async fn store(
        &self,
        VerifiedComponent { pulled, files }: VerifiedComponent,
        before: Option<&LockEntry>,
        mode: PullMode,
    ) -> Result<PulledComponent, RegistryError> {
        let _guard = file::lock(&self.path).await;
        let mut lock = Lockfile::read(&self.path).await?;
        let current = lock.components.get(&pulled.name);
        let signer = match pulled.change {
            // The signature may not have been checked this time.
            Change::Unchanged | Change::Restored => pulled.signer.or(current.and_then(|current| current.signer)),
            Change::Added | Change::Updated => pulled.signer,
        };
        let entry = LockEntry {
            reference: pulled.reference.clone(),
            manifest: pulled.manifest.clone(),
            file: pulled.digest.clone(),
            signer,
        };
        let is_locked = current == Some(&entry);
        if current != before && !is_locked {
            return Err(RegistryError::ConcurrentPull { name: pulled.name, path: Lockfile::path(&self.path) });
        }
        if let Some(files) = files {
            if current.is_none() && mode == PullMode::Add {
                check_content(&pulled.file, &pulled.digest).await?;
            }
            write(&pulled.file, files).await?;
        }
        if !is_locked && mode != PullMode::Locked {
            lock.components.insert(pulled.name.clone(), entry);
            lock.write(&self.path).await?;
        }
        Ok(pulled)
    }

    /// Checks that a file without an entry in the lockfile is the component of `reference`: a pull that is killed after
    /// it has written the file leaves one. Any other file is an error, before anything is downloaded.
    async fn check_existing(&self, name: &str, reference: &Reference) -> Result<(), RegistryError> {
        let ResolvedReference { layer, .. } = self.client.resolve(reference).await?;
        check_content(&self.component_path(name), &layer.digest).await
    }

    /// Verifies the file, or pulls the locked component if it is missing.
    async fn verify_or_restore(&self, name: &str, locked: &LockEntry) -> Result<VerifiedComponent, RegistryError> {
        let path = self.component_path(name);
        let (change, files, status) = match file::read(&path).await? {
            Some(bytes) => (Change::Unchanged, None, verify_file(&self.verifier, name, &path, &bytes, locked).await?),
            None => {
                let (files, status) = self.fetch_locked(name, locked).await?;
                (Change::Restored, Some(files), status)
            }
        };
        let signer = check_locked_signer(&path, locked, &status)?;
        Ok(VerifiedComponent { pulled: self.pulled_component(name, locked, change, signer, status), files })
    }

    /// Pulls the locked component by its digest.
    async fn fetch_locked(
        &self,
        name: &str,
        locked: &LockEntry,
    ) -> Result<(ComponentFiles, SignatureStatus), RegistryError> {
        let pinned = locked.reference.with_digest(&locked.manifest);
        let ResolvedReference { layer, .. } = match self.client.resolve(&pinned).await {
            Err(RegistryError::NotFound { .. }) => return Err(self.explain_missing(pinned, locked).await),
            resolved => resolved?,
        };
        if layer.digest != locked.file {
            return Err(mismatch(pinned.to_string(), &locked.file, &layer.digest));
        }
        let bytes = self.client.fetch(&pinned, &layer).await?;
        let subject = locked.subject(name);
        let status = self.verifier.verify(&pinned.to_string(), subject, &bytes, layer.signature.as_deref())?;
        Ok((ComponentFiles { bytes, signature: layer.signature }, status))
    }

    /// Returns the error for a locked manifest that the registry does not have. The tag may point to another one.
    async fn explain_missing(&self, pinned: Reference, locked: &LockEntry) -> RegistryError {
        match self.client.resolve(&locked.reference).await {
            Ok(current) if current.manifest != locked.manifest => {
                mismatch(locked.reference.to_string(), &locked.manifest, &current.manifest)
            }
            _ => RegistryError::NotFound { reference: pinned.to_string() },
        }
    }

    /// Pulls the current component of a reference.
    async fn update(
        &self,
        name: &str,
        reference: &Reference,
        before: Option<&LockEntry>,
    ) -> Result<VerifiedComponent, RegistryError> {
        let ResolvedReference { manifest, layer } = self.client.resolve(reference).await?;
        let existing = file::read(&self.component_path(name)).await?;
        let existing = existing.filter(|bytes| Digest::compute(bytes) == layer.digest);
        let exists = existing.is_some();
        let bytes = match existing {
            Some(bytes) => bytes,
            None => self.client.fetch(reference, &layer).await?,
        };
        let subject = SignatureSubject { name, version: reference.version() };
        let status = self.verifier.verify(&reference.to_string(), subject, &bytes, layer.signature.as_deref())?;
        let unchanged = before.filter(|before| before.manifest == manifest);
        let signer = match status {
            // Without a check, an unchanged component keeps its signer.
            SignatureStatus::NotChecked => unchanged.and_then(|before| before.signer),
            _ => status.signer(),
        };
        let change = match before {
            None => Change::Added,
            Some(before) if exists && unchanged.is_some() && before.signer == signer => Change::Unchanged,
            Some(_) => Change::Updated,
        };
        let lost_signer = before.and_then(|before| before.signer).filter(|previous| signer != Some(*previous));
        let lost_signer = lost_signer.filter(|_| status != SignatureStatus::NotChecked);
        let locked = LockEntry { reference: reference.clone(), manifest, file: layer.digest, signer };
        let mut pulled = self.pulled_component(name, &locked, change, signer, status);
        pulled.warnings.extend(lost_signer.map(|previous| {
            format!("{reference}: the previous version was signed by the key {previous}, this version is not")
        }));
        Ok(VerifiedComponent { pulled, files: Some(ComponentFiles { bytes, signature: layer.signature }) })
    }

    fn component_path(&self, name: &str) -> PathBuf {
        component_path(&self.path, name)
    }

    fn pulled_component(
        &self,
        name: &str,
        locked: &LockEntry,
        change: Change,
        signer: Option<KeyId>,
        status: SignatureStatus,
    ) -> PulledComponent {
        let warnings = match status {
            SignatureStatus::Unverified(warning) => vec![warning],
            SignatureStatus::Verified(_) | SignatureStatus::NotChecked => Vec::new(),
        };
        PulledComponent {
            name: name.to_owned(),
            file: self.component_path(name),
            reference: locked.reference.clone(),
            manifest: locked.manifest.clone(),
            digest: locked.file.clone(),
            signer,
            change,
            warnings,
        }
    }
}

/// Checks that a file does not exist or has this digest.
async fn check_content(path: &Path, digest: &Digest) -> Result<(), RegistryError> {
    match file::read(path).await? {
        Some(bytes) if Digest::compute(&bytes) != *digest => Err(RegistryError::FileExists { path: path.to_owned() }),
        _ => Ok(()),
    }
}

async fn write(path: &Path, files: ComponentFiles) -> Result<(), RegistryError> {
    // The component is written last, even if only its signature has changed: this makes a host that watches the folder
    // reload both.
    match files.signature {
        Some(signature) => file::write(&signature_path(path), signature.into_bytes()).await?,
        None => file::remove(&signature_path(path)).await?,
    }
    file::write(path, files.bytes).await
}

/// Verifies the files of a folder against its lockfile, without network access. Returns the signer of each component,
/// or why it does not match. Returns nothing for a folder without a lockfile.
///
/// # Errors
/// If the lockfile is invalid.
pub async fn verify(
    folder: &Path,
    verifier: &SignatureVerifier,
) -> Result<Vec<(String, Result<Option<KeyId>, RegistryError>)>, RegistryError> {
    let mut verified = Vec::new();
    for (name, locked) in Lockfile::read(folder).await?.components {
        let path = component_path(folder, &name);
        let result = verify_locked(verifier, &name, &path, &locked).await;
        verified.push((name, result));
    }
    Ok(verified)
}

async fn verify_locked(
    verifier: &SignatureVerifier,
    name: &str,
    path: &Path,
    locked: &LockEntry,
) -> Result<Option<KeyId>, RegistryError> {
    let missing = || RegistryError::FileMissing { path: path.to_owned() };
    let bytes = file::read(path).await?.ok_or_else(missing)?;
    check_locked_signer(path, locked, &verify_file(verifier, name, path, &bytes, locked).await?)
}

/// Verifies a file against its lockfile entry and its signature.
async fn verify_file(
    verifier: &SignatureVerifier,
    name: &str,
    path: &Path,
    bytes: &[u8],
    locked: &LockEntry,
) -> Result<SignatureStatus, RegistryError> {
    let found = Digest::compute(bytes);
    if found != locked.file {
        return Err(RegistryError::LockMismatch {
            origin: path.display().to_string(),
            expected: locked.file.to_string(),
            found: found.to_string(),
            advice: "delete the file and pull again to restore the locked version, or update to the registry's current version",
        });
    }
    let signature = file::read_text(&signature_path(path)).await?;
    verifier.verify(&path.display().to_string(), locked.subject(name), bytes, signature.as_deref())
}

fn component_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.wasm"))
}

/// Returns the trusted signer. It must be the signer in the lockfile, if there is one.
fn check_locked_signer(
    path: &Path,
    locked: &LockEntry,
    status: &SignatureStatus,
) -> Result<Option<KeyId>, RegistryError> {
    let found = match (status, locked.signer) {
        (SignatureStatus::NotChecked, _) | (_, None) => return Ok(status.signer()),
        (SignatureStatus::Verified(found), Some(expected)) if *found == expected => return Ok(Some(expected)),
        (SignatureStatus::Verified(found), Some(_)) => format!("one by {found}"),
        (SignatureStatus::Unverified(reason), Some(_)) => format!("that {reason}"),
    };
    Err(RegistryError::LockMismatch {
        origin: path.display().to_string(),
        expected: format!("a signature by the trusted key {}", locked.signer.map(String::from).unwrap_or_default()),
        found,
        advice: "delete the file and pull again to restore the locked version, or update to accept another signer",
    })
}

fn mismatch(origin: String, expected: &Digest, found: &Digest) -> RegistryError {
    RegistryError::LockMismatch {
        origin,
        expected: expected.to_string(),
        found: found.to_string(),
        advice: "update to accept the registry's current version",
    }
}
