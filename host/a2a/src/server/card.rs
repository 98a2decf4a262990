//! The card of an app.

use std::time::SystemTime;

use hatchery_core::{Agent, AgentKind, FunctionDeclaration, VERSION, encode_segment};
use hatchery_engine::App;

use super::A2aService;
use super::input::OUTPUT_MODES;
use crate::card::{AgentCard, HTTP_JSON, Interface, JSON_RPC, Skill};
use crate::codec::Version;

impl A2aService {
    /// Returns the card of an app whose routes begin with `url`.
    pub(super) fn card(&self, app: &App, url: &str) -> AgentCard {
        let interface = |binding: &str, version: Version| Interface {
            url: url.to_owned(),
            binding: binding.into(),
            version: version.name().into(),
            tenant: None,
        };
        let (root, settings) = (app.root(), self.settings());
        let interfaces = [(JSON_RPC, Version::V1_0), (HTTP_JSON, Version::V1_0), (JSON_RPC, Version::V0_3)].into_iter();
        AgentCard {
            name: app.name.clone(),
            description: description(root),
            version: VERSION.into(),
            interfaces: interfaces
                .filter(|(_, version)| settings.versions.contains(version))
                .map(|(binding, version)| interface(binding, version))
                .collect(),
            streaming: true,
            push_notifications: self.0.push.is_enabled(),
            has_extended_card: settings.has_authentication,
            input_modes: settings.input_modes.clone(),
            output_modes: OUTPUT_MODES.map(Into::into).to_vec(),
            skills: app.tree.iter().map(|(_, agent)| skill(agent)).collect(),
        }
    }

    /// Returns the time at which the card of an app last changed. An equal card after a reload counts as unchanged.
    pub(super) fn card_changed(&self, app: &App) -> SystemTime {
        // Its URL differs between clients, unless there is a public one.
        let url = self.settings().public_url.clone().unwrap_or_default();
        let card = self.card(app, &url).to_json().to_string();
        let exists = |name: &str| self.0.apps.app(name).is_some();
        self.0.card_changes.last_modified(&app.name, card.as_bytes(), SystemTime::now(), exists)
    }

    /// Returns the card with the tools of agents, for clients that are authenticated. The tools of toolsets, which are
    /// computed before each model call, are omitted.
    pub(super) fn extended_card(&self, app: &App, url: &str) -> AgentCard {
        let mut card = self.card(app, url);
        for (_, agent) in app.tree.iter() {
            let tools = match &agent.kind {
                AgentKind::Llm(llm) => &llm.tools,
                AgentKind::Custom(custom) => &custom.tools,
                AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } => continue,
            };
            card.skills.extend(tools.iter().map(|tool| tool_skill(agent, tool.declaration())));
        }
        card
    }
}

/// Returns the URL of an app, below which its routes are.
pub(super) fn card_url(base_url: &str, app: &App) -> String {
    format!("{base_url}/a2a/{}", encode_segment(&app.name))
}

fn tool_skill(agent: &Agent, tool: &FunctionDeclaration) -> Skill {
    let description = match tool.description.trim() {
        "" => format!("The tool {} of the agent {}.", tool.name, agent.name),
        description => description.to_owned(),
    };
    Skill {
        id: format!("{}-{}", agent.name, tool.name),
        name: tool.name.clone(),
        description,
        tags: vec!["tool".into()],
    }
}

fn skill(agent: &Agent) -> Skill {
    Skill {
        id: agent.name.clone(),
        name: agent.name.clone(),
        description: description(agent),
        tags: vec![agent.kind.label().into()],
    }
}

fn description(agent: &Agent) -> String {
    match agent.description.trim() {
        "" => format!("The agent {}.", agent.name),
        description => description.to_owned(),
    }
}
