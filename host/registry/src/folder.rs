//! The components of a served folder that come from registries: added, restored as they are locked, renewed.
//!
//! Beside `NAME.wasm` lies `NAME.wasm.minisig` when the component is signed. Each look verifies both, also when nothing has to be pulled.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::client::{Found, Registries};
use crate::component::{Digest, check_name};
use crate::error::RegistryError;
use crate::file;
use crate::lock::{Lock, Locked};
use crate::reference::Reference;
use crate::signature::{KeyId, Subject, Trust, Verdict, signature_of};

/// A served folder.
pub struct Folder {
    path: PathBuf,
    registries: Registries,
    trust: Trust,
}

/// What a pull may do to what is locked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// Add to it.
    #[default]
    Add,
    /// Replace it by what the registries have now.
    Update,
    /// Nothing: what is not locked is an error, and `hatchery.lock` stays as it is.
    Locked,
}

/// A component that is as its lock says.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pulled {
    /// Its name.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// Where it is from.
    pub reference: Reference,
    /// The digest of its manifest.
    pub manifest: Digest,
    /// The digest of its bytes.
    pub digest: Digest,
    /// The trusted key that has signed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signer: Option<KeyId>,
    /// What was done.
    pub change: Change,
    /// What is not as good as it could be, a sentence each.
    pub warnings: Vec<String>,
}

/// What a pull did to a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is new to the folder.
    Added,
    /// Its file was missing.
    Restored,
    /// It is another one now.
    Updated,
    /// It has been verified.
    Unchanged,
}

impl Folder {
    /// A folder, the registries to pull from and whom to trust.
    pub fn new(path: PathBuf, registries: Registries, trust: Trust) -> Self {
        Self { path, registries, trust }
    }

    /// Pulls a component and locks it. One that is locked to this reference already is restored; one that is locked to another, or a file
    /// of another origin, is replaced only in [`Mode::Update`].
    ///
    /// # Errors
    /// When the name is taken, or the component does not come, is none or is not signed as it must be.
    pub async fn add(&self, reference: &Reference, name: Option<&str>, mode: Mode) -> Result<Pulled, RegistryError> {
        let name = name.unwrap_or(reference.name());
        check_name(name)?;
        let mut lock = Lock::read(&self.path).await?;
        let pulled = match (lock.components.get(name), mode) {
            (locked, Mode::Update) => self.renew(name, reference, locked).await?,
            (Some(locked), _) if locked.reference == *reference => self.keep(name, locked).await?,
            (Some(locked), _) => {
                return Err(RegistryError::LockedElsewhere {
                    name: name.to_owned(),
                    locked: locked.reference.to_string(),
                    asked: reference.to_string(),
                });
            }
            (None, Mode::Locked) => {
                return Err(RegistryError::NotLocked { name: name.to_owned(), path: Lock::path(&self.path) });
            }
            (None, Mode::Add) if self.component(name).exists() => {
                return Err(RegistryError::Occupied { path: self.component(name) });
            }
            (None, Mode::Add) => self.renew(name, reference, None).await?,
        };
        self.record(&mut lock, &pulled, mode).await?;
        Ok(pulled)
    }

    /// Makes all components what the lock file says, or in [`Mode::Update`] what their references mean now, and says how that went for
    /// each.
    ///
    /// # Errors
    /// When there is no usable lock file.
    pub async fn restore(&self, mode: Mode) -> Result<Vec<Result<Pulled, RegistryError>>, RegistryError> {
        let mut lock = Lock::read(&self.path).await?;
        if lock.components.is_empty() {
            return Err(RegistryError::NothingLocked { path: Lock::path(&self.path) });
        }
        let mut results = Vec::new();
        for (name, locked) in lock.components.clone() {
            let result = if mode == Mode::Update {
                self.renew(&name, &locked.reference, Some(&locked)).await
            } else {
                self.keep(&name, &locked).await
            };
            results.push(match result {
                Ok(pulled) => self.record(&mut lock, &pulled, mode).await.map(|()| pulled),
                Err(error) => Err(error),
            });
        }
        Ok(results)
    }

