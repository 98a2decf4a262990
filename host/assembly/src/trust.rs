//! Trust in folders: the operator's decision that the configuration of a served folder may reach outside of it.
//!
//! `hatchery.yaml` is part of the folder, so its author need not be the operator. Settings that stay inside of the
//! folder take effect immediately. Every [`ExternalAccess`] needs a decision of the operator that is stored elsewhere:
//! in the user's [`TrustStore`], or on the command line. [`ConfigSource`] reads a configuration and removes untrusted
//! settings.
//!
//! Trust covers the text of `hatchery.yaml` only, not the components and agents in the folder. A component that
//! replaces another one has the grants of its name.

mod external_access;
mod protected_paths;
mod restriction;
mod source;
mod status;
mod store;

pub use external_access::{ExternalAccess, Section};
pub use protected_paths::ProtectedPaths;
pub use source::{ConfigSource, LoadedConfig};
pub use status::{TrustStatus, UntrustedReason};
pub use store::{TrustError, TrustStore, TrustedFolder, sha256};
