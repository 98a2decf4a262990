//! What the operator says of one component, in `components.NAME` of `hatchery.yaml`.

use std::sync::Arc;

use hatchery_core::JsonMap;

use crate::limits::Limits;
use crate::policy::Grants;

/// What a component is given beside its code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentSettings {
    /// What its calls may use.
    pub limits: Limits,
    /// What it may do.
    pub grants: Arc<Grants>,
    /// What it reads through the `config` interface.
    pub config: JsonMap,
}
