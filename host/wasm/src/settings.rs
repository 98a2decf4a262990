//! What the operator says of one component, in `components.NAME` of `hatchery.yaml`.

use hatchery_core::JsonMap;

use crate::limits::Limits;

/// What a component is given beside its code.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentSettings {
    /// What its calls may use.
    pub limits: Limits,
    /// What it reads through the `config` interface.
    pub config: JsonMap,
}
