//! The agents of one app that other agents call as tools: each is built once, however many agents call it.

use std::collections::HashMap;
use std::mem;

use hatchery_core::Agent;

/// Maximum depth of an agent tree, with the agents that are called as tools.
pub(super) const MAX_NESTING: usize = 32;

/// The agents that are built already, by qualified name.
#[derive(Default)]
pub(super) struct ToolAgents {
    built: HashMap<String, ToolAgent>,
    /// The largest depth reached since the construction of the current agent began.
    deepest: usize,
}

struct ToolAgent {
    agent: Agent,
    /// Number of levels of agents in it.
    height: usize,
}

impl ToolAgents {
    /// Records that an agent is built at this depth; the root has depth 1.
    pub(super) fn reach(&mut self, depth: usize) {
        self.deepest = self.deepest.max(depth);
    }

    /// Returns the agent for a caller at this depth. `None` if it has not been built yet, or would be nested too deeply
    /// there; building it again then returns the error.
    pub(super) fn find(&mut self, name: &str, depth: usize) -> Option<Agent> {
        let ToolAgent { agent, height } = self.built.get(name)?;
        let bottom = depth + height;
        if bottom > MAX_NESTING {
            return None;
        }
        self.deepest = self.deepest.max(bottom);
        Some(agent.clone())
    }

    /// Begins the construction of an agent. Returns the argument `before` of [`ToolAgents::add`].
    pub(super) fn begin(&mut self) -> usize {
        mem::take(&mut self.deepest)
    }

    /// Adds an agent that was built for a caller at this depth. `before` is the value that [`ToolAgents::begin`]
    /// returned.
    pub(super) fn add(&mut self, name: String, agent: Agent, depth: usize, before: usize) {
        let height = self.deepest.saturating_sub(depth);
        self.built.insert(name, ToolAgent { agent, height });
        self.deepest = self.deepest.max(before);
    }
}

#[cfg(test)]
mod tests {
    use hatchery_core::AgentKind;

    use crate::catalog::names::build::tests::{built, with_tools};
    use crate::contract::component::AgentSpec;
    use crate::contract::component::tests::agent;

    /// Returns an LLM agent that calls these agents as tools.
    fn calling(name: String, agents: &[String]) -> AgentSpec {
        let args: Vec<_> = agents.iter().map(|agent| format!(r#"{{"agent": "{agent}"}}"#)).collect();
        let tools: Vec<_> = args.iter().map(|args| ("AgentTool", Some(args.as_str()))).collect();
        AgentSpec { name, ..with_tools(&tools) }
    }

    #[tokio::test]
    async fn an_agent_that_several_agents_call_is_built_once() {
        // If it were built for each caller, the last agent would be built 6^15 times.
        let callers = |level: usize| -> Vec<String> { (0..6).map(|number| format!("b{level}_{number}")).collect() };
        let mut agents = vec![agent("a15", Vec::new())];
        for level in 0..15 {
            agents.push(calling(format!("a{level}"), &callers(level)));
            agents.extend(callers(level).into_iter().map(|name| calling(name, &[format!("a{}", level + 1)])));
        }
        let root = built(agents).await.unwrap();
        assert!(matches!(&root.kind, AgentKind::Llm(llm) if llm.tools.len() == 6));
    }

    #[tokio::test]
    async fn the_levels_of_an_agent_that_is_built_already_count_for_each_caller() {
        let chain = |letter: char, last: &str| -> Vec<AgentSpec> {
            let next = |level: usize| if level == 20 { last.to_owned() } else { format!("{letter}{}", level + 1) };
            (1..=20).map(|level| calling(format!("{letter}{level}"), &[next(level)])).collect()
        };
        let mut agents = vec![agent("a0", vec!["first".into(), "second".into()]), agent("leaf", Vec::new())];
        agents.push(calling("first".into(), &["c1".into()]));
        agents.push(calling("second".into(), &["d1".into()]));
        agents.extend(chain('c', "leaf"));
        agents.extend(chain('d', "c1"));
        let error = built(agents).await.map(|_| ()).unwrap_err();
        assert!(
            error.contains("`made/c11`") && error.contains("nested more than 32 deep; make the tree of agents flatter"),
            "{error}"
        );
    }
}
