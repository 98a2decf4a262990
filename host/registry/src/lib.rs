//! Components from and to OCI registries.
//!
//! A component is pushed as other tools expect it (the Wasm OCI artifact layout), and pulled into a folder whose `hatchery.lock` then says what it
//! is: its manifest's digest, its bytes' digest and the key that has signed it. Pulling the folder again restores exactly that, and verifies
//! what is there already. Nothing is written before its digest, its signature and that it is a component have been verified.
//!
//! A component is held in memory while it is on its way; the most are 256 MiB. Nothing here loads or runs one.

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

pub use client::{Pushed, Registries};
pub use component::{Digest, Interfaces, MAX_BYTES};
pub use credentials::Credentials;
pub use error::RegistryError;
pub use folder::{Change, Folder, Mode, Pulled, verify};
pub use lock::LOCK_FILE;
pub use progress::{Listener, Progress};
pub use reference::Reference;
pub use signature::{Binding, KeyId, PASSWORD_VARIABLE, SignaturePolicy, SigningKey, Trust, TrustedKey};

/// Doors for fuzzing that have no public one.
#[doc(hidden)]
pub mod fuzz {
    use crate::artifact::Layer;
    use crate::{Reference, RegistryError};

    /// Reads a manifest as a pull does.
    ///
    /// # Errors
    /// When it is no manifest of a component.
    pub fn read_manifest(reference: &Reference, manifest: &[u8]) -> Result<(), RegistryError> {
        Layer::read(reference, manifest).map(|_| ())
    }
}
