//! What a component may do beyond computing: the operator's `components.NAME.grants` in `hatchery.yaml`. Nothing that is not written there
//! is allowed.
//!
//! Each import asks here before it acts. A refusal is a [`Denial`]: an ordinary error to the guest, with the lines that would allow it,
//! and one line in the audit log for the operator.

mod denial;

use serde::Deserialize;

pub(crate) use denial::Denial;

/// What one component is granted. The default is nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grants {}
