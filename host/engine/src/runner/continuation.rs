//! Which agent goes on with a session.

use std::sync::Arc;

use hatchery_core::{AgentId, AgentKind, AgentTree, Claim, Event, USER_AUTHOR};
use imbl::Vector;

use crate::agents::Branch;
use crate::provenance::Verifier;

/// The agent that answers the newest event, which is what the user said, and its branch: the one whose function call it responds to; else
/// the one that spoke last, if it was handed over to and the conversation could come back to the root from it; else the root.
///
/// Calls and transfers count only with a proof that they come from this host.
pub(super) fn agent_to_run(
    tree: &AgentTree,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> (AgentId, Branch) {
    if let Some(caller) = caller_of_newest_response(tree, events, verifier) {
        return caller;
    }
    let root = tree.root();
    if !matches!(tree.agent(root).kind, AgentKind::Llm(_)) {
        return (root, None);
    }
    let can_continue = |agent: &AgentId| *agent == root || can_hand_back(tree, *agent);
    let mut authors = events.iter().rev().filter(|event| event.author != USER_AUTHOR);
    let spoke_last = authors.find_map(|event| tree.find_agent(&event.author).filter(can_continue)).unwrap_or(root);
    let was_handed_over_to = || {
        let mut transfers = events.iter().rev().filter_map(|event| {
            let target = tree.find_agent(event.actions.transfer_to_agent.as_deref()?).filter(can_continue)?;
            verifier.proves(event, Claim::Transfer).then(|| (tree.find_agent(&event.author), target))
        });
        // An agent that transferred was in charge itself: its target may have been cancelled before its first event.
        transfers.next().is_some_and(|(from, target)| target == spoke_last || from == Some(spoke_last))
    };
    let agent = if spoke_last == root || was_handed_over_to() { spoke_last } else { root };
    (agent, None)
}

/// The agent whose function call the newest event responds to, in the branch of the call.
fn caller_of_newest_response(
    tree: &AgentTree,
    events: &Vector<Arc<Event>>,
    verifier: &Verifier<'_>,
) -> Option<(AgentId, Branch)> {
    let mut earlier = events.iter().rev();
    let newest = earlier.next()?;
    let answered: Vec<_> = newest.function_responses().filter_map(|response| response.id.as_deref()).collect();
    if answered.is_empty() {
        return None;
    }
    let is_call = |event: &&Arc<Event>| {
        event.author != USER_AUTHOR
            && event.function_calls().any(|call| call.id.as_deref().is_some_and(|id| answered.contains(&id)))
            && verifier.proves_open_calls(event)
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
