//! The configured agents, and how agent files refer to them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use hatchery_core::sync::MutexExt;
use hatchery_core::{AgentKind, JsonMap, quoted_list};
use hatchery_engine::Extensions;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Aggregation, CardSource, ClientError, RemoteAgent, RemoteAgentConfig};

/// The class in agent files, and its spellings in ADK.
const CLASS: &str = "A2aAgent";
const ALIASES: [&str; 5] = [
    "RemoteA2aAgent",
    "RemoteA2AAgent",
    "google.adk.agents.RemoteA2aAgent",
    "google.adk.agents.remote_a2a_agent.RemoteA2aAgent",
    "com.google.adk.a2a.agent.RemoteA2AAgent",
];

/// The configured remote agents, which can be replaced. Cheap to clone; clones share the agents.
#[derive(Clone, Default)]
pub struct A2aAgents {
    current: Arc<ArcSwap<AgentTable>>,
    reports: AgentReports,
}

/// The remote agents of one configuration.
#[derive(Clone, Default)]
struct AgentTable {
    agents: BTreeMap<String, RemoteAgentConfig>,
    /// Agents that must not be used, with the reasons.
    refusals: BTreeMap<String, String>,
}

/// The last answer of each agent that was asked: the error, or `None` if there was none.
#[derive(Clone, Default)]
pub(super) struct AgentReports(Arc<Mutex<BTreeMap<String, Option<String>>>>);

impl AgentReports {
    pub(super) fn set(&self, name: &str, error: Option<&ClientError>) {
        self.0.lock_unpoisoned().insert(name.to_owned(), error.map(ClientError::for_reports));
    }
}

/// The state of a remote agent, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemoteAgentStatus {
    /// The name in the configuration.
    pub name: String,
    /// `idle` before it was asked, `ready`, `down` or `refused`.
    pub state: &'static str,
    /// The reason why it is down or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl A2aAgents {
    /// Creates the agents. Nothing is read yet.
    pub fn new(agents: impl IntoIterator<Item = (String, RemoteAgentConfig)>) -> Self {
        let table = AgentTable { agents: agents.into_iter().collect(), ..AgentTable::default() };
        Self { current: Arc::new(ArcSwap::from_pointee(table)), ..Self::default() }
    }

    /// Adds agents that must not be used. Agent files that refer to them get the reason.
    #[must_use]
    pub fn with_refused(self, refusals: impl IntoIterator<Item = (String, String)>) -> Self {
        let table = AgentTable { refusals: refusals.into_iter().collect(), ..self.table() };
        Self { current: Arc::new(ArcSwap::from_pointee(table)), ..self }
    }

    /// Replaces the agents by `others`, except agents with `unchanged` names. Agent files are to be loaded again.
    pub fn replace(&self, others: &Self, unchanged: &BTreeSet<String>) {
        let (before, mut table) = (self.current.load(), others.table());
        for (name, agent) in before.agents.iter().filter(|(name, _)| unchanged.contains(*name)) {
            table.agents.insert(name.clone(), agent.clone());
        }
        self.reports.0.lock_unpoisoned().retain(|name, _| unchanged.contains(name));
        self.current.store(Arc::new(table));
    }

    fn table(&self) -> AgentTable {
        AgentTable::clone(&self.current.load())
    }

    /// Returns the state of each agent, by name.
    pub fn statuses(&self) -> Vec<RemoteAgentStatus> {
        let (table, reports) = (self.current.load(), self.reports.0.lock_unpoisoned());
        let names = table.agents.keys().chain(table.refusals.keys()).collect::<BTreeSet<_>>();
        let status = |name: &String| {
            let (state, reason) = match (table.refusals.get(name), reports.get(name)) {
                (Some(refusal), _) => ("refused", Some(refusal.clone())),
                (None, Some(Some(error))) => ("down", Some(error.clone())),
                (None, Some(None)) => ("ready", None),
                (None, None) => ("idle", None),
            };
            RemoteAgentStatus { name: name.clone(), state, reason }
        };
        names.into_iter().map(status).collect()
    }

    /// Registers the agent class `A2aAgent`.
    pub fn register(&self, extensions: &mut Extensions) {
        let agents = self.clone();
        extensions.agent_classes.register(CLASS, move |args| agents.create(args));
        for alias in ALIASES {
            extensions.agent_classes.register_alias(alias, CLASS);
        }
    }

    fn create(&self, args: JsonMap) -> Result<AgentKind, String> {
        let args: AgentArgs = serde_json::from_value(Value::Object(args)).map_err(|error| error.to_string())?;
        let table = self.current.load();
        let name = &table.find(&args)?.to_owned();
        if let Some(refusal) = table.refusals.get(name) {
            return Err(refusal.clone());
        }
        let Some(config) = table.agents.get(name) else {
            return Err(format!(
                "hatchery.yaml has no remote agent `{name}`; {}; add it there below `a2a.agents`",
                table.list()
            ));
        };
        let mut config = config.clone();
        if let Some(aggregation) = args.aggregation {
            config.aggregation = aggregation.into();
        }
        Ok(RemoteAgent::new(config).with_reports(name, &self.reports).kind())
    }
}

impl AgentTable {
    /// Returns the name of the agent that the arguments refer to.
    fn find<'a>(&'a self, args: &'a AgentArgs) -> Result<&'a str, String> {
        match (&args.agent, &args.agent_card) {
            (Some(name), None) => Ok(name),
            (None, Some(card)) => {
                let is_card = |config: &RemoteAgentConfig| match &config.card {
                    CardSource::Url(url) => url == card,
                    CardSource::File(path) => path.ends_with(card),
                };
                let found = self.agents.iter().find(|(_, config)| is_card(config)).map(|(name, _)| name.as_str());
                found.ok_or_else(|| refuse_card(card))
            }
            (Some(_), Some(_)) => Err("`agent` and `agent_card` exclude each other; leave one of them out".into()),
            (None, None) => {
                Err(format!("`args.agent` is missing: the name of an agent in hatchery.yaml; {}", self.list()))
            }
        }
    }

    fn list(&self) -> String {
        format!("available: {}", quoted_list(self.agents.keys()))
    }
}

/// Returns the error for an agent file with a card: the reason, and the configuration to write instead.
fn refuse_card(card: &str) -> String {
    format!(
        "`agent_card`: an agent file cannot open a connection of its own. Add the agent to hatchery.yaml:\n\na2a:\n  agents:\n    \
         NAME:\n      card: {card}\n\nand refer to it by `args: {{agent: NAME}}` or by the same `agent_card`"
    )
}

/// Arguments of the class in agent files, in snake_case or camelCase.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentArgs {
    agent: Option<String>,
    #[serde(alias = "agentCard")]
    agent_card: Option<String>,
    #[serde(alias = "aggregationMode", alias = "aggregation_mode")]
    aggregation: Option<AggregationMode>,
}

#[derive(Deserialize)]
enum AggregationMode {
    #[serde(rename = "AS_IS", alias = "as_is")]
    AsIs,
    #[serde(rename = "EXTERNAL_HANDOFF", alias = "external_handoff")]
    ExternalHandoff,
}

impl From<AggregationMode> for Aggregation {
    fn from(mode: AggregationMode) -> Self {
        match mode {
            AggregationMode::AsIs => Self::AsIs,
            AggregationMode::ExternalHandoff => Self::ExternalHandoff,
        }
    }
}