    /// Writes down what a component is now, if that is news.
    async fn record(&self, lock: &mut Lock, pulled: &Pulled, mode: Mode) -> Result<(), RegistryError> {
        if mode == Mode::Locked {
            return Ok(());
        }
        let before = lock.components.get(&pulled.name);
        let signer = match pulled.change {
            // Nobody may have looked at the signature this time.
            Change::Unchanged | Change::Restored => pulled.signer.or(before.and_then(|before| before.signer)),
            Change::Added | Change::Updated => pulled.signer,
        };
        let now = Locked {
            reference: pulled.reference.clone(),
            manifest: pulled.manifest.clone(),
            file: pulled.digest.clone(),
            signer,
        };
        if before == Some(&now) {
            return Ok(());
        }
        lock.components.insert(pulled.name.clone(), now);
        lock.write(&self.path).await
    }

    /// Verifies what is there, or pulls what is locked.
    async fn keep(&self, name: &str, locked: &Locked) -> Result<Pulled, RegistryError> {
        let path = self.component(name);
        let (change, verdict) = match file::read(&path).await? {
            Some(bytes) => (Change::Unchanged, verify_file(&self.trust, name, &path, &bytes, locked).await?),
            None => (Change::Restored, self.restore_one(name, &path, locked).await?),
        };
        let signer = signer_as_locked(&path, locked, &verdict)?;
        Ok(self.pulled(name, locked, change, signer, verdict))
    }

    /// Pulls exactly what is locked.
    async fn restore_one(&self, name: &str, path: &Path, locked: &Locked) -> Result<Verdict, RegistryError> {
        let pinned = locked.reference.pinned(&locked.manifest);
        let found = match self.registries.look_up(&pinned).await {
            Err(RegistryError::NotFound { .. }) => return Err(self.gone(pinned, locked).await),
            found => found?,
        };
        if found.layer.digest != locked.file {
            return Err(differs(pinned.to_string(), &locked.file, &found.layer.digest));
        }
        let bytes = self.registries.fetch(&pinned, &found.layer).await?;
        let verdict =
            self.trust.judge(&pinned.to_string(), locked.subject(name), &bytes, found.layer.signature.as_deref())?;
        // What does not have the signer that is locked is not written at all.
        signer_as_locked(path, locked, &verdict)?;
        self.write(path, &bytes, found.layer.signature.as_deref()).await?;
        Ok(verdict)
    }

    /// Why what is locked is not there: perhaps the tag means something else now.
    async fn gone(&self, pinned: Reference, locked: &Locked) -> RegistryError {
        match self.registries.look_up(&locked.reference).await {
            Ok(now) if now.manifest != locked.manifest => {
                differs(locked.reference.to_string(), &locked.manifest, &now.manifest)
            }
            _ => RegistryError::NotFound { reference: pinned.to_string() },
        }
    }

    /// Pulls what a reference means now.
    async fn renew(&self, name: &str, reference: &Reference, before: Option<&Locked>) -> Result<Pulled, RegistryError> {
        let path = self.component(name);
        let Found { manifest, layer } = self.registries.look_up(reference).await?;
        let present = file::read(&path).await?.filter(|bytes| Digest::of(bytes) == layer.digest);
        let is_present = present.is_some();
        let bytes = match present {
            Some(bytes) => bytes,
            None => self.registries.fetch(reference, &layer).await?,
        };
        let subject = Subject { name, version: reference.version() };
        let verdict = self.trust.judge(&reference.to_string(), subject, &bytes, layer.signature.as_deref())?;
        let same = before.filter(|before| before.manifest == manifest);
        let signer = match verdict {
            // Nobody has looked, and it is still what it was.
            Verdict::Unchecked => same.and_then(|before| before.signer),
            _ => verdict.signer(),
        };
        self.write(&path, &bytes, layer.signature.as_deref()).await?;
        let change = match before {
            None => Change::Added,
            Some(before) if is_present && same.is_some() && before.signer == signer => Change::Unchanged,
            Some(_) => Change::Updated,
        };
        let lost = before.and_then(|before| before.signer).filter(|lost| signer != Some(*lost));
        let lost = lost.filter(|_| verdict != Verdict::Unchecked);
        let locked = Locked { reference: reference.clone(), manifest, file: layer.digest, signer };
        let mut pulled = self.pulled(name, &locked, change, signer, verdict);
        pulled.warnings.extend(lost.map(|lost| format!("{reference} was signed by the key {lost} until now")));
        Ok(pulled)
    }

