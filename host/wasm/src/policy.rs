//! What a component may do beyond computing: the operator's `components.NAME.grants` in `hatchery.yaml`. Nothing that is not written there
//! is allowed.
//!
//! Each import asks here before it acts. A refusal is a [`Denial`]: an ordinary error to the guest, with the lines that would allow it,
//! and one line in the audit log for the operator.

mod address;
mod denial;
mod network;
mod secrets;

use serde::Deserialize;

pub(crate) use denial::Denial;
pub use network::{HostPattern, PrivateEntry};
pub(crate) use network::{Target, forbidden};
pub(crate) use secrets::Placed;
pub use secrets::Secret;

/// What one component is granted. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {
    /// Hosts that it may send HTTP requests to.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses of these that need not be of the public internet.
    pub private_network: Vec<PrivateEntry>,
    /// What the host adds to requests.
    pub secrets: Vec<Secret>,
}
