//! Settings of one component: `components.NAME` in `hatchery.yaml`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hatchery_core::JsonMap;

use crate::policy::Grants;
use crate::runtime::config::InstancePoolConfig;
use crate::runtime::http::RecordedHttp;
use crate::runtime::limits::Limits;

/// Settings of one component.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ComponentSettings {
    /// Limits of its calls.
    pub limits: Limits,
    /// The grants of the component.
    pub grants: Arc<Grants>,
    /// Returned to the component by the `config` interface.
    pub config: JsonMap,
    /// Descriptions of its tools by name, if these are plain functions.
    pub descriptions: BTreeMap<String, String>,
    /// Reuse of instances between calls. `None` uses a fresh instance for each call.
    pub warm: Option<InstancePoolConfig>,
    /// Recorded responses that replace the network, in tests.
    pub recorded: Option<RecordedHttp>,
    /// If true, only YAML agents and the component's own agents can use its items, regardless of the grants of other
    /// components.
    pub private: bool,
    /// The reason not to load the component, if its settings are not trusted.
    pub refusal: Option<String>,
}
