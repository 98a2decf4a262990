//! Whether a folder's configuration may reach outside of the folder.
//!
//! `hatchery.yaml` travels with the folder that it is in, so being there says nothing about who wrote it. What it asks for is therefore
//! split in two: what stays inside of the folder holds at once, and each [`OutsideRight`] needs a decision that is kept elsewhere, in the
//! user's [`TrustStore`] or on the command line. [`ConfigSource`] reads a configuration and withholds what nobody has decided.
//!
//! Trust covers the text of `hatchery.yaml` only. It says nothing about the components and agents beside it: who may replace them uses
//! the rights that were granted to their names.

mod outside;
mod paths;
mod source;
mod store;

pub use outside::{OutsideRight, Section, outside_rights};
pub use paths::HostPaths;
pub use source::{Authority, ConfigSource, Distrust, LoadedConfig, Standing};
pub use store::{TrustError, TrustStore, TrustedFolder, sha256};
