//! Settings of one component: `components.NAME`.

use std::collections::BTreeMap;

use hatchery_core::JsonMap;
use hatchery_registry::{Digest, ExpectedIdentity, KeyId};
use hatchery_wasm::limits::LimitOverrides;
use hatchery_wasm::{Grants, InstancePoolConfig};
use serde::Deserialize;

/// Settings of one component.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentConfig {
    /// Configuration that the component can read.
    pub config: JsonMap,
    /// Descriptions of its tools for models, by name, if these are plain functions.
    pub descriptions: BTreeMap<String, String>,
    pub grants: Grants,
    /// Limits that differ from the limits of all components.
    pub limits: LimitOverrides,
    /// The pool of instances that serve more than one call. `None`: every call has a new instance.
    pub warm: Option<InstancePoolConfig>,
    /// True if only YAML agents and the component's own agents may use its items, regardless of the
    /// grants of other components.
    pub private: bool,
    /// The name in the component's signature. `None`: the component's own name.
    pub signed_as: Option<String>,
    /// The only key whose signature is accepted. If it is set, the component must be signed.
    pub signed_by: Option<KeyId>,
    /// The only digest that the file may have.
    pub sha256: Option<Digest>,
    /// The reason why the component is not loaded, if it requests access that is not trusted.
    #[serde(skip)]
    pub refusal: Option<String>,
}

impl ComponentConfig {
    pub(crate) fn expected_identity(&self) -> ExpectedIdentity {
        ExpectedIdentity { signed_as: self.signed_as.clone(), signed_by: self.signed_by, sha256: self.sha256.clone() }
    }

    /// Takes the name, key and digest that the component must have from other settings.
    pub(crate) fn keep_identity(&mut self, other: &Self) {
        let Self { signed_as, signed_by, sha256, .. } = other.clone();
        *self = Self { signed_as, signed_by, sha256, ..self.clone() };
    }
}
