//! Which agent goes on with a session.

use std::sync::Arc;

use hatchery_core::agent::AgentTree;
use hatchery_core::event::USER;
use hatchery_core::{AgentId, AgentKind, Event};
use imbl::Vector;

use crate::agents::Branch;

/// The agent that answers the newest event, which is what the user said, and its branch: the one whose function call it responds to; else
/// the one that spoke last, if the conversation could come back to the root from it; else the root.
pub(super) fn agent_to_run(tree: &AgentTree, events: &Vector<Arc<Event>>) -> (AgentId, Branch) {
    if let Some(caller) = caller_of_newest_response(tree, events) {
        return caller;
    }
    let root = tree.root();
    if !matches!(tree.agent(root).kind, AgentKind::Llm(_)) {
        return (root, None);
    }
    let spoke_last = events.iter().rev().filter(|event| event.author != USER).find_map(|event| {
        let agent = tree.find_agent(&event.author)?;
        (agent == root || can_hand_back(tree, agent)).then_some(agent)
    });
    (spoke_last.unwrap_or(root), None)
}

/// The agent whose function call the newest event responds to, in the branch of the call.
fn caller_of_newest_response(tree: &AgentTree, events: &Vector<Arc<Event>>) -> Option<(AgentId, Branch)> {
    let mut earlier = events.iter().rev();
    let newest = earlier.next()?;
    let answered: Vec<_> = newest.function_responses().filter_map(|response| response.id.as_deref()).collect();
    if answered.is_empty() {
        return None;
    }
    let is_call = |event: &&Arc<Event>| {
        event.author != USER
            && event.function_calls().any(|call| call.id.as_deref().is_some_and(|id| answered.contains(&id)))
    };
    let call = earlier.find(is_call)?;
    Some((tree.find_agent(&call.author)?, call.branch.as_deref().map(Into::into)))
}

/// True when the agent and all agents between it and the root are LLM agents that may hand over to their parents.
fn can_hand_back(tree: &AgentTree, agent: AgentId) -> bool {
    std::iter::once(agent).chain(tree.ancestors(agent)).all(|id| match &tree.agent(id).kind {
        AgentKind::Llm(llm) => id == tree.root() || !llm.disallow_transfer_to_parent,
        AgentKind::Sequential | AgentKind::Parallel | AgentKind::Loop { .. } | AgentKind::Custom(_) => false,
    })
}
