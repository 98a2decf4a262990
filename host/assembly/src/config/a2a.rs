//! Settings of the Agent2Agent protocol: `a2a`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hatchery_a2a::{Aggregation, CardSource, ClientLimits, RemoteAgentConfig, Version};
use hatchery_wasm::limits::units;
use hatchery_wasm::policy::{HostPattern, OutboundPolicy, PrivateEntry, entries_for};
use serde::Deserialize;

use super::value::{ValueConfig, settings};
use crate::byte_size::ByteSize;
use crate::egress::HostEgress;

/// The Agent2Agent protocol: the apps that clients may use, and agents of other hosts.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct A2aConfig {
    /// Agents of other hosts by name. Agent files refer to them by these names.
    pub agents: BTreeMap<String, A2aAgentConfig>,
    /// The apps that A2A clients of this host may use.
    pub expose: A2aExposeConfig,
    /// Base of the URLs in agent cards, such as `https://agents.example`. Default: `http://`, or `https://` with
    /// `server.tls`, and the host of the request.
    pub public_url: Option<String>,
    /// Maximum time that a request waits for the end of its task. Default: 5 min.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub blocking_timeout: Option<Duration>,
    /// Egress policy of push notifications. Default: none are sent.
    pub push: A2aPushConfig,
}

/// The apps that A2A clients may use. In a pattern, `*` matches any text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct A2aExposeConfig {
    /// Patterns of the names of apps. Default: all.
    pub apps: Vec<String>,
    /// The app of the card at `/.well-known/agent-card.json`. Default: the only one.
    pub default_app: Option<String>,
    /// Versions of the protocol. Default: all.
    pub versions: Vec<A2aVersion>,
    /// Media types of the files that clients may send. Default: texts, JSON, PDF, images, audio and video.
    pub input_modes: Option<Vec<String>>,
}

/// A version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "VersionName")]
pub enum A2aVersion {
    V0_3,
    V1_0,
}

/// YAML reads `1.0` as a number.
#[derive(Deserialize)]
#[serde(untagged)]
enum VersionName {
    Text(String),
    Number(f64),
}

impl TryFrom<VersionName> for A2aVersion {
    type Error = String;

    fn try_from(name: VersionName) -> Result<Self, String> {
        let name = match name {
            VersionName::Text(name) => name,
            VersionName::Number(number) => format!("{number:.1}"),
        };
        match name.as_str() {
            "0.3" => Ok(Self::V0_3),
            "1.0" => Ok(Self::V1_0),
            _ => Err(format!("`{}` is no version of A2A that this host speaks; use 0.3 or 1.0", name.escape_debug())),
        }
    }
}

impl From<A2aVersion> for Version {
    fn from(version: A2aVersion) -> Self {
        match version {
            A2aVersion::V0_3 => Self::V0_3,
            A2aVersion::V1_0 => Self::V1_0,
        }
    }
}

impl Default for A2aExposeConfig {
    fn default() -> Self {
        let versions = vec![A2aVersion::V0_3, A2aVersion::V1_0];
        Self { apps: vec!["*".into()], default_app: None, versions, input_modes: None }
    }
}

/// Egress policy of push notifications.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct A2aPushConfig {
    /// Hosts, as in the grant `network`.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses outside of the public internet, as in the grant `private_network`.
    pub private_network: Vec<PrivateEntry>,
}

/// An agent of another host.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct A2aAgentConfig {
    /// The URL of its card, or a file with it.
    pub card: String,
    /// Headers of every request to it.
    pub headers: BTreeMap<String, ValueConfig>,
    /// Other hosts that its card may name, as in the grant `network`.
    pub network: Vec<HostPattern>,
    /// Hosts and addresses outside of the public internet, as in the grant `private_network`.
    pub private_network: Vec<PrivateEntry>,
    /// Form in which it gets calls of other agents. Default: `external_handoff`.
    pub aggregation: A2aAggregation,
    /// Timeout of connecting. Default: 10 s.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub connect_timeout: Option<Duration>,
    /// Timeout of a response without a byte. Default: 5 min.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub read_timeout: Option<Duration>,
    /// Timeout of one message. Default: 1 h.
    #[serde(deserialize_with = "units::deserialize_optional_duration")]
    pub max_time: Option<Duration>,
    /// Maximum size of its card. Default: 1 MiB.
    pub max_card: Option<ByteSize>,
    /// Maximum size of one response, or of one item of a stream. Default: 16 MiB.
    pub max_message: Option<ByteSize>,
    /// Maximum size of all that belongs to the answer to one message. Default: 64 MiB.
    pub max_answer: Option<ByteSize>,
    /// The reason why the agent is not used. It cannot be set in the file.
    #[serde(skip)]
    pub refusal: Option<String>,
}

