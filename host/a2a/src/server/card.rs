//! The card of an app.

use hatchery_core::{Agent, VERSION};
use hatchery_engine::App;

use super::A2aService;
use super::input::{INPUT_MODES, OUTPUT_MODES};
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
        let root = app.root();
        AgentCard {
            name: app.name.clone(),
            description: description(root),
            version: VERSION.into(),
            interfaces: vec![
                interface(JSON_RPC, Version::V1_0),
                interface(HTTP_JSON, Version::V1_0),
                interface(JSON_RPC, Version::V0_3),
            ],
            streaming: true,
            push_notifications: self.0.push.is_some(),
            input_modes: INPUT_MODES.map(Into::into).to_vec(),
            output_modes: OUTPUT_MODES.map(Into::into).to_vec(),
            skills: app.tree.iter().map(|(_, agent)| skill(agent)).collect(),
        }
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