    async fn write(&self, path: &Path, bytes: &[u8], signature: Option<&str>) -> Result<(), RegistryError> {
        // The component comes last, and comes anew also when only its signature does: a host that watches the folder looks at both then.
        match signature {
            Some(signature) => file::write(&signature_of(path), signature.as_bytes()).await?,
            None => file::remove(&signature_of(path)).await?,
        }
        file::write(path, bytes).await
    }

    fn component(&self, name: &str) -> PathBuf {
        component(&self.path, name)
    }

    fn pulled(&self, name: &str, locked: &Locked, change: Change, signer: Option<KeyId>, verdict: Verdict) -> Pulled {
        let warnings = match verdict {
            Verdict::Unproven(warning) => vec![warning],
            Verdict::Signed(_) | Verdict::Unchecked => Vec::new(),
        };
        Pulled {
            name: name.to_owned(),
            file: self.component(name),
            reference: locked.reference.clone(),
            manifest: locked.manifest.clone(),
            digest: locked.file.clone(),
            signer,
            change,
            warnings,
        }
    }
}

/// Verifies that the files of a folder are what its lock file says, without asking any registry: by name, who has signed each, or why it is
/// not as locked. A folder without a lock file has nothing to verify.
///
/// # Errors
/// When the lock file cannot be used.
pub async fn verify(
    folder: &Path,
    trust: &Trust,
) -> Result<Vec<(String, Result<Option<KeyId>, RegistryError>)>, RegistryError> {
    let mut verified = Vec::new();
    for (name, locked) in Lock::read(folder).await?.components {
        let path = component(folder, &name);
        let result = verify_locked(trust, &name, &path, &locked).await;
        verified.push((name, result));
    }
    Ok(verified)
}

async fn verify_locked(
    trust: &Trust,
    name: &str,
    path: &Path,
    locked: &Locked,
) -> Result<Option<KeyId>, RegistryError> {
    let missing = || RegistryError::FileMissing { path: path.to_owned() };
    let bytes = file::read(path).await?.ok_or_else(missing)?;
    signer_as_locked(path, locked, &verify_file(trust, name, path, &bytes, locked).await?)
}

/// Compares a file with its lock and with the signature beside it.
async fn verify_file(
    trust: &Trust,
    name: &str,
    path: &Path,
    bytes: &[u8],
    locked: &Locked,
) -> Result<Verdict, RegistryError> {
    let found = Digest::of(bytes);
    if found != locked.file {
        return Err(RegistryError::Differs {
            what: path.display().to_string(),
            expected: locked.file.to_string(),
            found: found.to_string(),
            advice:
                "delete the file and pull again to have what is locked, or take what the registry has now with --update"
                    .to_owned(),
        });
    }
    let signature = file::read_text(&signature_of(path)).await?;
    trust.judge(&path.display().to_string(), locked.subject(name), bytes, signature.as_deref())
}

fn component(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.wasm"))
}

/// The trusted key that has signed, which must be the locked one where one is locked.
fn signer_as_locked(path: &Path, locked: &Locked, verdict: &Verdict) -> Result<Option<KeyId>, RegistryError> {
    let found = match (verdict, locked.signer) {
        (Verdict::Unchecked, _) | (_, None) => return Ok(verdict.signer()),
        (Verdict::Signed(found), Some(expected)) if *found == expected => return Ok(Some(expected)),
        (Verdict::Signed(found), Some(_)) => format!("one by {found}"),
        (Verdict::Unproven(reason), Some(_)) => format!("that {reason}"),
    };
    Err(RegistryError::Differs {
        what: path.display().to_string(),
        expected: format!("a signature by the trusted key {}", locked.signer.map(String::from).unwrap_or_default()),
        found,
        advice: "delete the file and pull again to have what is locked, or accept another signer with --update"
            .to_owned(),
    })
}

fn differs(what: String, expected: &Digest, found: &Digest) -> RegistryError {
    RegistryError::Differs {
        what,
        expected: expected.to_string(),
        found: found.to_string(),
        advice: "accept what the registry has now with --update".to_owned(),
    }
}
