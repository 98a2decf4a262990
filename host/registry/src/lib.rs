//! Push and pull of components with OCI registries, the lockfile `hatchery.lock`, and minisign signatures.
//!
//! Components are pushed in the Wasm OCI artifact layout, which other tools read. They are pulled into a folder whose
//! `hatchery.lock` records the digest of the manifest, the digest of the file and the key of the signer. Pulling the
//! folder again restores exactly these files and verifies existing ones. A file is written only after its digest, its
//! signature and its format have been verified.
//!
//! A component is held in memory during the transfer, up to 256 MiB. This crate does not load or run components.

mod artifact;
mod client;
mod component;
mod credentials;
mod error;
mod file;
mod folder;
mod lock;
mod progress;
mod reference;
mod signature;

pub use client::{PushedComponent, RegistryClient};
pub use component::{Digest, Interfaces, MAX_BYTES};
pub use credentials::Credentials;
pub use error::RegistryError;
pub use folder::{Change, ComponentFolder, PullMode, PulledComponent, verify};
pub use lock::LOCK_FILE;
pub use progress::{Progress, ProgressListener};
pub use reference::Reference;
pub use signature::{
    ExpectedIdentity, KeyId, PASSWORD_VARIABLE, SignaturePolicy, SignatureVerifier, SigningKey, TrustedKey,
};

/// Entry points for fuzzing of private functions.
#[doc(hidden)]
pub mod fuzz {
    use crate::artifact::ComponentLayer;
    use crate::{Reference, RegistryError};

    /// Parses a manifest as a pull does.
    ///
    /// # Errors
    /// If it is not the manifest of a component.
    pub fn read_manifest(reference: &Reference, manifest: &[u8]) -> Result<(), RegistryError> {
        ComponentLayer::read(reference, manifest).map(|_| ())
    }
}