/// Form in which a remote agent gets calls of other agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum A2aAggregation {
    /// Calls and results as data.
    AsIs,
    /// Results as texts, and no calls.
    #[default]
    ExternalHandoff,
}

impl From<A2aAggregation> for Aggregation {
    fn from(config: A2aAggregation) -> Self {
        match config {
            A2aAggregation::AsIs => Self::AsIs,
            A2aAggregation::ExternalHandoff => Self::ExternalHandoff,
        }
    }
}

pub(super) fn is_url(card: &str) -> bool {
    card.starts_with("http://") || card.starts_with("https://")
}

impl A2aConfig {
    /// Checks the names and cards of agents and the public URL.
    ///
    /// # Errors
    /// The problem, with the key.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.public_url.as_deref().is_some_and(|url| !is_url(url)) {
            return Err("a2a.public_url must begin with http:// or https://".into());
        }
        if self.expose.versions.is_empty() {
            return Err("a2a.expose.versions is empty; remove it, or name 0.3 or 1.0".into());
        }
        if let Some(mode) = self.expose.input_modes.iter().flatten().find(|mode| !mode.contains('/')) {
            let mode = mode.escape_debug();
            return Err(format!("a2a.expose.input_modes: `{mode}` is no media type, such as image/png or image/*"));
        }
        self.agents.iter().try_for_each(|(name, agent)| {
            let is_plain = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_');
            if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
                return Err(format!(
                    "a2a.agents: `{}` is not a valid name; use up to 64 letters, digits, `-` and `_`",
                    name.escape_debug()
                ));
            }
            if agent.card.trim().is_empty() {
                return Err(format!("a2a.agents.{name}: `card` is missing: the URL of an agent card, or a file"));
            }
            agent.policy().map(drop).map_err(|reason| format!("a2a.agents.{name}.card: {reason}"))
        })
    }

    /// Resolves the paths of cards against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for agent in self.agents.values_mut().filter(|agent| !is_url(&agent.card)) {
            agent.card = folder.join(&agent.card).display().to_string();
        }
    }

    /// Returns the policy of push notifications. `None` if there are none.
    pub(crate) fn push_policy(&self) -> Option<OutboundPolicy> {
        let A2aPushConfig { network, private_network } = self.push.clone();
        (!network.is_empty()).then_some(OutboundPolicy { network, private_network })
    }
}

impl A2aAgentConfig {
    /// Returns the file with the card. `None` if it is at a URL.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        (!is_url(&self.card)).then(|| self.card.clone().into())
    }

    /// Returns the egress policy: the host of the card, which the operator has written down, and to those that
    /// are listed.
    ///
    /// # Errors
    /// If the URL of the card has no host.
    pub(crate) fn policy(&self) -> Result<OutboundPolicy, String> {
        let (mut network, mut private_network) = (self.network.clone(), self.private_network.clone());
        if is_url(&self.card) {
            let (own, private) = entries_for(&self.card)?;
            network.push(own);
            private_network.extend(private);
        }
        Ok(OutboundPolicy { network, private_network })
    }

    /// Returns the settings of the agent.
    pub(crate) fn settings(&self, egress: Arc<HostEgress>) -> RemoteAgentConfig {
        let default = ClientLimits::default();
        RemoteAgentConfig {
            card: self.file().map_or_else(|| CardSource::Url(self.card.clone()), CardSource::File),
            headers: settings(&self.headers),
            egress,
            aggregation: self.aggregation.into(),
            limits: ClientLimits {
                connect_timeout: self.connect_timeout.unwrap_or(default.connect_timeout),
                read_timeout: self.read_timeout.unwrap_or(default.read_timeout),
                max_time: self.max_time.unwrap_or(default.max_time),
                max_card: self.max_card.map_or(default.max_card, ByteSize::bytes),
                max_message: self.max_message.map_or(default.max_message, ByteSize::bytes),
                max_answer: self.max_answer.map_or(default.max_answer, ByteSize::bytes),
            },
        }
    }
}
